/** Code and JSON to read and to copy. */
import { parts } from '../form/safe.js';
import { t } from '../i18n.js';
import { h, useState } from '../preact.js';
import { Button, Text, copy } from './basic.js';

/** A text to copy. @param {{text: string, wrap?: boolean, label?: string}} props */
export function Code({ text, wrap, label }) {
  return h('div', { class: 'code' },
    h('pre', { class: wrap ? 'wrap' : undefined, tabIndex: 0, 'aria-label': label, role: label ? 'group' : undefined }, h('code', null, h(Text, null, text))),
    h(Button, { kind: 'plain', small: true, icon: 'copy', label: t('act.copy'), onClick: () => copy(text) }));
}

/** The same thing in several languages. The tab is a preference, not a place. @param {{tabs: {name: string, text: string}[], label: string}} props */
export function Snippets({ tabs, label }) {
  const [name, setName] = useState(tabs[0]?.name);
  const shown = tabs.find((tab) => tab.name === name) ?? tabs[0];
  if (!shown) return null;
  return h('div', { class: 'stack tight' },
    h('div', { class: 'segmented', role: 'group', 'aria-label': label }, tabs.map((tab) => h('button', { type: 'button', key: tab.name, 'aria-pressed': String(tab === shown), onClick: () => setName(tab.name) }, tab.name))),
    h(Code, { text: shown.text, label: `${label}: ${shown.name}` }));
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|(true|false|null)/g;
/** Beyond it colours cost more than they help. */
const MAX_COLOURED_CHARS = 60_000;

/** A value as JSON. @param {{value: unknown, label?: string}} props */
export function Json({ value, label }) {
  const text = typeof value === 'string' ? JSON.stringify(value) : JSON.stringify(value, null, 2) ?? '';
  return h('div', { class: 'code' },
    h('pre', { class: 'wrap', tabIndex: 0, 'aria-label': label, role: label ? 'group' : undefined }, h('code', null, text.length > MAX_COLOURED_CHARS ? h(Text, null, text) : coloured(text))),
    h(Button, { kind: 'plain', small: true, icon: 'copy', label: t('act.copy'), onClick: () => copy(text) }));
}

/** @param {string} text */
function coloured(text) {
  const result = [];
  let end = 0;
  for (const found of text.matchAll(TOKEN)) {
    result.push(text.slice(end, found.index));
    const [whole, string, colon, numeral] = found;
    const kind = string ? (colon ? 'json-key' : 'json-text') : numeral ? 'json-number' : 'json-word';
    const body = string ?? whole;
    result.push(h('span', { class: kind }, parts(body).map((part) => (part.mark ? h('span', { class: 'mark' }, part.text) : part.text))), colon ?? '');
    end = found.index + whole.length;
  }
  result.push(text.slice(end));
  return result;
}
