/** Texts in the chosen language, and numbers, times and sizes as it writes them. */
import { signal } from './preact.js';
import { settings } from './settings.js';
import { en } from './text/en.js';
import { zh } from './text/zh.js';

/** @typedef {keyof typeof en} Key */
/** @typedef {Record<string, string|number>} Values */
/** A text, or one for each plural category of `n`. @typedef {string | {one?: string, other: string}} Entry */

/** The time that relative times refer to; advances while the page is open. */
export const now = signal(Date.now());
if (typeof document === 'object') setInterval(() => { now.value = Date.now(); }, 10_000);

const locale = () => (settings.value.language === 'zh' ? 'zh-Hans' : 'en');

/**
 * The text of a key; `{name}` stands for a value, and `n` chooses the plural.
 * @param {Key} key @param {Values} [values]
 */
export function t(key, values) {
  return fill(/** @type {Entry} */ ((settings.value.language === 'zh' ? zh : en)[key] ?? en[key]), locale(), values);
}

/** The text of a key that data names, or undefined. @param {string} key */
export function maybe(key) {
  return key in en ? t(/** @type {Key} */ (key)) : undefined;
}

/** @param {Entry} entry @param {string} locale @param {Values} [values] */
export function fill(entry, locale, values = {}) {
  const rule = typeof entry === 'string' ? 'other' : new Intl.PluralRules(locale).select(Number(values.n));
  const text = typeof entry === 'string' ? entry : (rule === 'one' && entry.one) || entry.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === 'number' ? new Intl.NumberFormat(locale).format(value) : value;
  });
}

/** @param {number} value @param {Intl.NumberFormatOptions} [options] */
export const number = (value, options) => new Intl.NumberFormat(locale(), options).format(value);

/** A duration in the unit that reads best. @param {number} ms */
export function duration(ms) {
  if (ms < 1) return `${number(ms, { maximumFractionDigits: 2 })} ms`;
  if (ms < 1_000) return `${number(ms, { maximumFractionDigits: ms < 10 ? 1 : 0 })} ms`;
  if (ms < 90_000) return `${number(ms / 1_000, { maximumFractionDigits: 1 })} s`;
  return `${number(ms / 60_000, { maximumFractionDigits: 1 })} min`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${number(bytes)} B`;
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), 4);
  return `${number(bytes / 1024 ** power, { maximumFractionDigits: 1 })} ${['', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`;
}

/** The exact time, in the chosen zone. @param {string} time */
export function exact(time) {
  const timeZone = settings.value.zone === 'utc' ? 'UTC' : undefined;
  const format = new Intl.DateTimeFormat(locale(), { dateStyle: 'medium', timeStyle: 'medium', timeZone });
  return settings.value.zone === 'utc' ? `${format.format(new Date(time))} UTC` : format.format(new Date(time));
}

/** The time of day, in the chosen zone. @param {string} time */
export function clock(time) {
  const timeZone = settings.value.zone === 'utc' ? 'UTC' : undefined;
  return new Intl.DateTimeFormat(locale(), { timeStyle: 'medium', timeZone }).format(new Date(time));
}

const STEPS = /** @type {const} */ ([['year', 31_557_600], ['month', 2_629_800], ['day', 86_400], ['hour', 3_600], ['minute', 60]]);

/** The time relative to now, such as "3 minutes ago". @param {string} time */
export function relative(time) {
  const seconds = (new Date(time).getTime() - Math.max(now.value, Date.now())) / 1_000;
  if (Math.abs(seconds) < 10) return t('time.now');
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: 'auto', style: 'long' });
  for (const [unit, length] of STEPS) {
    if (Math.abs(seconds) >= length) return format.format(Math.round(seconds / length), unit);
  }
  return format.format(Math.round(seconds), 'second');
}

/** Sorts texts as people expect, numbers in them by value. */
export const compare = (/** @type {string} */ a, /** @type {string} */ b) => new Intl.Collator(locale(), { numeric: true }).compare(a, b);
