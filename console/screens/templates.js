/** The templates: characters that NPCs are made from, own and public ones, and cards to import. */
import { useAct } from '../act.js';
import { may, path, post } from '../api.js';
import { CardDrop } from '../character/card_drop.js';
import { Avatar } from '../character/controls.js';
import { Button, Card, Empty, Failure, Head, Text, Time } from '../components/basic.js';
import { Dialog } from '../components/dialog.js';
import { Search, segmented, TextField } from '../components/field.js';
import { table } from '../components/table.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { href, navigate, setQuery } from '../router.js';

/** @typedef {import('../types.js').Schemas['Template']} Template */

/** @type {import('../screens.js').Screen} */
export const templates = { paths: ['/templates'], title: 'templates.title', group: 'characters', icon: 'template', shortcut: 't', view: Templates };

/** @param {{query: URLSearchParams}} props */
function Templates({ query }) {
  const visibility = query.get('visibility') ?? '';
  const list = useList('/v1/templates', 'templates', { visibility: visibility === 'public' ? 'public' : '' }, 100);
  const npcs = useList('/v1/npcs', 'npcs', {}, 200);
  const [text, setText] = useState('');
  const [creating, setCreating] = useState(false);
  useLive(() => {
    list.reload();
    npcs.reload();
  }, ['template', 'npc']);
  /** @type {Template[] | undefined} */
  const all = list.data?.items;
  const wanted = text.trim().toLowerCase();
  const items = all?.filter((each) => (visibility !== 'private' || each.visibility === 'private') && (wanted === '' || [each.name, each.id, ...(each.tags ?? [])].some((name) => name.toLowerCase().includes(wanted))));
  const none = all?.length === 0 && visibility === '';
  const users = (/** @type {string} */ id) => npcs.data?.items.filter((npc) => npc.template_id === id).length ?? 0;
  const open = (/** @type {{id: string}} */ template) => navigate(href(`/templates/${template.id}`));
  const create = may('admin') && h(Button, { kind: 'primary', icon: 'plus', onClick: () => setCreating(true) }, t('templates.create'));
  return h('div', null,
    h(Head, { title: t('templates.title'), text: t('templates.text') }, !none && create),
    !none && h('div', { class: 'toolbar' }, h(Search, { label: t('templates.find'), value: text, onInput: setText }),
        segmented({ label: t('templates.visibility'), value: visibility, onChange: (value) => setQuery({ visibility: value }), options: [{ value: '', label: t('all') }, { value: 'private', label: t('templates.private') }, { value: 'public', label: t('templates.public') }] })),
    h(Card, { flush: true },
      table({
        label: t('templates.title'), items, id: (each) => each.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
        empty: none
          ? h(Empty, { title: t('templates.none'), text: t('templates.none.text'), action: create || undefined })
          : h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text'), action: h(Button, { onClick: () => {
            setText('');
            setQuery({ visibility: undefined });
          } }, t('list.clear')) }),
        columns: [
          { title: t('npcs.name'), width: 150, cell: (each) => h('span', { class: 'who' }, h(Avatar, { id: each.avatar, name: each.name }), h('span', { class: 'two-lines' }, h('a', { class: 'main', href: href(`/templates/${each.id}`) }, h(Text, null, each.name)), each.persona?.role && h('span', { class: 'small soft clip' }, h(Text, null, each.persona.role)))) },
          { title: t('templates.visibility'), width: 70, cell: (each) => h('span', { class: each.visibility === 'public' ? 'tag accent' : 'tag' }, t(`templates.${each.visibility}`)) },
          { title: t('character.tags'), width: 110, wide: true, cell: (each) => h('span', { class: 'row' }, (each.tags ?? []).slice(0, 4).map((tag) => h('span', { class: 'tag', key: tag }, h(Text, null, tag)))) },
          { title: t('templates.users'), width: 60, number: true, cell: (each) => h('a', { href: href('/npcs', { template: each.id }) }, t('templates.count', { n: users(each.id) })) },
          { title: t('templates.version'), width: 40, number: true, wide: true, cell: (each) => each.version },
          { title: t('npcs.changed'), width: 90, wide: true, cell: (each) => h('span', { class: 'soft' }, h(Time, { at: each.updated_at })) },
        ],
      })),
    h('div', { class: 'below' }, h(CardDrop, { imported: open })),
    creating && h(NewTemplate, { onClose: () => setCreating(false), made: open }));
}

/** @param {{onClose: () => void, made: (template: {id: string}) => void}} props */
function NewTemplate({ onClose, made }) {
  const [name, setName] = useState('');
  const [role, setRole] = useState('');
  const { busy, error, run } = useAct(async () => {
    made(await post('/v1/templates', { name: name.trim(), ...(role.trim() && { persona: { role: role.trim() } }) }));
  });
  return h(Dialog, { title: t('templates.create'), onClose },
    h('form', { class: 'stack', onSubmit: run },
      h(TextField, { label: t('character.name'), value: name, onInput: setName, required: true, maxLength: 100 }),
      h(TextField, { label: t('character.persona.role'), hint: t('character.persona.role.hint'), value: role, onInput: setRole, optional: true, maxLength: 200 }),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: name.trim() === '' }, t('keyring.create.act')))));
}

const READ_ONLY = ['id', 'org_id', 'version', 'created_at', 'updated_at', 'visibility'];

/** A copy of a template: the names of prompts are unique, so that the copy has its own id for one. @param {any} template @returns {Promise<{id: string}>} */
export function duplicate(template) {
  const copy = Object.fromEntries(Object.entries(template).filter(([name, value]) => !READ_ONLY.includes(name) && value !== null));
  const suffix = t('templates.copy');
  copy.name = `${[...template.name].slice(0, 100 - suffix.length - 1).join('')} ${suffix}`;
  if (copy.prompt) copy.prompt = { ...copy.prompt, name: null };
  return post('/v1/templates', copy);
}

/** The path of a template. @param {string} id */
export const templatePath = (id) => path`/v1/templates/${id}`;
