/**
 * Texts of devices as people may see them. Controls, direction marks and other invisible characters
 * could make a text look like another one; they are shown as their code points.
 */

/** Controls except tab and line feed, format characters, fillers, variation selectors outside emoji, tags, lone surrogates. */
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff]|[\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/u;
const EVERY = new RegExp(INVISIBLE.source, 'gu');

/** @param {string} character */
const code = (character) => `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`;

/** A text in parts: as it is, or a mark for an invisible character. @param {string} text @returns {{text: string, mark: boolean}[]} */
export function parts(text) {
  if (!INVISIBLE.test(text)) return [{ text, mark: false }];
  /** @type {{text: string, mark: boolean}[]} */
  const result = [];
  let end = 0;
  for (const found of text.matchAll(EVERY)) {
    if (found.index > end) result.push({ text: text.slice(end, found.index), mark: false });
    result.push({ text: code(found[0]), mark: true });
    end = found.index + found[0].length;
  }
  if (end < text.length) result.push({ text: text.slice(end), mark: false });
  return result;
}

/** A text with its marks, where only text is possible, such as an attribute. @param {string} text */
export const plain = (text) => parts(text).map((part) => part.text).join('');

const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const SOUNDS = ['audio/mpeg', 'audio/wav', 'audio/x-wav', 'audio/ogg', 'audio/webm', 'audio/mp4', 'audio/aac', 'audio/flac'];

/** What may show data of a device. SVG is not an image here: it is a document with scripts. @param {unknown} type @returns {'image' | 'audio' | undefined} */
export function shownAs(type) {
  const name = typeof type === 'string' ? (type.toLowerCase().split(';')[0] ?? '').trim() : '';
  if (IMAGES.includes(name)) return 'image';
  return SOUNDS.includes(name) ? 'audio' : undefined;
}

/** A link that may be opened after a click: https only, without a password in it. @param {unknown} uri */
export function link(uri) {
  try {
    const url = new URL(String(uri));
    return url.protocol === 'https:' && !url.username && !url.password ? url.href : undefined;
  } catch {
    return undefined;
  }
}
