/** One template: its settings, who uses it, and its way out as a character card. */
import { useAct } from '../act.js';
import { may, Problem, remove, session } from '../api.js';
import { exportCard } from '../character/card_drop.js';
import { Avatar } from '../character/controls.js';
import { useDocument } from '../character/document.js';
import { Editor } from '../character/editor.js';
import { flatten, patchOf } from '../character/fields.js';
import { SaveBar } from '../character/save_bar.js';
import { Bone, Button, Card, Failure, Id, Notice, Text, toast } from '../components/basic.js';
import { Dialog } from '../components/dialog.js';
import { Icon } from '../components/icon.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { href, navigate } from '../router.js';
import { NewNpc } from './npcs.js';
import { duplicate, templatePath } from './templates.js';

/** @type {import('../screens.js').Screen} */
export const template = { paths: ['/templates/:id'], title: 'template.title', parent: '/templates', view: (props) => h(Template, { key: props.params.id, ...props }) };

/** Kinds that cannot be empty texts. @param {any} value */
const orNone = (value) => (value === '' ? undefined : value);

/** @param {{params: Record<string, string>}} props */
function Template({ params }) {
  const id = params.id ?? '';
  const edited = useDocument(templatePath(id), flatten, patchOf);
  const users = useList('/v1/npcs', 'npcs', { template_id: id }, 100);
  useLive(users.reload, ['npc']);
  const { data, values } = edited;
  const back = h('a', { class: 'crumb', href: href('/templates') }, h(Icon, { name: 'left' }), t('templates.title'));
  if (edited.loadError && !data) return h('div', { class: 'stack' }, h('header', { class: 'page-head' }, h('div', null, back, h('h1', { class: 'mono break' }, h(Text, null, id)))), h(Failure, { error: edited.loadError, retry: edited.reload }));
  if (!data || !values) {
    return h('div', { class: 'stack wide', 'aria-busy': 'true' }, h('header', { class: 'page-head' }, h('div', null, back, h('div', { class: 'who' }, h('span', { class: 'avatar large', 'aria-hidden': 'true' }), h('div', { class: 'two-lines' }, h('h1', null, h(Bone, { width: 180 })), h(Bone, { width: 240 }))))),
      h('div', { class: 'card' }, h('div', { class: 'body stack' }, [1, 2, 3, 4].map((line) => h('div', { class: 'stack tight', key: line }, h(Bone, { width: 90 }), h('div', { class: 'bone control-bone' }))))));
  }
  const writable = may('admin') && (data.visibility !== 'public' || session.value?.is_operator === true);
  return h('div', { class: 'stack wide' },
    h(Header, { data, etag: edited.etag, back, users: users.data?.items, writable }),
    data.visibility === 'public' && !writable && h(Notice, { icon: 'lock' }, t('template.public.text')),
    h(Users, { users: users.data?.items }),
    h(Editor, { own: values, effective: values, origin: undefined, wrong: edited.wrong, set: (each, value) => edited.set(each, orNone(value)), devices: [], disabled: !writable }),
    h(SaveBar, { document: edited }));
}

/** @param {{users: any[] | undefined}} props */
function Users({ users }) {
  return h(Card, { title: t('template.users') },
    !users ? h(Bone, { width: 180 }) : users.length === 0 ? h('p', { class: 'soft' }, t('template.users.none')) : h(UserLinks, { users }));
}

/** @param {{users: any[]}} props */
const UserLinks = ({ users }) => h('div', { class: 'row' }, users.map((npc) => h('a', { key: npc.id, class: 'tag user', href: href(`/npcs/${npc.id}`) }, h(Avatar, { id: npc.effective.avatar, name: npc.effective.name }), h(Text, null, npc.effective.name), npc.template_version && h('span', { class: 'faint' }, t('npc.pinned', { version: npc.template_version })))));

/** @param {{data: any, etag: string | undefined, back: any, users: any[] | undefined, writable: boolean}} props */
function Header({ data, etag, back, users, writable }) {
  const [open, setOpen] = useState(/** @type {'delete' | 'npc' | undefined} */ (undefined));
  const run = async (/** @type {() => Promise<unknown>} */ act) => {
    try {
      await act();
    } catch (error) {
      toast(error instanceof Problem && error.kind === 'no_png_avatar' ? t('card.noPicture') : String(/** @type {Error} */ (error).message), 'warning');
    }
  };
  return h('header', { class: 'page-head' },
    h('div', null, back,
      h('div', { class: 'who' }, h(Avatar, { id: data.avatar, name: data.name, large: true }),
        h('div', { class: 'two-lines' },
          h('div', { class: 'row' }, h('h1', { class: 'break' }, h(Text, null, data.name)), h('span', { class: data.visibility === 'public' ? 'tag accent' : 'tag' }, t(data.visibility === 'public' ? 'templates.public' : 'templates.private')), h('span', { class: 'tag' }, t('template.version', { version: data.version }))),
          h(Id, { id: data.id })))),
    h('div', { class: 'row' },
      h(Button, { icon: 'memory', href: href('/memories', { of: data.id }) }, t('memories.title')),
      h('details', { class: 'menu' },
        h('summary', { class: 'button' }, t('device.more'), h(Icon, { name: 'chevron' })),
        h('div', { class: 'sheet list' },
          h(Button, { kind: 'plain', onClick: () => run(() => exportCard(data, 'json')) }, t('card.export.json')),
          h(Button, { kind: 'plain', onClick: () => run(() => exportCard(data, 'png')) }, t('card.export.png')),
          may('admin') && h(Button, { kind: 'plain', icon: 'copy', onClick: () => run(async () => navigate(href(`/templates/${(await duplicate(data)).id}`))) }, t('template.duplicate')),
          writable && h(Button, { kind: 'plain', icon: 'trash', onClick: () => setOpen('delete') }, t('act.delete')))),
      may('admin') && h(Button, { kind: 'primary', icon: 'npc', onClick: () => setOpen('npc') }, t('template.use'))),
    open === 'npc' && h(NewNpc, { template: data.id, templates: [data], onClose: () => setOpen(undefined) }),
    open === 'delete' && h(DeleteTemplate, { data, etag, users, onClose: () => setOpen(undefined) }));
}

/** @param {{data: any, etag: string | undefined, users: any[] | undefined, onClose: () => void}} props */
function DeleteTemplate({ data, etag, users, onClose }) {
  const { busy, error, run } = useAct(async () => {
    await remove(templatePath(data.id), { etag });
    onClose();
    navigate(href('/templates'));
  });
  const used = error instanceof Problem && error.kind === 'template_in_use';
  return h(Dialog, { title: `${t('act.delete')}: ${data.name}`, onClose },
    h('p', { class: 'soft' }, t('template.delete.text')),
    h(Failure, { error }),
    (used || (users ?? []).length > 0) && h('div', { class: 'stack tight' }, h('h3', null, t('template.users')), users && users.length > 0 ? h(UserLinks, { users }) : h('p', { class: 'soft' }, t('template.users.others'))),
    h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'danger', busy, onClick: () => run() }, t('act.delete'))));
}
