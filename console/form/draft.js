/**
 * What a person has typed into the fields of a plan, apart from the value that it becomes: a draft
 * can be incomplete or wrong, and is kept as it was typed.
 *
 * Invariant: a field that was left alone is absent from the value; it is never an empty text or list.
 *
 * @typedef {object} Draft
 * @property {string} [text] of texts, numbers and JSON
 * @property {boolean} [set] that an empty text is meant
 * @property {boolean} [flag] of booleans
 * @property {number} [chosen] the index of an option or a variant
 * @property {boolean} [isNull]
 * @property {Draft[]} [items]
 * @property {Record<string, Draft>} [members]
 * @property {Record<string, unknown>} [extra] members that the schema does not name
 * @property {boolean} [added] that an optional group or list is there
 * @property {Draft} [inner] of the chosen variant
 *
 * @typedef {import('./schema.js').Node} Node
 * @typedef {{pointer: string, key: import('../i18n.js').Key, values?: Record<string, string | number>}} Fault
 * @typedef {{value: unknown, faults: Fault[]}} Reading
 */
import { isObject } from './schema.js';

/** Stands for a value that is not there. */
export const ABSENT = Symbol('absent');

/** The draft of a field before the first change. @param {Node} node @param {boolean} required @returns {Draft} */
export function blank(node, required) {
  if (!required) return {};
  switch (node.kind) {
    case 'group': return { added: true, members: Object.fromEntries(node.members.filter((member) => member.required).map((member) => [member.name, blank(member.node, true)])) };
    case 'list': return { added: true, items: Array.from({ length: Math.min(node.minItems ?? 0, 20) }, () => blank(node.items, true)) };
    case 'variants': return { chosen: 0, inner: blank(/** @type {any} */ (node.variants[0]).node, true) };
    case 'choice': return node.options.length === 1 ? { chosen: 0 } : {};
    default: return {};
  }
}

/** The value of a draft, or what is wrong with it. @param {Node} node @param {Draft} draft @param {boolean} required @param {string} [pointer] @returns {Reading} */
export function read(node, draft, required, pointer = '') {
  if (draft.isNull) return { value: null, faults: [] };
  switch (node.kind) {
    case 'constant': return { value: required || draft.flag ? node.value : ABSENT, faults: [] };
    case 'text': return readText(node, draft, required, pointer);
    case 'number': return readNumber(node, draft, required, pointer);
    case 'boolean': return draft.flag === undefined ? missing(required, pointer) : { value: draft.flag, faults: [] };
    case 'choice': return draft.chosen === undefined ? missing(required, pointer) : { value: node.options[draft.chosen]?.value, faults: [] };
    case 'json': return readJson(draft, required, pointer);
    case 'list': return readList(node, draft, required, pointer);
    case 'group': return readGroup(node, draft, required, pointer);
    case 'variants': {
      const chosen = draft.chosen === undefined ? undefined : node.variants[draft.chosen];
      return chosen ? read(chosen.node, draft.inner ?? {}, true, pointer) : missing(required, pointer);
    }
  }
}

/** @param {boolean} required @param {string} pointer @returns {Reading} */
const missing = (required, pointer) => ({ value: ABSENT, faults: required ? [{ pointer, key: 'form.required' }] : [] });

/** @param {string} pointer @param {import('../i18n.js').Key} key @param {Record<string, string | number>} [values] @returns {Reading} */
const wrong = (pointer, key, values) => ({ value: ABSENT, faults: [{ pointer, key, values }] });

/** @param {import('./schema.js').TextNode} node @param {Draft} draft @param {boolean} required @param {string} pointer @returns {Reading} */
function readText(node, draft, required, pointer) {
  const text = draft.text ?? '';
  if (text === '' && !draft.set && !required) return { value: ABSENT, faults: [] };
  if (text === '' && !draft.set && (node.minLength ?? 0) > 0) return missing(true, pointer);
  const length = [...text].length;
  if (node.minLength !== undefined && length < node.minLength) return wrong(pointer, 'form.short', { n: node.minLength });
  if (node.maxLength !== undefined && length > node.maxLength) return wrong(pointer, 'form.long', { n: node.maxLength });
  return { value: text, faults: [] };
}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

/** @param {import('./schema.js').NumberNode} node @param {Draft} draft @param {boolean} required @param {string} pointer @returns {Reading} */
function readNumber(node, draft, required, pointer) {
  const text = (draft.text ?? '').trim();
  if (text === '') return missing(required, pointer);
  const value = NUMBER.test(text) ? Number(text) : Number.NaN;
  if (!Number.isFinite(value)) return wrong(pointer, node.integer ? 'form.integer' : 'form.number');
  if (node.integer && !Number.isInteger(value)) return wrong(pointer, 'form.integer');
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && !/[.eE]/.test(text)) return wrong(pointer, 'form.precision');
  if (node.minimum !== undefined && value < node.minimum) return wrong(pointer, 'form.minimum', { limit: node.minimum });
  if (node.maximum !== undefined && value > node.maximum) return wrong(pointer, 'form.maximum', { limit: node.maximum });
  if (node.above !== undefined && value <= node.above) return wrong(pointer, 'form.above', { limit: node.above });
  if (node.below !== undefined && value >= node.below) return wrong(pointer, 'form.below', { limit: node.below });
  return { value, faults: [] };
}

