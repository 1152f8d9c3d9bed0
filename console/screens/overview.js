/** The first page: which devices are there, how calls go, what needs attention. */
import { get } from '../api.js';
import { Announcer, Button, Card, Empty, Failure, Head, Id, Outcome, Text, Time } from '../components/basic.js';
import { Bars } from '../components/chart.js';
import { Events } from '../components/events.js';
import { Icon } from '../components/icon.js';
import { LampBoard } from '../components/lamps.js';
import { clock, duration, now, number, relative, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h } from '../preact.js';
import { useLoad, useResource } from '../resource.js';
import { href } from '../router.js';

/** @typedef {import('../types.js').Device} Device */
/** @typedef {import('../types.js').Usage} Usage */

/** @type {import('../screens.js').Screen} */
export const overview = { paths: ['/'], title: 'overview.title', group: 'run', icon: 'overview', shortcut: 'o', view: Overview };

const HOUR_MS = 3_600_000;
const CALLS_SHOWN = 8;
/** The newest calls that the percentile is of. */
const P95_CALLS = 100;
/** Of fewer calls a percentile is little more than the slowest one. */
const MIN_P95_CALLS = 20;

function Overview() {
  const devices = useResource('/v1/devices', { services: 'none', limit: 200 });
  const counts = useLoad(counted, []);
  const usage = useLoad(dayOfUsage, []);
  const queued = useResource('/v1/calls', { state: 'queued', limit: 200 });
  const latest = useResource('/v1/calls/recent', { limit: P95_CALLS });
  useLive(() => {
    devices.reload();
    counts.reload();
  }, ['device']);
  useLive(() => {
    usage.reload();
    queued.reload();
    latest.reload();
  });
  const list = /** @type {Device[] | undefined} */ (devices.data?.devices);
  const known = counts.data?.known ?? list?.length;
  const online = counts.data?.online ?? list?.filter((device) => device.online).length;
  if (list && known === 0) return h(Welcome, null);
  return h('div', { class: 'stack wide' },
    h('header', { class: 'headline' },
      h('h1', { class: 'display' }, known === undefined || online === undefined ? h('span', { class: 'bone headline-bone' }) : t('overview.online', { online, n: known })),
      h(Announcer, { text: known === undefined || online === undefined ? undefined : t('overview.online', { online, n: known }) }),
      h(Failure, { error: list ? undefined : devices.error, retry: devices.reload }),
      h(LampBoard, { devices: list, total: known })),
    h(Day, { usage: usage.data, error: usage.error, reload: usage.reload, queued: queued.data, latest: latest.data?.items }),
    h('div', { class: 'columns even' }, h('div', { class: 'stack' }, h(Attention, null), h(Recent, null)), h(Events, null)));
}

function Welcome() {
  return h('div', null, h(Head, { title: t('overview.title') }),
    h(Card, { flush: true }, h(Empty, { title: t('overview.none'), text: t('overview.none.text'), action: h(Button, { kind: 'primary', href: href('/welcome') }, t('overview.connect')) })));
}

/** @param {AbortSignal} stop @returns {Promise<{online: number, known: number} | undefined>} */
async function counted(stop) {
  const counts = await get('/v1/devices/counts', {}, stop);
  return typeof counts?.known === 'number' ? counts : undefined;
}

/** @param {AbortSignal} stop @returns {Promise<Usage>} */
function dayOfUsage(stop) {
  const to = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
  return get('/v1/usage', { from: new Date(to - 24 * HOUR_MS).toISOString(), to: new Date(to).toISOString(), granularity: 'hour' }, stop);
}

/**
 * The time within which 95 of 100 calls have ended, in milliseconds; undefined of too few calls.
 * @param {{elapsed_ms: number}[]} calls
 */
export function p95(calls) {
  if (calls.length < MIN_P95_CALLS) return undefined;
  return calls.map((call) => call.elapsed_ms).sort((a, b) => a - b)[Math.ceil(calls.length * 0.95) - 1];
}

/** The numbers of the last day, and the calls of each hour. @param {{usage: Usage | undefined, error: Error | undefined, reload: () => void, queued: any, latest: import('../types.js').RecentCall[] | undefined}} props */
function Day({ usage, error, reload, queued, latest }) {
  const total = usage?.total;
  const succeeded = total?.by_outcome.succeeded ?? 0;
  const slow = latest && p95(latest);
  const stats = [
    { label: t('overview.calls'), value: total && number(total.calls), to: '/calls/recent' },
    { label: t('overview.succeeded'), value: total && (total.calls > 0 ? number(succeeded / total.calls, { style: 'percent', maximumFractionDigits: 1 }) : '–'), to: '/calls/recent' },
    { label: t('overview.mean'), value: total && (total.calls > 0 ? duration(total.milliseconds / total.calls) : '–'), to: '/calls/recent' },
    { label: latest && slow !== undefined ? t('overview.p95', { n: latest.length }) : t('overview.p95.few', { n: MIN_P95_CALLS }), value: latest && (slow === undefined ? '–' : duration(slow)), to: '/calls/recent' },
    { label: t('overview.queued'), value: queued && number(queued.calls.length) + (queued.next_cursor ? '+' : ''), to: '/calls?state=queued' },
    { label: t('overview.turns'), value: total && number(total.turns) },
    { label: t('overview.cost'), value: total && number(total.cost, { minimumFractionDigits: 2, maximumFractionDigits: 4 }) },
  ];
  return h(Card, { title: t('overview.day'), flush: true },
    error && !usage ? h('div', { class: 'body' }, h(Failure, { error, retry: reload })) : h('div', null,
      h('dl', { class: 'stats' }, stats.map((stat) => h('div', { key: stat.label },
        h('dt', null, stat.label),
        h('dd', null, stat.value === undefined ? h('span', { class: 'bone' }) : stat.to ? h('a', { href: `/console${stat.to}` }, stat.value) : stat.value)))),
      h('div', { class: 'body chart-box' }, usage ? h(Hours, { usage }) : h('span', { class: 'bone chart-bone' }))));
}

