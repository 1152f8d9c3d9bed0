/** The journal: the latest calls whose callers waited, as they end. */
import { may } from '../api.js';
import { duration, exact, clock, maybe, size, t } from '../i18n.js';
import { live, useLive } from '../live.js';
import { h, useRef } from '../preact.js';
import { useList } from '../resource.js';
import { handing, href, route, setQuery } from '../router.js';
import { Button, Card, Delivered, Empty, Id, Notice, Outcome, Text } from './basic.js';
import { Code, Json } from './code.js';
import { Dialog } from './dialog.js';
import { Filter, Select } from './field.js';
import { Icon } from './icon.js';
import { table } from './table.js';

/** @typedef {import('../types.js').RecentCall} Entry */
/** A call that a form begins with. @typedef {{service: string, params?: string, isCut?: boolean}} Repeated */

const OUTCOMES = ['succeeded', 'failed', 'invalid', 'unknown_device', 'unknown_service', 'offline', 'overloaded', 'cancelled', 'timed_out', 'lost', 'unavailable'];
const VIAS = { rest: 'REST', mcp: 'MCP', chat: 'NPC' };
const FILTERS = ['device', 'service', 'outcome', 'caller'];

/** A link to the page of the device on which a call can be repeated. @param {Entry} entry */
const again = (entry) => handing(href(`/devices/${encodeURIComponent(entry.device_id)}`, { service: entry.service }), /** @type {Repeated} */ ({ service: entry.service, params: entry.params, isCut: entry.params_cut }));

/** @param {{device?: string, limit: number}} props one device's, or with a filter all */
export function Journal({ device, limit }) {
  const { query } = route.value;
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? '']));
  const list = useList('/v1/calls/recent', 'items', { ...filter, ...(device && { device }) }, limit);
  // An entry may be written a little after its event.
  useLive(list.reload);
  useLive(list.reload, [device ? `call:${device}` : 'call']);
  /** @type {Entry[] | undefined} */
  const items = list.data?.items;
  const left = list.data?.page.left_out ?? 0;
  // The entry that was opened stays, also once it is no longer among the newest.
  const wanted = query.get('entry');
  const opened = useRef(/** @type {Entry | undefined} */ (undefined));
  opened.current = items?.find((each) => each.id === wanted) ?? (opened.current?.id === wanted ? opened.current : undefined);
  const open = opened.current;
  const paused = live.paused.value;
  const filtered = FILTERS.some((name) => filter[name]);
  return h('div', { class: 'stack' },
    h('div', { class: 'toolbar flush' },
      !device && h(Filter, { label: t('calls.device'), name: 'device', value: filter.device ?? '' }),
      h(Filter, { label: t('calls.service'), name: 'service', value: filter.service ?? '' }),
      h(Select, { 'aria-label': t('journal.outcome'), class: 'select short', value: filter.outcome ?? '', onChange: (outcome) => setQuery({ outcome }), options: [{ value: '', label: t('journal.outcome.all') }, ...OUTCOMES.map((value) => ({ value, label: maybe(`outcome.${value}`) ?? value }))] }),
      filter.caller && h(Button, { small: true, icon: 'cross', onClick: () => setQuery({ caller: undefined }) }, t('journal.caller.only', { name: items?.[0]?.caller.name ?? filter.caller })),
      h('span', { class: 'grow' }),
      h(Button, { small: true, icon: paused ? 'play' : 'pause', onClick: () => live.pause(!paused) }, t(paused ? 'live.resume' : 'live.pause'))),
    wanted && items && !open && h(Notice, { role: 'status', actions: h(Button, { small: true, onClick: () => setQuery({ entry: undefined }) }, t('act.dismiss')) }, t('journal.gone')),
    left > 0 && h('p', { class: 'small soft row' }, h(Icon, { name: 'info' }), t('journal.left', { n: left })),
    h(Card, { flush: true }, table({
      label: t('journal.title'), columns: columns(device === undefined), items, id: (entry) => entry.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && limit < 200 && list.more,
      empty: filtered
        ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text'), action: h(Button, { onClick: () => setQuery(Object.fromEntries(FILTERS.map((name) => [name, undefined]))) }, t('list.clear')) })
        : h(Empty, { title: t('journal.none'), text: t('journal.none.text') }),
    })),
    open && h(Details, { entry: open }));
}

