/** The keys of the whole console. Single letters can be switched off (WCAG 2.1.4). */
import { SCREENS } from '../screens.js';
import { href, visit } from '../router.js';
import { settings } from '../settings.js';
import { moveRow } from './table.js';

/** How long `g` waits for its second letter. */
const SEQUENCE_MS = 1_200;

/** Listens to keys; returns what ends it. @param {{find: () => void, keys: () => void}} acts */
export function onKey(acts) {
  let pressed = 0;
  const listen = (/** @type {KeyboardEvent} */ event) => {
    if (!settings.value.keys || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof HTMLElement ? event.target : undefined;
    if (target?.closest('input, textarea, select, [contenteditable], dialog')) return;
    const second = Date.now() - pressed < SEQUENCE_MS;
    pressed = 0;
    const act = second ? place(event.key) : { '/': acts.find, '?': acts.keys, j: () => moveRow('next'), k: () => moveRow('previous'), c: focusCall, g: () => { pressed = Date.now(); } }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener('keydown', listen);
  return () => removeEventListener('keydown', listen);
}

/** @param {string} letter */
function place(letter) {
  const path = SCREENS.find((screen) => screen.shortcut === letter)?.paths[0];
  return path === undefined ? undefined : () => visit(href(path));
}

/** Puts the focus where a call begins, if the page has such a place. */
function focusCall() {
  const form = document.querySelector('[data-call-form]');
  const fields = [...form?.querySelectorAll('input, textarea, select, [type="submit"]') ?? []];
  const control = fields.find((field) => field.checkVisibility());
  if (control instanceof HTMLElement) control.focus();
}
