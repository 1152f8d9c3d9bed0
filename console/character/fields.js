/**
 * The settings of a character as a list of fields, and documents as flat maps of them: what has
 * changed, the merge patch for it, and how two changes of the same document meet.
 */

/** @typedef {'line' | 'text' | 'texts' | 'words' | 'number' | 'boolean' | 'picture' | 'voice' | 'books' | 'tools' | 'json'} Kind */
/** @typedef {{path: string, kind: Kind, max?: number, min?: number, step?: number, rows?: number, fallback?: boolean}} Setting */
/** @typedef {'identity' | 'persona' | 'speech' | 'tools' | 'knowledge' | 'model' | 'prompt'} SectionName */
/** The values of a document by the path of their field; a field without a value is undefined. @typedef {Record<string, any>} Flat */

/** @type {{name: SectionName, fields: Setting[]}[]} */
export const SECTIONS = [
  { name: 'identity', fields: [
    { path: 'name', kind: 'line', max: 100 }, { path: 'persona.role', kind: 'line', max: 200 }, { path: 'avatar', kind: 'picture' },
    { path: 'locale', kind: 'line', max: 35 }, { path: 'tags', kind: 'words' },
  ] },
  { name: 'persona', fields: [
    { path: 'persona.description', kind: 'text', max: 16_000, rows: 3 }, { path: 'persona.personality', kind: 'text', max: 8_000 },
    { path: 'persona.dialogue_style', kind: 'text', max: 4_000 }, { path: 'persona.greeting', kind: 'texts', max: 8_000 },
    { path: 'persona.scenario', kind: 'text', max: 8_000 }, { path: 'persona.backstory', kind: 'text', max: 16_000 },
    { path: 'persona.example_dialogue', kind: 'text', max: 16_000 }, { path: 'persona.forbidden_topics', kind: 'words' },
    { path: 'persona.system_prompt', kind: 'text', max: 32_000 },
  ] },
  { name: 'speech', fields: [
    { path: 'voice.voice_id', kind: 'voice' }, { path: 'voice.rate', kind: 'number', min: 0.25, max: 4, step: 0.05 },
    { path: 'voice.pitch', kind: 'number', min: 0.25, max: 4, step: 0.05 }, { path: 'voice.volume', kind: 'number', min: 0, max: 4, step: 0.05 },
    { path: 'conversation.barge_in', kind: 'boolean', fallback: true },
  ] },
  { name: 'tools', fields: [{ path: 'tools.allow', kind: 'tools' }, { path: 'tools.deny', kind: 'tools' }] },
  { name: 'knowledge', fields: [
    { path: 'skills_book_ids', kind: 'books' }, { path: 'memory.from_conversations', kind: 'boolean', fallback: true },
    { path: 'memory.retention_days', kind: 'number', min: 1, max: 36_500, step: 1 },
  ] },
  { name: 'model', fields: [
    { path: 'model.provider', kind: 'line', max: 64 }, { path: 'model.model', kind: 'line', max: 128 },
    { path: 'model.temperature', kind: 'number', min: 0, max: 2, step: 0.1 }, { path: 'model.max_tokens', kind: 'number', min: 1, max: 1_000_000, step: 1 },
  ] },
  { name: 'prompt', fields: [{ path: 'prompt', kind: 'json' }] },
];

export const PATHS = SECTIONS.flatMap((section) => section.fields.map((field) => field.path));
/** Objects that need one of their members: without any, the object itself goes. */
const WHOLE = ['model', 'voice'];

/** @param {any} document @param {string} path */
export function valueAt(document, path) {
  let value = document;
  for (const part of path.split('.')) value = value && typeof value === 'object' && Object.hasOwn(value, part) ? value[part] : undefined;
  return value ?? undefined;
}

/** The fields of a document. @param {any} document @param {string[]} [paths] @returns {Flat} */
export function flatten(document, paths = PATHS) {
  return Object.fromEntries(paths.map((path) => [path, valueAt(document, path)]));
}

/** Whether two JSON values are equal. @param {any} a @param {any} b @returns {boolean} */
export function same(a, b) {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}

/** The paths whose values differ. @param {Flat} before @param {Flat} after */
export const changed = (before, after) => [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((path) => !same(before[path], after[path]));

/** The merge patch (RFC 7396) that makes one flat document of the other. @param {Flat} before @param {Flat} after */
export function patchOf(before, after) {
  /** @type {Record<string, any>} */
  const patch = {};
  for (const path of changed(before, after)) put(patch, path, after[path] ?? null);
  for (const name of WHOLE) {
    const members = Object.keys(after).filter((path) => path.startsWith(`${name}.`));
    if (patch[name] && members.every((path) => after[path] === undefined)) patch[name] = null;
  }
  return patch;
}

/** @param {Record<string, any>} document @param {string} path @param {any} value */
function put(document, path, value) {
  const parts = path.split('.');
  const last = /** @type {string} */ (parts.pop());
  let place = document;
  for (const part of parts) place = place[part] ??= {};
  place[last] = value;
}

/** A flat document as a whole one, without what has no value. @param {Flat} flat */
export function unflatten(flat) {
  const document = {};
  for (const [path, value] of Object.entries(flat)) if (value !== undefined) put(document, path, value);
  return document;
}

/**
 * @typedef {object} Difference
 * @property {string} path
 * @property {any} base what both began with
 * @property {any} mine
 * @property {any} theirs
 * @property {'both' | 'mine' | 'theirs'} by who changed it; `both` only if the results differ
 */

/** What two sides have changed since `base`. @param {Flat} base @param {Flat} mine @param {Flat} theirs @returns {Difference[]} */
export function threeWay(base, mine, theirs) {
  const paths = [...new Set([...changed(base, mine), ...changed(base, theirs)])];
  return paths.filter((path) => !same(mine[path], theirs[path])).map((path) => {
    const byMe = !same(base[path], mine[path]);
    const byThem = !same(base[path], theirs[path]);
    return { path, base: base[path], mine: mine[path], theirs: theirs[path], by: byMe && byThem ? 'both' : byMe ? 'mine' : 'theirs' };
  });
}

/** Theirs, with the values of mine that are to be kept. @param {Flat} mine @param {Flat} theirs @param {Difference[]} differences @param {Record<string, 'mine' | 'theirs'>} kept */
export function merge(mine, theirs, differences, kept) {
  const result = { ...theirs };
  for (const { path, by } of differences) {
    if ((kept[path] ?? (by === 'theirs' ? 'theirs' : 'mine')) === 'mine') result[path] = mine[path];
  }
  return result;
}

/** Problems by the path of their field; `prefix` is the member that holds the settings. @param {{pointer: string, detail: string}[]} violations @param {string} [prefix] */
export function byField(violations, prefix = '') {
  /** @type {Record<string, string>} */
  const found = {};
  for (const { pointer, detail } of violations) {
    const parts = pointer.split('/').slice(1).map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    if (prefix && parts[0] === prefix) parts.shift();
    const place = parts.join('.');
    const path = PATHS.find((each) => place === each || place.startsWith(`${each}.`)) ?? PATHS.find((each) => each.startsWith(`${place}.`));
    if (path && place !== '') found[path] ??= detail;
  }
  return found;
}

/** Whether one of the pointers names the override, or the object that it is in. @param {string[]} lapsed @param {string} path */
export function hasLapsed(lapsed, path) {
  const pointer = `/overrides/${path.replaceAll('.', '/')}`;
  return lapsed.some((each) => pointer === each || pointer.startsWith(`${each}/`) || each.startsWith(`${pointer}/`));
}