/** @param {boolean} ofAll @returns {import('./table.js').Column<Entry>[]} */
function columns(ofAll) {
  return [
    { title: t('calls.service'), width: 120, cell: (entry) => h('button', { type: 'button', class: 'link mono break', 'aria-haspopup': 'dialog', onClick: () => setQuery({ entry: entry.id }) }, h(Text, null, entry.service)) },
    { title: t('journal.outcome'), width: 90, cell: (entry) => h(Outcome, { outcome: entry.outcome }) },
    ...(ofAll ? [{ title: t('calls.device'), width: 90, cell: (/** @type {Entry} */ entry) => h(Id, { id: entry.device_id, to: `/devices/${encodeURIComponent(entry.device_id)}` }) }] : []),
    { title: t('journal.caller'), width: 110, cell: (entry) => h(Caller, { entry }) },
    { title: t('calls.delivered'), width: 80, wide: true, cell: (entry) => h('span', { class: 'soft' }, h(Delivered, { delivered: entry.delivered })) },
    { title: t('calls.ended'), width: 80, cell: (entry) => h('time', { class: 'soft number nowrap', dateTime: entry.ended_at, title: exact(entry.ended_at) }, clock(entry.ended_at)) },
    { title: t('calls.took'), width: 60, number: true, cell: (entry) => h('span', { class: 'number nowrap' }, duration(entry.elapsed_ms)) },
    { title: t('journal.size'), width: 60, number: true, wide: true, cell: (entry) => h('span', { class: 'number soft nowrap' }, size(entry.params_bytes + entry.result_bytes)) },
    { title: t('keyring.acts'), width: 30, number: true, wide: true, cell: (entry) => may('call') && h(Button, { small: true, kind: 'plain', icon: 'again', label: `${t('call.again')}: ${entry.service}`, ...again(entry) }) },
  ];
}

/** Who called, and by which way; chosen, it is the filter. @param {{entry: Entry}} props */
function Caller({ entry: { caller, via } }) {
  const name = caller.name || caller.id || t('journal.assistant');
  return h('span', { class: 'row caller' },
    h('span', { class: 'tag' }, VIAS[via] ?? via),
    caller.id ? h('button', { type: 'button', class: 'link break', title: t('journal.caller.filter', { name }), onClick: () => setQuery({ caller: caller.id, entry: undefined }) }, h(Text, null, name)) : name);
}

/** @param {string} text */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {{entry: Entry}} props */
function Details({ entry }) {
  const line = (/** @type {string} */ name, /** @type {any} */ value) => h('div', { key: name }, h('dt', { class: 'soft' }, name), h('dd', null, value));
  const part = (/** @type {string} */ label, /** @type {string | undefined} */ text, /** @type {boolean | undefined} */ cut) => text !== undefined && h('div', { class: 'stack tight' }, h('h3', null, label), cut ? h('div', { class: 'stack tight' }, h('p', { class: 'small soft' }, t('journal.cut')), h(Code, { text, wrap: true, label })) : h(Json, { value: valueOf(text), label }));
  return h(Dialog, { title: h('span', { class: 'mono break' }, h(Text, null, entry.service)), wide: true, onClose: () => setQuery({ entry: undefined }) },
    h('dl', { class: 'facts lines' },
      line(t('journal.outcome'), h('span', { class: 'row' }, h(Outcome, { outcome: entry.outcome }), h('span', { class: 'tag' }, h(Delivered, { delivered: entry.delivered })))),
      line(t('calls.device'), h(Id, { id: entry.device_id, to: `/devices/${encodeURIComponent(entry.device_id)}` })),
      line(t('journal.caller'), h(Caller, { entry })),
      line(t('calls.ended'), exact(entry.ended_at)),
      line(t('calls.took'), duration(entry.elapsed_ms)),
      line(t('journal.sizes'), `${size(entry.params_bytes)} / ${size(entry.result_bytes)}`),
      line(t('call.title'), h(Id, { id: entry.call_id }))),
    part(t('service.params'), entry.params, entry.params_cut),
    part(t('service.result'), entry.result, entry.result_cut),
    entry.params === undefined && h('p', { class: 'small soft row' }, h(Icon, { name: 'info' }), t('journal.private'), ' ', h('a', { href: href('/organisation') }, t('org.title'))),
    h('div', { class: 'actions' }, may('call') && h(Button, { kind: 'primary', icon: 'again', ...again(entry) }, t('call.again'))));
}