/** @param {{usage: Usage}} props */
function Hours({ usage }) {
  if (usage.total.calls === 0) return h('p', { class: 'soft chart-none' }, t('overview.calls.none'));
  const periods = new Map(usage.periods.map((period) => [new Date(period.start).getTime(), period]));
  const first = new Date(usage.from).getTime();
  const hours = Array.from({ length: 24 }, (_, index) => {
    const start = first + index * HOUR_MS;
    const period = periods.get(start);
    const good = period?.by_outcome.succeeded ?? 0;
    return { label: clock(new Date(start).toISOString()).replace(/:\d\d(?=\D*$)/, ''), good, bad: (period?.calls ?? 0) - good };
  });
  return h('div', { class: 'stack' },
    h(Bars, { label: t('overview.calls.chart', { n: usage.total.calls }), bars: hours.map((hour) => ({ label: hour.label, parts: [{ value: hour.good, tone: /** @type {const} */ ('good') }, { value: hour.bad, tone: /** @type {const} */ ('bad') }] })) }),
    h('div', { class: 'row apart small soft' },
      h('div', { class: 'row legend' }, h('span', { class: 'good' }, t('overview.succeeded')), h('span', { class: 'bad' }, t('overview.others')))),
    h('details', { class: 'small' }, h('summary', { class: 'soft' }, t('overview.table')),
      h('table', { class: 'table compact' },
        h('thead', null, h('tr', null, h('th', { scope: 'col' }, t('overview.hour')), h('th', { scope: 'col', class: 'number' }, t('overview.succeeded')), h('th', { scope: 'col', class: 'number' }, t('overview.others')))),
        h('tbody', null, hours.filter((hour) => hour.good + hour.bad > 0).map((hour) => h('tr', { key: hour.label }, h('td', null, hour.label), h('td', { class: 'number' }, number(hour.good)), h('td', { class: 'number' }, number(hour.bad))))))));
}

/** The last calls that have ended. */
function Recent() {
  const recent = useResource('/v1/calls/recent', { limit: CALLS_SHOWN });
  useLive(recent.reload);
  useLive(recent.reload, ['call']);
  const calls = /** @type {import('../types.js').RecentCall[] | undefined} */ (recent.data?.items);
  return h(Card, { title: t('overview.recent'), flush: true },
    recent.error && !calls ? h('div', { class: 'body' }, h(Failure, { error: recent.error, retry: recent.reload }))
      : !calls ? h('div', { class: 'body' }, h('span', { class: 'bone' }))
        : calls.length === 0 ? h('p', { class: 'body soft' }, t('overview.recent.none'))
          : h('ul', { class: 'lines' }, calls.map((call) => h('li', { key: call.id }, h('span', { class: 'row event-line' },
            h('a', { class: 'mono break', href: href('/calls/recent', { entry: call.id }) }, h(Text, null, call.service)),
            h(Id, { id: call.device_id, to: `/devices/${encodeURIComponent(call.device_id)}` }),
            h(Outcome, { outcome: call.outcome }),
            h('span', { class: 'faint small' }, h(Time, { at: call.ended_at })))))));
}

/** What is out of order among webhooks, books and voices. */
function Attention() {
  const troubles = useLoad(findTroubles, []);
  // Deliveries change the health of webhooks without an event.
  useLive(troubles.reload);
  useLive(troubles.reload, ['webhook', 'book', 'voice']);
  now.value;
  return h(Card, { title: t('overview.attention'), flush: true },
    troubles.error && !troubles.data ? h('div', { class: 'body' }, h(Failure, { error: troubles.error, retry: troubles.reload }))
      : !troubles.data ? h('div', { class: 'body' }, h('span', { class: 'bone' }))
        : troubles.data.length === 0 ? h('p', { class: 'body row soft' }, h('span', { class: 'state good' }, h(Icon, { name: 'check' })), t('overview.attention.none'))
          : h('ul', { class: 'lines' }, troubles.data.map((trouble) => h('li', { key: trouble.text }, h('span', { class: 'state warn' }, h(Icon, { name: 'warning' })), h('span', null, h(Text, null, trouble.text), ' ', trouble.since && h('span', { class: 'soft' }, t('overview.since', { when: relative(trouble.since) })))))));
}

/** @param {AbortSignal} stop @returns {Promise<{text: string, since?: string}[]>} */
async function findTroubles(stop) {
  const [webhooks, books, voices] = await Promise.all([get('/v1/webhooks', { limit: 200 }, stop), get('/v1/skills-books', { limit: 200 }, stop), get('/v1/voices', { state: 'failed', limit: 50 }, stop)]);
  return [
    ...webhooks.webhooks.filter((/** @type {any} */ each) => each.failing_since || each.disabled_reason).map((/** @type {any} */ each) => ({ text: t('overview.attention.webhook', { name: each.name || each.url || each.id }), since: each.failing_since ?? undefined })),
    ...books.skills_books.filter((/** @type {any} */ each) => each.state === 'failed').map((/** @type {any} */ each) => ({ text: t('overview.attention.book', { name: each.name }) })),
    ...voices.voices.map((/** @type {any} */ each) => ({ text: t('overview.attention.voice', { name: each.name }) })),
  ];
}
