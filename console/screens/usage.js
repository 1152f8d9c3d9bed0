/** Usage: calls, conversations and their cost over time, who causes them, and how much of the quotas is taken. */
import { get } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Head, Text } from '../components/basic.js';
import { Bars } from '../components/chart.js';
import { Select, segmented } from '../components/field.js';
import { Meter } from '../components/meter.js';
import { table } from '../components/table.js';
import { duration, exact, maybe, number, size, t } from '../i18n.js';
import { h } from '../preact.js';
import { useLoad, useResource } from '../resource.js';
import { href, setQuery } from '../router.js';
import { settings } from '../settings.js';
import { csv, download } from '../upload/csv.js';
import { RANGES, rangeOf, series } from '../upload/series.js';

/** @typedef {import('../types.js').Usage} UsageData */
/** @typedef {UsageData['periods'][number]} Period */
/** @typedef {import('../types.js').UsageRow} UsageRow */

/** @type {import('../screens.js').Screen} */
export const usage = { paths: ['/usage'], title: 'usage.title', group: 'manage', icon: 'usage', shortcut: 'u', view: UsagePage };

const DIMENSIONS = /** @type {const} */ (['device', 'service', 'npc']);

/** @param {{query: URLSearchParams}} props */
function UsagePage({ query }) {
  const range = rangeOf(query.get('range'));
  const granularity = range.hours && (!range.days || query.get('by') === 'hour') ? 'hour' : 'day';
  const data = useLoad(async (stop) => /** @type {UsageData} */ (await get('/v1/usage', { ...range.span(Date.now()), granularity }, stop)), [range.id, granularity]);
  const value = data.data;
  const save = () => {
    if (!value) return;
    const outcomes = [...new Set(value.periods.flatMap((period) => Object.keys(period.by_outcome)))].sort();
    download(`usage-${range.id}-${granularity}.csv`, csv(['start', 'calls', ...outcomes, 'milliseconds', 'turns', 'prompt_tokens', 'completion_tokens', 'cost', 'speech_milliseconds'],
      value.periods.map((period) => [period.start, period.calls, ...outcomes.map((outcome) => period.by_outcome[outcome] ?? 0), period.milliseconds, period.turns, period.prompt_tokens, period.completion_tokens, period.cost, period.speech_milliseconds])));
  };
  return h('div', { class: 'stack wide' },
    h(Head, { title: t('usage.title'), text: t('usage.text') },
      h(Select, { 'aria-label': t('usage.range'), class: 'select date', value: range.id, onChange: (id) => setQuery({ range: id === 'month' ? '' : id }), options: RANGES.map(({ id }) => ({ value: id, label: t(`usage.range.${id}`) })) }),
      range.hours && range.days && segmented({ label: t('usage.granularity'), value: granularity, onChange: (by) => setQuery({ by: by === 'hour' ? 'hour' : '' }), options: [{ value: 'day', label: t('usage.by.day') }, { value: 'hour', label: t('usage.by.hour') }] }),
      h(Button, { icon: 'download', disabled: !value || value.periods.length === 0, onClick: save }, 'CSV')),
    data.error && !value ? h(Failure, { error: data.error, retry: data.reload }) : h(Totals, { usage: value }),
    value && value.periods.length === 0 ? h(Card, { flush: true }, h(Empty, { title: t('usage.none'), text: t('usage.none.text') })) : h(Charts, { usage: value }),
    h(By, { range: range.id, dimension: query.get('dimension') ?? 'device' }),
    h(Quotas, { usage: value }));
}

/** @param {{usage: UsageData | undefined}} props */
function Totals({ usage: data }) {
  const total = data?.total;
  const stats = [
    [t('usage.calls'), total && number(total.calls)],
    [t('usage.succeeded'), total && (total.calls > 0 ? number((total.by_outcome.succeeded ?? 0) / total.calls, { style: 'percent', maximumFractionDigits: 1 }) : '–')],
    [t('usage.turns'), total && number(total.turns)],
    [t('usage.tokens'), total && number(total.prompt_tokens + total.completion_tokens)],
    [t('usage.cost'), total && cost(total.cost)],
    [t('usage.devices'), data && number(data.now.devices_seen)],
  ];
  return h('div', { class: 'card' }, h('dl', { class: 'stats' }, stats.map(([name, value]) => h('div', { key: name }, h('dt', null, name), h('dd', null, value === undefined ? h(Bone, { width: 56 }) : value)))));
}

