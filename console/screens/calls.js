/** All calls: those that have ended, of every caller, and those that are kept until they end. */
import { Card, Delivered, Empty, Head, Id, Outcome, Text, Time } from '../components/basic.js';
import { Search, Select, segmented } from '../components/field.js';
import { table } from '../components/table.js';
import { duration, maybe, size, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useEffect, useState } from '../preact.js';
import { useList } from '../resource.js';
import { setQuery } from '../router.js';

/** @typedef {import('../types.js').JournalCall} JournalCall */
/** @typedef {import('../types.js').StoredCall} StoredCall */

/** @type {import('../screens.js').Screen} */
export const calls = { paths: ['/calls'], title: 'calls.title', group: 'run', icon: 'calls', shortcut: 'c', view: Calls };

const OUTCOMES = ['succeeded', 'failed', 'invalid', 'offline', 'timed_out', 'lost', 'cancelled', 'expired', 'overloaded', 'unknown_device', 'unknown_service'];

/** @param {{query: URLSearchParams}} props */
function Calls({ query }) {
  const view = query.get('view') === 'kept' ? 'kept' : 'journal';
  return h('div', null,
    h(Head, { title: t('calls.title'), text: t(`calls.text.${view}`) },
      segmented({ label: t('calls.view'), value: view, onChange: (value) => setQuery({ view: value === 'kept' ? 'kept' : undefined, state: undefined, outcome: undefined }), options: [{ value: 'journal', label: t('calls.view.journal') }, { value: 'kept', label: t('calls.view.kept') }] })),
    view === 'kept' ? h(Kept, { query }) : h(Journal, { query }));
}

/** A filter that is sent when the typing pauses. @param {{label: string, name: string, value: string}} props */
function Typed({ label, name, value }) {
  const [text, setText] = useState(value);
  useEffect(() => { setText(value); }, [value]);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => setQuery({ [name]: text.trim() }), 300);
    return () => clearTimeout(timer);
  }, [text]);
  return h(Search, { label, value: text, onInput: setText });
}

/** @param {{query: URLSearchParams}} props */
function Journal({ query }) {
  const filter = { device_id: query.get('device_id') ?? '', service: query.get('service') ?? '', outcome: query.get('outcome') ?? '' };
  const list = useList('/v1/calls/recent', 'calls', filter);
  useLive(['call.finished'], list.reload);
  const leftOut = list.data?.page.left_out ?? 0;
  return h('div', null,
    h('div', { class: 'toolbar' },
      h(Typed, { label: t('calls.device'), name: 'device_id', value: filter.device_id }),
      h(Typed, { label: t('calls.service'), name: 'service', value: filter.service }),
      h('div', null, h(Select, { 'aria-label': t('calls.outcome'), value: filter.outcome, onChange: (value) => setQuery({ outcome: value }), options: [{ value: '', label: t('calls.outcome.all') }, ...OUTCOMES.map((outcome) => ({ value: outcome, label: maybe(`outcome.${outcome}`) ?? outcome }))] }))),
    h(Card, { flush: true }, table({
      label: t('calls.view.journal'), columns: journalColumns({ device: true }), items: list.data?.items, id: (call) => call.call_id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      foot: list.data && [t('list.shown', { n: list.data.items.length }), leftOut > 0 && t('calls.leftOut', { n: leftOut })].filter(Boolean).join(' · '),
      empty: Object.values(filter).some(Boolean) ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text') }) : h(Empty, { title: t('device.noCalls'), text: t('device.noCalls.text') }),
    })));
}

