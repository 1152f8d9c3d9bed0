/** What is not saved: a page that would be left with it asks first. */
import { signal, useLayoutEffect } from './preact.js';

/** One member for each form with changes that are not saved. */
const held = new Set();

/** How the page continues once the person agrees to lose the changes; undefined if nothing is asked. @type {import('./vendor/signals.mjs').Signal<(() => void) | undefined>} */
export const leaving = signal(undefined);

/** Whether something would be lost. */
export const unsaved = () => held.size > 0;

/** Goes, or asks first if something would be lost. @param {() => void} go */
export function leave(go) {
  if (unsaved()) leaving.value = go;
  else go();
}

/** The browser asks by itself before the tab closes or another site opens. @param {Event} event */
const ask = (event) => event.preventDefault();

/** Keeps the page from being left unasked. @param {object} holder */
export function hold(holder) {
  if (held.size === 0) addEventListener('beforeunload', ask);
  held.add(holder);
}

/** @param {object} holder */
export function release(holder) {
  held.delete(holder);
  if (held.size === 0) removeEventListener('beforeunload', ask);
}

/** Drops all changes: the page is about to be replaced. */
export function releaseAll() {
  for (const holder of [...held]) release(holder);
}

/** Holds the page while a view has changes. @param {boolean} dirty */
export function useUnsaved(dirty) {
  useLayoutEffect(() => {
    if (!dirty) return undefined;
    const holder = {};
    hold(holder);
    return () => release(holder);
  }, [dirty]);
}
