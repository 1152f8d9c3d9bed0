/** The icons: 20 × 20, drawn with the text's colour. They repeat a text or carry none. */
import { h } from '../preact.js';

const PATHS = {
  overview: ['M3 9.5 10 4l7 5.5', 'M5 8.5V16h10V8.5', 'M10 16v-4'],
  devices: ['M4.5 4h11a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-11a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1Z', 'M7 17h6', 'M10 14v3'],
  calls: ['M3 7h11', 'm11 4 3 3-3 3', 'M17 13H6', 'm9 10-3 3 3 3'],
  agent: ['M7 3v4', 'M13 3v4', 'M5 7h10v3a5 5 0 0 1-10 0Z', 'M10 15v3'],
  keys: ['M12.5 3.5a4 4 0 1 1-3.2 6.4L4 15.2V17h2.5v-2H8.5v-2l1.3-1.3', 'M13.5 6.5h.01'],
  npc: ['M10 10.5a3.25 3.25 0 1 0 0-6.5 3.25 3.25 0 0 0 0 6.5Z', 'M3.5 17c.6-3 3.2-4.5 6.5-4.5s5.9 1.5 6.5 4.5'],
  template: ['M4 4h12v4H4Z', 'M4 11h5v5H4Z', 'M12 11h4v5h-4Z'],
  memory: ['M10 4.5C8.5 3 5 3.2 4.5 6 2.8 7 2.8 10 4.5 11c0 3 3.5 4.5 5.5 2.5 2 2 5.5.5 5.5-2.5 1.7-1 1.7-4 0-5C15 3.2 11.5 3 10 4.5Z', 'M10 4.5v9'],
  book: ['M4 4.5h5a1.5 1.5 0 0 1 1 .5 1.5 1.5 0 0 1 1-.5h5V15h-5a1.5 1.5 0 0 0-1 .7 1.5 1.5 0 0 0-1-.7H4Z', 'M10 5v10.5'],
  voice: ['M10 3a2.5 2.5 0 0 0-2.5 2.5v4a2.5 2.5 0 0 0 5 0v-4A2.5 2.5 0 0 0 10 3Z', 'M5 9.5a5 5 0 0 0 10 0', 'M10 14.5V17'],
  picture: ['M4 4.5h12v11H4Z', 'm4.5 14 4-4 3 3 2-2 2.5 2.5', 'M12.5 8h.01'],
  webhook: ['M6 13.5a3 3 0 1 0 3 3', 'M7.5 7.5 10 4l4 6', 'M14 10a3 3 0 1 1-2.5 4.6H8', 'M10 4a3 3 0 0 0-3.5 4.5L5 12'],
  usage: ['M4 16V10', 'M8 16V5', 'M12 16V8', 'M16 16v-4'],
  audit: ['M5 3.5h7l3 3V16.5H5Z', 'M8 9h4', 'M8 12h4'],
  cluster: ['M4 4.5h12v4.5H4Z', 'M4 11h12v4.5H4Z', 'M7 6.75h.01', 'M7 13.25h.01'],
  org: ['M4 16.5V6l6-2.5L16 6v10.5', 'M2.5 16.5h15', 'M8 9h.01M12 9h.01M8 12h.01M12 12h.01'],
  approval: ['M10 3 4.5 5v4.5c0 3.5 2.3 6 5.5 7.5 3.2-1.5 5.5-4 5.5-7.5V5Z', 'm7.5 10 2 2 3.5-3.5'],
  group: ['M4 4h5v5H4Z', 'M11 4h5v5h-5Z', 'M4 11h5v5H4Z', 'M11 11h5v5h-5Z'],
  upload: ['M10 13V4', 'M6.5 7.5 10 4l3.5 3.5', 'M4 12.5V16h12v-3.5'],
  record: ['M10 14.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Z', 'M10 10.6a.6.6 0 1 0 0-1.2.6.6 0 0 0 0 1.2Z'],
  download: ['M10 4v9', 'M6.5 9.5 10 13l3.5-3.5', 'M4 16h12'],
  search: ['M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11Z', 'm13 13 4 4'],
  copy: ['M7.5 7.5h8v9h-8Z', 'M12.5 4.5v-1h-8v9h1.5'],
  check: ['m4.5 10.5 3.5 3.5 7.5-8'],
  cross: ['m5.5 5.5 9 9', 'm14.5 5.5-9 9'],
  plus: ['M10 4.5v11', 'M4.5 10h11'],
  pause: ['M7 5v10', 'M13 5v10'],
  play: ['M7 4.5v11l8.5-5.5Z'],
  stop: ['M6 6h8v8H6Z'],
  menu: ['M3.5 6h13', 'M3.5 10h13', 'M3.5 14h13'],
  chevron: ['m7 8.5 3 3 3-3'],
  left: ['m11.5 6-4 4 4 4'],
  right: ['m8.5 6 4 4-4 4'],
  up: ['m6 11 4-4 4 4'],
  down: ['m6 9 4 4 4-4'],
  clock: ['M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Z', 'M10 6.5V10l2.5 1.5'],
  question: ['M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Z', 'M8 8.2a2 2 0 1 1 2.7 1.9c-.5.2-.7.5-.7 1.1', 'M10 13.5h.01'],
  warning: ['M10 3.5 2.8 16h14.4Z', 'M10 8.5v3.5', 'M10 14h.01'],
  info: ['M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Z', 'M10 9.5V13.5', 'M10 6.8h.01'],
  ring: ['M10 15.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11Z'],
  slash: ['M10 16a6 6 0 1 0 0-12 6 6 0 0 0 0 12Z', 'm6 14 8-8'],
  minus: ['M5 10h10'],
  external: ['M8 4.5H4.5v11h11V12', 'M11 4h5v5', 'm16 4-7 7'],
  again: ['M15.5 8.5A6 6 0 1 0 16 11', 'M16 4.5v4h-4'],
  trash: ['M4 6h12', 'M8 6V4h4v2', 'm5.5 6 .7 10.5h7.6L14.5 6'],
  power: ['M10 3.5v6', 'M6 6a6 6 0 1 0 8 0'],
  signOut: ['M8 4H4v12h4', 'M8.5 10H17', 'm14 7 3 3-3 3'],
  lock: ['M5 9h10v7.5H5Z', 'M7 9V6.5a3 3 0 0 1 6 0V9'],
  bolt: ['M11 3 5 11.5h4.5L9 17l6-8.5h-4.5Z'],
};

