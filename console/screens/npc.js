/** One NPC: its settings beside those of its template, its devices, and a conversation with it. */
import { may, path, Problem, remove } from '../api.js';
import { Basis } from '../character/basis.js';
import { Avatar } from '../character/controls.js';
import { nameOf } from '../character/conflict.js';
import { useDocument } from '../character/document.js';
import { Editor } from '../character/editor.js';
import { flatten, hasLapsed, PATHS, patchOf } from '../character/fields.js';
import { SaveBar } from '../character/save_bar.js';
import { TalkDrawer } from '../character/talk_drawer.js';
import { Bone, Button, Failure, Id, Notice, Text, toast } from '../components/basic.js';
import { Confirm } from '../components/dialog.js';
import { Icon } from '../components/icon.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { href, navigate, setQuery } from '../router.js';
import { setDefault, useOrg } from './npcs.js';

/** @typedef {import('../character/fields.js').Flat} Flat */

/** @type {import('../screens.js').Screen} */
export const npc = { paths: ['/npcs/:id'], title: 'npc.title', parent: '/npcs', view: (props) => h(Npc, { key: props.params.id, ...props }) };

const BASIS = ['template_id', 'template_version', 'device_ids'];

/** @param {any} data @returns {Flat} */
const flat = (data) => ({ ...flatten(data.overrides), ...flatten(data, BASIS) });

/** @param {Flat} before @param {Flat} after */
function patch(before, after) {
  const pick = (/** @type {Flat} */ from, /** @type {string[]} */ paths) => Object.fromEntries(paths.map((each) => [each, from[each]]));
  const overrides = patchOf(pick(before, PATHS), pick(after, PATHS));
  return { ...patchOf(pick(before, BASIS), pick(after, BASIS)), ...(Object.keys(overrides).length > 0 && { overrides }) };
}

/** Kinds that cannot be empty: an empty one is no override. @param {any} value */
const orNone = (value) => (value === '' ? undefined : value);
const LINES = ['name', 'locale', 'model.provider', 'model.model', 'voice.voice_id'];

/** @param {{params: Record<string, string>, query: URLSearchParams}} props */
function Npc({ params, query }) {
  const id = params.id ?? '';
  const edited = useDocument(path`/v1/npcs/${id}`, flat, patch, 'overrides');
  const templates = useList('/v1/templates', 'templates', {}, 200);
  useLive(templates.reload, ['template']);
  const { data, values } = edited;
  const back = h('a', { class: 'crumb', href: href('/npcs') }, h(Icon, { name: 'left' }), t('npcs.title'));
  if (edited.loadError && !data) return h('div', { class: 'stack' }, h('header', { class: 'page-head' }, h('div', null, back, h('h1', { class: 'mono break' }, h(Text, null, id)))), h(Failure, { error: edited.loadError, retry: edited.reload }));
  if (!data || !values) return h(Loading, { back });
  const template = templates.data?.items.find((each) => each.id === values.template_id);
  const sameBasis = values.template_id === (data.template_id ?? undefined) && values.template_version === (data.template_version ?? undefined);
  const version = sameBasis ? data.effective_version : values.template_version ?? template?.version ?? null;
  // Only the newest version of a template can be read.
  const settings = template && template.version === version ? flatten(template) : undefined;
  const lapsed = (/** @type {string} */ each) => hasLapsed(data.lapsed, each) && values[each] === edited.base?.[each];
  const inForce = flatten(data.effective);
  const effective = Object.fromEntries(PATHS.map((each) => [each, (lapsed(each) ? undefined : values[each]) ?? settings?.[each] ?? (values.template_id && edited.base?.[each] === undefined ? inForce[each] : undefined)]));
  const origin = values.template_id ? { version, template: settings, lapsed } : undefined;
  const set = (/** @type {string} */ each, /** @type {any} */ value) => edited.set(each, LINES.includes(each) || !origin ? orNone(value) : value);
  return h('div', { class: 'stack wide' },
    h(Header, { data, etag: edited.etag, back, open: () => setQuery({ talk: '1' }) }),
    data.lapsed.length > 0 && h(Lapsed, { data, edited }),
    h(Basis, { values, version, templates: templates.data?.items ?? [], set: edited.set, disabled: !may('admin'), wrong: deviceProblem(edited.error) }),
    h(Editor, { own: values, effective, origin, wrong: edited.wrong, set, devices: values.device_ids ?? [], disabled: !may('admin') }),
    h(SaveBar, { document: edited }),
    query.get('talk') && h(TalkDrawer, { npc: data, onClose: () => setQuery({ talk: undefined }) }));
}