/** @param {{device: boolean}} options @returns {import('../components/table.js').Column<JournalCall>[]} */
export function journalColumns({ device }) {
  /** @type {import('../components/table.js').Column<JournalCall>[]} */
  const columns = [
    { title: t('calls.service'), width: 120, cell: (call) => h('a', { class: 'main mono break', href: `/console/calls/${call.call_id}` }, h(Text, null, call.service)) },
    { title: t('calls.outcome'), width: 90, cell: (call) => h(Outcome, { outcome: call.outcome }) },
    ...(device ? [{ title: t('calls.device'), width: 90, cell: (/** @type {JournalCall} */ call) => h(Id, { id: call.device_id, to: `/devices/${encodeURIComponent(call.device_id)}` }) }] : []),
    { title: t('calls.delivered'), width: 80, wide: true, cell: (call) => h('span', { class: 'soft' }, h(Delivered, { delivered: call.delivered })) },
    { title: t('calls.by'), width: 90, wide: true, cell: (call) => h('span', { class: 'soft' }, h(Actor, { call })) },
    { title: t('calls.took'), width: 50, number: true, cell: (call) => h('span', { class: 'number' }, duration(call.elapsed_ms)) },
    { title: t('calls.size'), width: 60, number: true, wide: true, cell: (call) => h('span', { class: 'number faint' }, call.result_bytes === undefined ? '' : size(call.result_bytes)) },
    { title: t('calls.at'), width: 80, cell: (call) => h('span', { class: 'soft' }, h(Time, { at: call.created_at })) },
  ];
  return columns;
}

/** Who called, and how. @param {{call: JournalCall}} props */
export function Actor({ call }) {
  const name = call.actor?.name ?? call.actor?.id;
  return h('span', null, maybe(`calls.mode.${call.mode}`) ?? call.mode, name && h('span', { class: 'faint', title: call.actor.id }, ' · ', h(Text, null, name.length > 20 ? `${name.slice(0, 12)}…` : name)));
}

/** @param {{query: URLSearchParams}} props */
function Kept({ query }) {
  const filter = { device_id: query.get('device_id') ?? '', state: query.get('state') ?? '' };
  const list = useList('/v1/calls', 'calls', { ...filter, order: 'desc' });
  useLive(['call.finished'], list.reload);
  return h('div', null,
    h('div', { class: 'toolbar' },
      h(Typed, { label: t('calls.device'), name: 'device_id', value: filter.device_id }),
      segmented({ label: t('calls.state'), value: filter.state, onChange: (value) => setQuery({ state: value }), options: [{ value: '', label: t('all') }, { value: 'queued', label: t('outcome.queued') }, { value: 'sent', label: t('outcome.sent') }, { value: 'ended', label: t('calls.ended') }] })),
    h(Card, { flush: true }, table({
      label: t('calls.view.kept'), columns: keptColumns(), items: /** @type {StoredCall[] | undefined} */ (list.data?.items), id: (call) => call.call_id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: h(Empty, { title: t('calls.kept.none'), text: t('calls.kept.none.text') }),
    })));
}

/** @returns {import('../components/table.js').Column<StoredCall>[]} */
function keptColumns() {
  return [
    { title: t('calls.service'), width: 120, cell: (call) => h('a', { class: 'main mono break', href: `/console/calls/${call.call_id}` }, h(Text, null, call.service)) },
    { title: t('calls.state'), width: 90, cell: (call) => h(Outcome, { outcome: call.outcome ?? call.state }) },
    { title: t('calls.device'), width: 90, cell: (call) => h(Id, { id: call.device_id, to: `/devices/${encodeURIComponent(call.device_id)}` }) },
    { title: t('calls.delivered'), width: 80, wide: true, cell: (call) => h('span', { class: 'soft' }, h(Delivered, { delivered: call.delivered })) },
    { title: t('calls.mode'), width: 70, wide: true, cell: (call) => h('span', { class: 'soft' }, t(`calls.mode.${call.mode}`)) },
    { title: t('calls.expires'), width: 80, wide: true, cell: (call) => h('span', { class: 'soft' }, call.state === 'queued' ? h(Time, { at: call.expires_at }) : '') },
    { title: t('calls.at'), width: 80, cell: (call) => h('span', { class: 'soft' }, h(Time, { at: call.created_at })) },
  ];
}