const cost = (/** @type {number} */ value) => number(value, { minimumFractionDigits: 2, maximumFractionDigits: 4 });

/** @type {{id: 'calls' | 'mean' | 'turns' | 'tokens' | 'cost' | 'speech', least: number, format: (value: number) => string, parts: {name: import('../i18n.js').Key, tone: 'good' | 'bad' | 'more', of: (period: Period) => number}[]}[]} */
const CHARTS = [
  { id: 'calls', least: 2, format: (value) => number(value), parts: [{ name: 'usage.succeeded', tone: 'good', of: (each) => each.by_outcome.succeeded ?? 0 }, { name: 'usage.others', tone: 'bad', of: (each) => each.calls - (each.by_outcome.succeeded ?? 0) }] },
  { id: 'mean', least: 1, format: duration, parts: [{ name: 'usage.mean', tone: 'good', of: (each) => (each.calls > 0 ? each.milliseconds / each.calls : 0) }] },
  { id: 'turns', least: 2, format: (value) => number(value), parts: [{ name: 'usage.turns', tone: 'good', of: (each) => each.turns }] },
  { id: 'tokens', least: 2, format: (value) => number(value), parts: [{ name: 'usage.prompt', tone: 'good', of: (each) => each.prompt_tokens }, { name: 'usage.completion', tone: 'more', of: (each) => each.completion_tokens }] },
  { id: 'cost', least: 0.000001, format: cost, parts: [{ name: 'usage.cost', tone: 'good', of: (each) => each.cost }] },
  { id: 'speech', least: 1, format: duration, parts: [{ name: 'usage.speech', tone: 'good', of: (each) => each.speech_milliseconds }] },
];

/** @param {{usage: UsageData | undefined}} props */
function Charts({ usage: data }) {
  if (!data) return h('div', { class: 'charts' }, CHARTS.slice(0, 2).map(({ id }) => h(Card, { key: id, title: t(`usage.chart.${id}`) }, h('span', { class: 'bone chart-bone' }))));
  const points = series(data);
  return h('div', { class: 'charts' }, CHARTS.map((chart) => h(Chart, { key: chart.id, chart, points, hourly: data.granularity === 'hour' })));
}

/** A time on the axis. @param {number} start @param {boolean} hourly */
function axis(start, hourly) {
  const locale = settings.value.language === 'zh' ? 'zh-Hans' : 'en';
  // Days are those of UTC, whichever zone the page shows.
  const timeZone = !hourly || settings.value.zone === 'utc' ? 'UTC' : undefined;
  return new Intl.DateTimeFormat(locale, hourly ? { hour: '2-digit', minute: '2-digit', timeZone } : { month: 'short', day: 'numeric', timeZone }).format(new Date(start));
}

/** One chart, if there is anything to show. @param {{chart: typeof CHARTS[number], points: {start: number, period: Period | undefined}[], hourly: boolean}} props */
function Chart({ chart, points, hourly }) {
  const values = points.map(({ start, period }) => ({ start, period, values: chart.parts.map((part) => (period ? part.of(period) : 0)) }));
  const used = values.filter(({ period, values: each }) => period && each.some((value) => value > 0));
  const title = t(`usage.chart.${chart.id}`);
  const time = (/** @type {number} */ start) => (hourly ? exact(new Date(start).toISOString()).replace(/:\d\d(?=\D*$)/, '') : axis(start, false));
  if (used.length === 0) return null;
  return h(Card, { title },
    h('div', { class: 'stack' },
      h(Bars, { label: title, least: chart.least, ...(chart.id !== 'calls' && chart.id !== 'turns' && chart.id !== 'tokens' && { format: chart.format }), bars: values.map((each) => ({ label: axis(each.start, hourly), parts: chart.parts.map((part, index) => ({ value: each.values[index] ?? 0, tone: part.tone })) })) }),
      chart.parts.length > 1 && h('div', { class: 'row legend small soft' }, chart.parts.map((part) => h('span', { key: part.name, class: part.tone }, t(part.name)))),
      h('details', { class: 'small' }, h('summary', { class: 'soft' }, t('usage.table')),
        h('div', { class: 'table-box', tabIndex: 0, role: 'group', 'aria-label': title }, h('table', { class: 'table compact plain-table' },
          h('thead', null, h('tr', null, h('th', { scope: 'col' }, t(hourly ? 'usage.hour' : 'usage.day')), chart.parts.map((part) => h('th', { key: part.name, scope: 'col', class: 'number' }, t(part.name))))),
          h('tbody', null, used.map((each) => h('tr', { key: each.start }, h('td', null, time(each.start)), each.values.map((value, index) => h('td', { key: index, class: 'number' }, chart.format(value)))))))))));
}