/** @param {Draft} draft @param {boolean} required @param {string} pointer @returns {Reading} */
function readJson(draft, required, pointer) {
  const text = (draft.text ?? '').trim();
  if (text === '') return missing(required, pointer);
  try {
    return { value: JSON.parse(text), faults: [] };
  } catch {
    return wrong(pointer, 'form.json');
  }
}

/** @param {import('./schema.js').ListNode} node @param {Draft} draft @param {boolean} required @param {string} pointer @returns {Reading} */
function readList(node, draft, required, pointer) {
  const items = draft.items ?? [];
  if (!draft.added && items.length === 0 && !required) return { value: ABSENT, faults: [] };
  const readings = items.map((item, index) => read(node.items, item, true, `${pointer}/${index}`));
  const faults = readings.flatMap((reading) => reading.faults);
  if (node.minItems !== undefined && items.length < node.minItems) faults.push({ pointer, key: 'form.few', values: { n: node.minItems } });
  if (node.maxItems !== undefined && items.length > node.maxItems) faults.push({ pointer, key: 'form.many', values: { n: node.maxItems } });
  return { value: readings.map((reading) => reading.value).filter((value) => value !== ABSENT), faults };
}

/** @param {import('./schema.js').GroupNode} node @param {Draft} draft @param {boolean} required @param {string} pointer @returns {Reading} */
function readGroup(node, draft, required, pointer) {
  if (!draft.added && !required) return { value: ABSENT, faults: [] };
  /** @type {[string, unknown][]} */
  const entries = [];
  /** @type {Fault[]} */
  const faults = [];
  for (const member of node.members) {
    const reading = read(member.node, draft.members?.[member.name] ?? {}, member.required, `${pointer}/${escape(member.name)}`);
    faults.push(...reading.faults);
    if (reading.value !== ABSENT) entries.push([member.name, reading.value]);
  }
  entries.push(...Object.entries(draft.extra ?? {}));
  return { value: Object.fromEntries(entries), faults };
}

/** A name as a part of a JSON Pointer. @param {string} name */
export const escape = (name) => name.replace(/~/g, '~0').replace(/\//g, '~1');

/** The draft of a value, or undefined if the fields cannot show it. @param {Node} node @param {unknown} value @returns {Draft | undefined} */
export function write(node, value) {
  if (value === null && node.nullable) return { isNull: true };
  switch (node.kind) {
    case 'constant': return same(value, node.value) ? { flag: true } : undefined;
    case 'text': return typeof value === 'string' ? { text: value, set: true } : undefined;
    case 'number': return typeof value === 'number' ? { text: String(value) } : undefined;
    case 'boolean': return typeof value === 'boolean' ? { flag: value } : undefined;
    case 'json': return { text: JSON.stringify(value, null, 2) };
    case 'choice': {
      const chosen = node.options.findIndex((option) => same(option.value, value));
      return chosen < 0 ? undefined : { chosen };
    }
    case 'list': {
      if (!Array.isArray(value)) return undefined;
      const items = value.map((item) => write(node.items, item));
      return items.includes(undefined) ? undefined : { added: true, items: /** @type {Draft[]} */ (items) };
    }
    case 'group': return writeGroup(node, value);
    case 'variants': {
      for (const [chosen, variant] of node.variants.entries()) {
        const inner = write(variant.node, value);
        if (inner && read(variant.node, inner, true).faults.length === 0) return { chosen, inner };
      }
      return undefined;
    }
  }
}

/** @param {import('./schema.js').GroupNode} node @param {unknown} value @returns {Draft | undefined} */
function writeGroup(node, value) {
  if (!isObject(value)) return undefined;
  /** Entries, because a member may have the name of a setter. @type {[string, Draft][]} */
  const members = [];
  const names = new Set(node.members.map((member) => member.name));
  for (const member of node.members) {
    if (!Object.hasOwn(value, member.name)) {
      if (member.required) members.push([member.name, blank(member.node, true)]);
      continue;
    }
    const draft = write(member.node, value[member.name]);
    if (!draft) return undefined;
    members.push([member.name, draft]);
  }
  const extra = Object.fromEntries(Object.entries(value).filter(([name]) => !names.has(name)));
  if (!node.open && Object.keys(extra).length > 0) return undefined;
  return { added: true, members: Object.fromEntries(members), extra };
}

/** Whether two JSON values are equal. @param {unknown} a @param {unknown} b */
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
