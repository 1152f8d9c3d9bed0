/** Periods of time: the ranges that a person chooses, and every period of one, also those without use. */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** @typedef {{id: 'today' | 'week' | 'month' | 'quarter' | 'year', length: number, hours: boolean, days: boolean}} Range */

/** @type {Range[]} */
export const RANGES = [
  { id: 'today', length: DAY_MS, hours: true, days: false },
  { id: 'week', length: 7 * DAY_MS, hours: true, days: true },
  { id: 'month', length: 30 * DAY_MS, hours: true, days: true },
  { id: 'quarter', length: 90 * DAY_MS, hours: false, days: true },
  { id: 'year', length: 365 * DAY_MS, hours: false, days: true },
];

/** A range by its id, 30 days without one. `span` has its ends: whole hours, or whole days of UTC. @param {string | null} id */
export function rangeOf(id) {
  const range = RANGES.find((each) => each.id === id) ?? /** @type {Range} */ (RANGES[2]);
  const unit = range.days ? DAY_MS : HOUR_MS;
  return { ...range, span: (/** @type {number} */ now) => {
    const to = Math.ceil(now / unit) * unit;
    return { from: new Date(to - range.length).toISOString(), to: new Date(to).toISOString() };
  } };
}

/**
 * Every period of a range in order.
 * @template {{start: string}} P @param {{from: string, to: string, granularity: string, periods: P[]}} usage @returns {{start: number, period: P | undefined}[]}
 */
export function series({ from, to, granularity, periods }) {
  const unit = granularity === 'hour' ? HOUR_MS : DAY_MS;
  const known = new Map(periods.map((period) => [Date.parse(period.start), period]));
  const result = [];
  for (let start = Math.floor(Date.parse(from) / unit) * unit; start < Date.parse(to); start += unit) result.push({ start, period: known.get(start) });
  return result;
}