/** Who causes it. @param {{range: string, dimension: string}} props */
function By({ range, dimension: wanted }) {
  const dimension = DIMENSIONS.find((each) => each === wanted) ?? 'device';
  const data = useResource('/v1/usage/by', { dimension, ...rangeOf(range).span(Math.ceil(Date.now() / 3_600_000) * 3_600_000), limit: 20 });
  /** @type {UsageRow[] | undefined} */
  const rows = data.data && [...data.data.rows, ...(data.data.other ? [data.data.other] : [])];
  const choice = segmented({ label: t('usage.dimension'), value: dimension, onChange: (value) => setQuery({ dimension: value === 'device' ? '' : value }), options: DIMENSIONS.map((value) => ({ value, label: t(`usage.by.${value}`) })) });
  const place = dimension === 'device' ? '/devices' : dimension === 'npc' ? '/npcs' : undefined;
  return h(Card, { title: t('usage.who'), actions: choice, flush: true }, table({
    label: t('usage.who'), items: rows, id: (row) => row.key, error: data.error, reload: data.reload, bones: 4,
    empty: h(Empty, { picture: false, title: t('usage.none'), text: t('usage.none.text') }),
    columns: [
      { title: t(`usage.by.${dimension}`), width: 130, cell: (row) => (row.key === '' ? h('span', { class: 'soft' }, t('usage.other')) : place ? h('a', { class: 'main mono break', href: href(`${place}/${encodeURIComponent(row.key)}`) }, h(Text, null, row.key)) : h('span', { class: 'mono break' }, h(Text, null, row.key))) },
      { title: t('usage.calls'), width: 60, number: true, cell: (row) => number(row.calls) },
      { title: t('usage.succeeded'), width: 60, number: true, wide: true, cell: (row) => (row.calls > 0 ? number((row.by_outcome.succeeded ?? 0) / row.calls, { style: 'percent', maximumFractionDigits: 1 }) : '–') },
      { title: t('usage.mean'), width: 60, number: true, wide: true, cell: (row) => (row.calls > 0 ? duration(row.milliseconds / row.calls) : '–') },
      { title: t('usage.turns'), width: 50, number: true, wide: true, cell: (row) => number(row.turns) },
      { title: t('usage.tokens'), width: 60, number: true, wide: true, cell: (row) => number(row.prompt_tokens + row.completion_tokens) },
      { title: t('usage.cost'), width: 60, number: true, wide: true, cell: (row) => cost(row.cost) },
    ],
  }));
}

/** @param {{usage: UsageData | undefined}} props */
function Quotas({ usage: data }) {
  const write = (/** @type {string} */ name, /** @type {number} */ value) => (name.endsWith('_bytes') ? size(value) : number(value, { maximumFractionDigits: 2 }));
  return h(Card, { title: t('usage.quotas') }, !data ? h(Bone, { width: 300 }) : h('ul', { class: 'quotas' }, data.quotas.map(({ quota, used, limit }) => {
    const name = maybe(`usage.quota.${quota}`) ?? quota;
    const share = limit ? used / limit : 0;
    return h('li', { key: quota, class: 'stack tight' }, h('strong', null, name),
      h(Meter, { label: name, share: Math.min(1, share), tone: share >= 1 ? 'bad' : share >= 0.8 ? 'warn' : undefined, left: limit === null || limit === undefined ? t('usage.unlimited', { used: write(quota, used) }) : t('usage.of', { used: write(quota, used), limit: write(quota, limit) }), right: limit ? [share >= 1 ? t('usage.full') : share >= 0.8 ? t('usage.nearly') : '', ' ', number(share, { style: 'percent' })] : undefined }));
  })));
}