/** @typedef {keyof typeof PATHS} IconName */

/** @param {{name: IconName}} props */
export function Icon({ name }) {
  const paths = PATHS[name].map((d) => h('path', { d }));
  return h('svg', { viewBox: '0 0 20 20', width: 18, height: 18, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.6, 'stroke-linecap': 'round', 'stroke-linejoin': 'round', 'aria-hidden': 'true', focusable: 'false' }, paths);
}

/** Two jacks and the cord between them: what the console is about. */
export function Mark() {
  return h('svg', { viewBox: '0 0 32 32', width: 26, height: 26, 'aria-hidden': 'true' },
    h('rect', { class: 'mark-ground', width: 32, height: 32, rx: 8 }),
    h('path', { class: 'mark-cord', d: 'M9.5 12c0 10 13 .5 13 10.5' }),
    h('circle', { class: 'mark-jack', cx: 9.5, cy: 9.5, r: 3 }),
    h('circle', { class: 'mark-plug', cx: 22.5, cy: 22.5, r: 3 }));
}

/** The picture of an empty page: a cord that is not plugged in yet. */
export function LooseCord() {
  const jack = (/** @type {number} */ x) => h('g', null,
    h('circle', { class: 'cord-jack', cx: x, cy: 16, r: 11 }),
    h('circle', { class: 'cord-hole', cx: x, cy: 16, r: 4 }));
  return h('svg', { viewBox: '0 0 148 64', 'aria-hidden': 'true' },
    jack(14), jack(54), jack(94), jack(134),
    h('path', { class: 'cord cord-line', d: 'M14 16c0 46 50 48 66 36 8-6 14-8 22-6' }),
    h('circle', { class: 'cord-plug', cx: 14, cy: 16, r: 5 }),
    h('rect', { class: 'cord-tip', x: 101, y: 42.5, width: 14, height: 7, rx: 3 }));
}
