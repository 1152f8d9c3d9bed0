/** How far something is: a bar, and the same in words. */
import { h } from '../preact.js';

/** @param {{label: string, share: number | undefined, left?: any, right?: any, tone?: 'warn' | 'bad'}} props `share` from 0 to 1; without it, the bar moves */
export function Meter({ label, share, left, right, tone }) {
  return h('div', { class: `meter ${tone ?? ''}` },
    h('progress', { 'aria-label': label, max: 1, value: share }),
    (left || right) && h('div', { class: 'small soft number' }, h('span', null, left), h('span', null, right)));
}
