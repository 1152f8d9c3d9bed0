/** The NPCs: who they are, what they come from, through which devices they speak. */
import { useAct } from '../act.js';
import { may, post, request } from '../api.js';
import { Avatar } from '../character/controls.js';
import { CardDrop } from '../character/card_drop.js';
import { DeviceChoice } from '../character/basis.js';
import { Button, Card, Empty, Failure, Head, Notice, Text, Time, toast } from '../components/basic.js';
import { Dialog } from '../components/dialog.js';
import { Search, SelectField, TextField } from '../components/field.js';
import { table } from '../components/table.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList, useLoad } from '../resource.js';
import { href, navigate, setQuery } from '../router.js';

/** @typedef {import('../types.js').Schemas['Npc']} Npc */

/** @type {import('../screens.js').Screen} */
export const npcs = { paths: ['/npcs'], title: 'npcs.title', group: 'characters', icon: 'npc', shortcut: 'n', view: Npcs };

/** The organisation, for its default NPC. */
export const useOrg = () => useLoad((signal) => request('GET', '/v1/org', { signal }), ['org']);

/** Makes an NPC the default one, or none. @param {string | null} id */
export async function setDefault(id) {
  const { etag } = await request('GET', '/v1/org');
  await request('PATCH', '/v1/org', { etag, body: { default_npc_id: id }, contentType: 'application/merge-patch+json' });
  toast(t(id ? 'npc.default.set' : 'npc.default.unset'));
}

/** @param {{query: URLSearchParams}} props */
function Npcs({ query }) {
  const template = query.get('template') ?? '';
  const list = useList('/v1/npcs', 'npcs', { template_id: template }, 100);
  const templates = useList('/v1/templates', 'templates', {}, 200);
  const org = useOrg();
  const [text, setText] = useState('');
  const [creating, setCreating] = useState(/** @type {{template: string} | undefined} */ (undefined));
  useLive(() => {
    list.reload();
    org.reload();
  }, ['npc', 'org']);
  const named = (/** @type {string | null | undefined} */ id) => templates.data?.items.find((each) => each.id === id)?.name;
  /** @type {Npc[] | undefined} */
  const all = list.data?.items;
  const wanted = text.trim().toLowerCase();
  const items = all?.filter((npc) => wanted === '' || [npc.effective.name, npc.id, ...(npc.device_ids ?? [])].some((each) => each.toLowerCase().includes(wanted)));
  const none = all?.length === 0 && template === '';
  const create = may('admin') && h(Button, { kind: 'primary', icon: 'plus', onClick: () => setCreating({ template }) }, t('npcs.create'));
  return h('div', null,
    h(Head, { title: t('npcs.title'), text: t('npcs.text') }, !none && create),
    !none && h('div', { class: 'toolbar' },
      h(Search, { label: t('npcs.find'), value: text, onInput: setText }),
      template && h(Button, { small: true, icon: 'cross', onClick: () => setQuery({ template: undefined }) }, t('npcs.of', { name: named(template) ?? template }))),
    h(Card, { flush: true }, table({
      label: t('npcs.title'), items, id: (npc) => npc.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: none
        ? h(Empty, { title: t('npcs.none'), text: t('npcs.none.text'), action: create || undefined }, h(CardDrop, { imported: (made) => {
          templates.reload();
          setCreating({ template: made.id });
        } }))
        : h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text'), action: h(Button, { onClick: () => {
          setText('');
          setQuery({ template: undefined });
        } }, t('list.clear')) }),
      columns: [
        { title: t('npcs.name'), width: 150, cell: (npc) => h('span', { class: 'who' }, h(Avatar, { id: npc.effective.avatar, name: npc.effective.name }), h('span', { class: 'two-lines' }, h('span', { class: 'row' }, h('a', { class: 'main', href: href(`/npcs/${npc.id}`) }, h(Text, null, npc.effective.name)), org.data?.data.default_npc_id === npc.id && h('span', { class: 'tag accent' }, t('npc.default')), npc.lapsed.length > 0 && h('span', { class: 'tag warn' }, t('npc.lapsed.count', { n: npc.lapsed.length }))), npc.effective.persona?.role && h('span', { class: 'small soft clip' }, h(Text, null, npc.effective.persona.role)))) },
        { title: t('npcs.template'), width: 110, wide: true, cell: (npc) => (npc.template_id ? h('span', { class: 'two-lines' }, h('a', { href: href(`/templates/${npc.template_id}`) }, h(Text, null, named(npc.template_id) ?? npc.template_id)), h('span', { class: 'small faint' }, t(npc.template_version ? 'npc.pinned' : 'npc.follows', { version: npc.effective_version ?? '' }))) : h('span', { class: 'faint' }, t('npc.own'))) },
        { title: t('npcs.devices'), width: 110, cell: (npc) => h('span', { class: 'row' }, (npc.device_ids ?? []).slice(0, 3).map((id) => h('a', { key: id, class: 'tag mono', href: href(`/devices/${encodeURIComponent(id)}`) }, h(Text, null, id))), (npc.device_ids ?? []).length > 3 && h('a', { class: 'small', href: href('/devices', { npc: npc.id }), title: t('npcs.devices') }, `+${(npc.device_ids ?? []).length - 3}`)) },
        { title: t('npcs.changed'), width: 90, wide: true, cell: (npc) => h('span', { class: 'soft' }, h(Time, { at: npc.updated_at })) },
        { title: t('keyring.acts'), width: 60, number: true, cell: (npc) => h(Button, { small: true, href: href(`/npcs/${npc.id}`, { talk: '1' }) }, t('talk.title')) },
      ],
    })),
    creating && h(NewNpc, { template: creating.template, templates: templates.data?.items ?? [], onClose: () => setCreating(undefined) }));
}

/** @param {{template: string, templates: any[], onClose: () => void}} props */
export function NewNpc({ template: first, templates, onClose }) {
  const [template, setTemplate] = useState(first);
  const [name, setName] = useState('');
  const [devices, setDevices] = useState(/** @type {string[]} */ ([]));
  const { busy, error, run } = useAct(async () => {
    const made = await post('/v1/npcs', { ...(template && { template_id: template }), overrides: name.trim() ? { name: name.trim() } : {}, device_ids: devices });
    onClose();
    navigate(href(`/npcs/${made.id}`));
  });
  const chosen = templates.find((each) => each.id === template);
  return h(Dialog, { title: t('npcs.create'), onClose },
    h('form', { class: 'stack', onSubmit: run },
      h(SelectField, { label: t('npcs.template'), value: template, onChange: setTemplate, hint: t('npcs.template.hint'), options: [{ value: '', label: t('npc.own') }, ...templates.map((each) => ({ value: each.id, label: each.visibility === 'public' ? `${each.name} (${t('templates.public')})` : each.name }))] }),
      h(TextField, { label: t('character.name'), value: name, onInput: setName, maxLength: 100, optional: Boolean(template), required: !template, placeholder: chosen?.name, hint: template ? t('npcs.name.hint') : undefined }),
      h(DeviceChoice, { value: devices, set: setDevices, disabled: false }),
      templates.length === 0 && h(Notice, null, t('npcs.templates.none')),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: !template && name.trim() === '' }, t('keyring.create.act')))));
}
