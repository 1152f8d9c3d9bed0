/** What changed between two texts, line by line. Pure, so that it is tested without a browser. */

/** @typedef {{kind: 'same' | 'before' | 'after' | 'gap', text: string}} Line */

/** Beyond it, the comparison would hold up the page: all lines have changed. */
const MAX_CELLS = 4_000_000;
/** Equal lines around a change; more of them are a gap. */
const CONTEXT = 3;

/** A value as text whose members are in order, so that only what means something differs. @param {unknown} value @returns {string} */
export function ordered(value) {
  if (value === undefined) return '';
  return JSON.stringify(value, (_, member) => (member && typeof member === 'object' && !Array.isArray(member) ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1))) : member), 2);
}

/** @param {string} before @param {string} after @returns {Line[]} */
export function lines(before, after) {
  const old = before === '' ? [] : before.split('\n');
  const now = after === '' ? [] : after.split('\n');
  if (old.length * now.length > MAX_CELLS) return [...old.map((text) => /** @type {Line} */ ({ kind: 'before', text })), ...now.map((text) => /** @type {Line} */ ({ kind: 'after', text }))];
  // The longest common subsequence, from the end.
  const width = now.length + 1;
  const longest = new Uint32Array((old.length + 1) * width);
  const at = (/** @type {number} */ i, /** @type {number} */ j) => longest[i * width + j] ?? 0;
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) longest[i * width + j] = old[i] === now[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  }
  /** @type {Line[]} */
  const result = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      result.push({ kind: 'same', text: old[i] ?? '' });
      i += 1;
      j += 1;
    } else if (j >= now.length || (i < old.length && at(i + 1, j) >= at(i, j + 1))) {
      result.push({ kind: 'before', text: old[i] ?? '' });
      i += 1;
    } else {
      result.push({ kind: 'after', text: now[j] ?? '' });
      j += 1;
    }
  }
  return result;
}

/** The lines that changed, and a few around them. @param {Line[]} all @returns {Line[]} */
export function around(all) {
  const shown = all.map((_, index) => all.slice(Math.max(0, index - CONTEXT), index + CONTEXT + 1).some((line) => line.kind !== 'same'));
  return all.flatMap((line, index) => (shown[index] ? [line] : index === 0 || shown[index - 1] ? [/** @type {Line} */ ({ kind: 'gap', text: '…' })] : []));
}
