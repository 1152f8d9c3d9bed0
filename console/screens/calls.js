/** The calls: those that outlive their request, and the journal of all that have ended. */
import { Card, Delivered, Empty, Head, Id, Outcome, Text, Time } from '../components/basic.js';
import { Filter, segmented, Tabs } from '../components/field.js';
import { Journal } from '../components/journal.js';
import { table } from '../components/table.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h } from '../preact.js';
import { useList } from '../resource.js';
import { href, route, setQuery } from '../router.js';

/** @typedef {import('../types.js').StoredCall} StoredCall */

/** @type {import('../screens.js').Screen} */
export const calls = { paths: ['/calls', '/calls/recent'], title: 'calls.title', group: 'run', icon: 'calls', shortcut: 'c', view: Calls };

/** @param {{query: URLSearchParams}} props */
function Calls({ query }) {
  const recent = route.value.path === '/calls/recent';
  return h('div', null,
    h(Head, { title: t('calls.title'), text: t(recent ? 'journal.text' : 'calls.text') }),
    h('div', { class: 'stack' },
      h(Tabs, { label: t('calls.title'), tabs: [{ to: href('/calls'), label: t('calls.stored'), current: !recent }, { to: href('/calls/recent'), label: t('journal.recent'), current: recent }] }),
      recent ? h(Journal, { limit: 50 }) : h(Stored, { query })));
}

/** @param {{query: URLSearchParams}} props */
function Stored({ query }) {
  const filter = { device_id: query.get('device_id') ?? '', state: query.get('state') ?? '' };
  const list = useList('/v1/calls', 'calls', { ...filter, order: 'desc' });
  // Calls have an event when they end, none when they are accepted.
  useLive(list.reload);
  useLive(list.reload, ['call']);
  return h('div', null,
    h('div', { class: 'toolbar' },
      h(Filter, { label: t('calls.device'), name: 'device_id', value: filter.device_id }),
      segmented({ label: t('calls.state'), value: filter.state, onChange: (value) => setQuery({ state: value }), options: [{ value: '', label: t('all') }, { value: 'queued', label: t('outcome.queued') }, { value: 'sent', label: t('outcome.sent') }, { value: 'ended', label: t('calls.ended') }] })),
    h(Card, { flush: true }, table({
      label: t('calls.title'), columns: columns({ device: true }), items: /** @type {StoredCall[] | undefined} */ (list.data?.items), id: (call) => call.call_id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: filter.device_id || filter.state ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text') }) : h(Empty, { title: t('calls.none'), text: t('calls.none.text') }),
    })));
}

/** @param {{device: boolean}} options @returns {import('../components/table.js').Column<StoredCall>[]} */
export function columns({ device }) {
  return [
    { title: t('calls.service'), width: 120, cell: (call) => h('a', { class: 'main mono break', href: `/console/calls/${call.call_id}` }, h(Text, null, call.service)) },
    { title: t('calls.state'), width: 90, cell: (call) => h(Outcome, { outcome: call.outcome ?? call.state }) },
    ...(device ? [{ title: t('calls.device'), width: 90, cell: (/** @type {StoredCall} */ call) => h(Id, { id: call.device_id, to: `/devices/${encodeURIComponent(call.device_id)}` }) }] : []),
    { title: t('calls.delivered'), width: 80, wide: true, cell: (call) => h('span', { class: 'soft' }, h(Delivered, { delivered: call.delivered })) },
    { title: t('calls.mode'), width: 70, wide: true, cell: (call) => h('span', { class: 'soft' }, t(`calls.mode.${call.mode}`)) },
    { title: t('calls.expires'), width: 80, wide: true, cell: (call) => h('span', { class: 'soft' }, call.state === 'queued' ? h(Time, { at: call.expires_at }) : '') },
    { title: t('calls.at'), width: 80, cell: (call) => h('span', { class: 'soft' }, h(Time, { at: call.created_at })) },
  ];
}