/** @param {Error | undefined} error */
const deviceProblem = (error) => (error instanceof Problem ? error.errors.find((each) => each.pointer.startsWith('/device_ids'))?.detail ?? (error.kind === 'device_taken' ? String(error.document.detail) : undefined) : undefined);

/** @param {{back: any}} props */
function Loading({ back }) {
  return h('div', { class: 'stack wide', 'aria-busy': 'true' },
    h('header', { class: 'page-head' }, h('div', null, back, h('div', { class: 'who' }, h('span', { class: 'avatar large', 'aria-hidden': 'true' }), h('div', { class: 'two-lines' }, h('h1', null, h(Bone, { width: 180 })), h(Bone, { width: 240 }))))),
    [3, 5].map((lines) => h('div', { class: 'card', key: lines }, h('div', { class: 'body stack' }, Array.from({ length: lines }, (_, index) => h('div', { class: 'stack tight', key: index }, h(Bone, { width: 90 }), h('div', { class: 'bone control-bone' })))))));
}

/** @param {{data: any, etag: string | undefined, back: any, open: () => void}} props */
function Header({ data, etag, back, open }) {
  const org = useOrg();
  const [deleting, setDeleting] = useState(false);
  const isDefault = org.data?.data.default_npc_id === data.id;
  const toggleDefault = async () => {
    try {
      await setDefault(isDefault ? null : data.id);
      org.reload();
    } catch (error) {
      toast(String(/** @type {Error} */ (error).message), 'warning');
    }
  };
  return h('header', { class: 'page-head' },
    h('div', null, back,
      h('div', { class: 'who' }, h(Avatar, { id: data.effective.avatar, name: data.effective.name, large: true }),
        h('div', { class: 'two-lines' },
          h('div', { class: 'row' }, h('h1', { class: 'break' }, h(Text, null, data.effective.name)), isDefault && h('span', { class: 'tag accent', title: t('npc.default.text') }, t('npc.default'))),
          h(Id, { id: data.id })))),
    h('div', { class: 'row' },
      h(Button, { icon: 'memory', href: href('/memories', { of: data.id }) }, t('memories.title')),
      may('admin') && h('details', { class: 'menu' },
        h('summary', { class: 'button' }, t('device.more'), h(Icon, { name: 'chevron' })),
        h('div', { class: 'sheet list' },
          h(Button, { kind: 'plain', icon: 'check', onClick: toggleDefault }, t(isDefault ? 'npc.default.end' : 'npc.default.make')),
          h(Button, { kind: 'plain', icon: 'agent', href: href('/agent', { npc: data.id }) }, t('agent.title')),
          h(Button, { kind: 'plain', icon: 'trash', onClick: () => setDeleting(true) }, t('act.delete')))),
      h(Button, { kind: 'primary', icon: 'voice', onClick: open }, t('talk.title'))),
    deleting && h(Confirm, { title: `${t('act.delete')}: ${data.effective.name}`, text: t('npc.delete.text'), act: t('act.delete'), word: data.effective.name, onClose: () => setDeleting(false), run: async () => {
      await remove(path`/v1/npcs/${data.id}`, { etag });
      navigate(href('/npcs'));
    } }));
}

/** @param {{data: any, edited: ReturnType<typeof useDocument>}} props */
function Lapsed({ data, edited }) {
  const paths = PATHS.filter((each) => hasLapsed(data.lapsed, each) && edited.values?.[each] !== undefined);
  if (paths.length === 0) return null;
  return h(Notice, { tone: 'warn', title: t('npc.lapsed.title'), actions: may('admin') && h(Button, { small: true, onClick: () => paths.forEach((each) => edited.set(each, undefined)) }, t('npc.lapsed.remove')) },
    h('span', null, t('npc.lapsed.text', { fields: paths.map(nameOf).join(', ') })));
}
