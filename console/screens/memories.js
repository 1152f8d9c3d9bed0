/** What NPCs and templates remember: to read, search, add, correct and delete. */
import { may, path, remove } from '../api.js';
import { Button, Card, Empty, Failure, Head, Notice, Text, Time } from '../components/basic.js';
import { Confirm } from '../components/dialog.js';
import { Filter, Select } from '../components/field.js';
import { table } from '../components/table.js';
import { exact, number, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { href, setQuery } from '../router.js';
import { AddMemories, EditMemory } from './memory_dialogs.js';

/** @typedef {import('../types.js').Schemas['Memory'] & {version?: number}} Memory */

/** @type {import('../screens.js').Screen} */
export const memories = { paths: ['/memories'], title: 'memories.title', group: 'knowledge', icon: 'memory', shortcut: 'm', view: Memories };

/** How long a filter waits for the next letter. */

/** @param {string} of */
export const memoriesPath = (of) => (of.startsWith('tpl_') ? path`/v1/templates/${of}/memories` : path`/v1/npcs/${of}/memories`);

/** @param {{query: URLSearchParams}} props */
function Memories({ query }) {
  const npcs = useList('/v1/npcs', 'npcs', {}, 200);
  const templates = useList('/v1/templates', 'templates', {}, 200);
  const owners = [
    ...(npcs.data?.items ?? []).map((npc) => ({ value: npc.id, label: npc.effective.name })),
    ...(templates.data?.items ?? []).map((template) => ({ value: template.id, label: `${template.name} (${t('template.title')})` })),
  ];
  const of = query.get('of') ?? owners[0]?.value ?? '';
  const loaded = npcs.data && templates.data;
  const error = npcs.error ?? templates.error;
  const options = of && !owners.some((owner) => owner.value === of) ? [{ value: of, label: of }, ...owners] : owners;
  return h('div', null,
    h(Head, { title: t('memories.title'), text: t('memories.text') },
      options.length > 0 && h('label', { class: 'owner' }, h('span', { class: 'small soft' }, t('memories.of')), h(Select, { value: of, options, onChange: (/** @type {string} */ value) => setQuery({ of: value, q: undefined, subject: undefined, kind: undefined }) }))),
    error && !loaded && h(Failure, { error, retry: () => {
      npcs.reload();
      templates.reload();
    } }),
    loaded && of === '' && h(Card, null, h(Empty, { title: t('memories.noOne'), text: t('memories.noOne.text'), action: h(Button, { kind: 'primary', href: href('/npcs') }, t('npcs.title')) })),
    (of !== '' || !loaded) && !(error && !loaded) && h(OfOwner, { key: of, of, query }));
}

/** @param {{of: string, query: URLSearchParams}} props */
function OfOwner({ of, query }) {
  const filter = { q: query.get('q') ?? '', subject: query.get('subject') ?? '', kind: query.get('kind') ?? '' };
  const list = useList(of ? memoriesPath(of) : '/v1/npcs', of ? 'memories' : 'npcs', of ? filter : {}, 50);
  const [open, setOpen] = useState(/** @type {{act: 'add'} | {act: 'edit' | 'delete', memory: Memory} | undefined} */ (undefined));
  useLive(list.reload);
  const close = () => setOpen(undefined);
  const saved = () => {
    close();
    list.reload();
  };
  const filtered = Object.values(filter).some(Boolean);
  /** @type {Memory[] | undefined} */
  const items = of ? list.data?.items : undefined;
  const none = items?.length === 0 && !filtered;
  const add = may('admin') && h(Button, { kind: 'primary', icon: 'plus', onClick: () => setOpen({ act: 'add' }) }, t('memories.add'));
  return h('div', null,
    !none && h('div', { class: 'toolbar' },
      h(Filter, { label: t('memories.search'), name: 'q', value: filter.q }),
      h(Filter, { label: t('memories.subject'), name: 'subject', value: filter.subject }),
      h(Filter, { label: t('memories.kind'), name: 'kind', value: filter.kind }),
      h('span', { class: 'grow' }), add),
    h(Card, { flush: true }, table({
      label: t('memories.title'), items, id: (memory) => memory.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: filtered
        ? h(Empty, { picture: false, title: t('list.nothing'), text: t('memories.nothing.text'), action: h(Button, { onClick: () => setQuery({ q: undefined, subject: undefined, kind: undefined }) }, t('list.clear')) })
        : h(Empty, { title: t('memories.none'), text: t('memories.none.text'), action: add || undefined }, h(Notice, null, t('memories.none.more'))),
      columns: [
        { title: t('memories.memory'), width: 320, cell: (memory) => h('span', { class: 'two-lines memory' }, h('span', { class: 'memory-text' }, h(Text, null, memory.text)), h('span', { class: 'row small soft' }, memory.subject && h('button', { type: 'button', class: 'tag mono', title: t('memories.only', { value: memory.subject }), onClick: () => setQuery({ subject: memory.subject ?? undefined }) }, h(Text, null, memory.subject)), memory.kind && h('button', { type: 'button', class: 'tag', title: t('memories.only', { value: memory.kind }), onClick: () => setQuery({ kind: memory.kind ?? undefined }) }, h(Text, null, memory.kind)), memory.template_id && !of.startsWith('tpl_') && h('a', { class: 'tag', href: href(`/templates/${memory.template_id}`) }, t('memories.ofTemplate')), h('span', null, memory.source ? [`${t('memories.source')} `, h(Text, null, memory.source)] : t('memories.byHand')))) },
        ...(filter.q ? [{ title: t('memories.score'), width: 40, number: true, cell: (/** @type {Memory} */ memory) => memory.score !== undefined && h('span', { class: 'number', title: t('memories.score') }, number(memory.score, { maximumFractionDigits: 2 })) }] : []),
        { title: t('memories.importance'), width: 60, cell: (memory) => h('span', { class: 'importance', title: t('memories.importance') }, h('meter', { min: 0, max: 1, value: memory.importance, 'aria-label': `${t('memories.importance')}: ${number(memory.importance, { maximumFractionDigits: 2 })}` }), h('span', { class: 'small soft number' }, number(memory.importance, { maximumFractionDigits: 2 }))) },
        { title: t('memories.made'), width: 80, wide: true, cell: (memory) => h('span', { class: 'soft' }, h(Time, { at: memory.created_at })) },
        { title: t('memories.ends'), width: 80, wide: true, cell: (memory) => (memory.expires_at ? h('span', { class: 'soft', title: exact(memory.expires_at) }, h(Time, { at: memory.expires_at })) : h('span', { class: 'faint' }, t('memories.ends.never'))) },
        { title: t('keyring.acts'), width: 70, number: true, cell: (memory) => may('admin') && h('span', { class: 'row acts' }, h(Button, { small: true, kind: 'plain', onClick: () => setOpen({ act: 'edit', memory }) }, t('memories.edit')), h(Button, { small: true, kind: 'plain', icon: 'trash', label: t('act.delete'), onClick: () => setOpen({ act: 'delete', memory }) })) },
      ],
    })),
    open?.act === 'add' && h(AddMemories, { path: memoriesPath(of), onClose: close, saved }),
    open?.act === 'edit' && h(EditMemory, { memory: open.memory, onClose: close, saved }),
    open?.act === 'delete' && h(Confirm, { title: t('memories.delete'), text: h('span', { class: 'memory-text' }, h(Text, null, open.memory.text)), act: t('act.delete'), onClose: close, run: async () => {
      await remove(path`/v1/memories/${open.memory.id}`);
      list.reload();
    } }));
}

