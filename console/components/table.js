/** A table whose rows can be walked through with j and k, with its states: bones, nothing, more. */
import { t } from '../i18n.js';
import { h, useRef } from '../preact.js';
import { Announcer, Bone, Button, Failure } from './basic.js';
import { Icon } from './icon.js';

/**
 * @template T
 * @typedef {object} Column
 * @property {string} title
 * @property {(item: T) => any} cell
 * @property {boolean} [number] aligned at its end
 * @property {boolean} [wide] left out on narrow screens
 * @property {number} [width] of the bone that stands for it
 * @property {{active: boolean, down: boolean, toggle: () => void}} [sort]
 */

/**
 * @template T
 * @typedef {{columns: Column<T>[], items: T[] | undefined, id: (item: T) => string, label: string, error?: Error, reload?: () => void, empty?: any, more?: (() => void) | false, loading?: boolean, bones?: number, foot?: any}} Props
 */

/** The table: a function, so that the type of its items is inferred. @template T @param {Props<T>} props */
export const table = (props) => h(/** @type {(props: Props<any>) => any} */ (Table), props);

/** @param {Props<any>} props */
function Table({ columns, items, id, label, error, reload, empty, more, loading, bones = 6, foot }) {
  const body = useRef(/** @type {HTMLTableSectionElement | null} */ (null));
  if (error && !items) return h('div', { class: 'body' }, h(Failure, { error, retry: reload }));
  const count = foot ?? t('list.shown', { n: items?.length ?? 0 });
  const announcer = h(Announcer, { key: 'count', text: items && String(count) });
  if (items && items.length === 0 && empty) return h('div', null, announcer, empty);
  return h('div', null, announcer,
    h('div', { class: 'table-box', tabIndex: -1 },
      h('table', { class: 'table', 'aria-label': label, 'aria-busy': items ? undefined : 'true' },
        h('thead', null, h('tr', null, columns.map((column) => h(HeadCell, { column, key: column.title })))),
        h('tbody', { ref: body, 'data-rows': true }, items
          ? items.map((item) => h('tr', { key: id(item), 'data-id': id(item) }, columns.map((column) => h('td', { class: cellClass(column), key: column.title }, column.cell(item)))))
          : Array.from({ length: bones }, (_, row) => h('tr', { key: row }, columns.map((column, index) => h('td', { class: cellClass(column), key: column.title }, h(Bone, { width: (column.width ?? 90) - ((row * 17 + index * 11) % 30) })))))))),
    h('div', { class: 'table-foot' },
      h('span', { class: 'number' }, items ? count : t('list.loading')),
      more && h(Button, { small: true, onClick: more, busy: loading }, t('act.more'))));
}

/** @param {Column<any>} column */
const cellClass = (column) => [column.number && 'number', column.wide && 'wide-only'].filter(Boolean).join(' ') || undefined;

/** @param {{column: Column<any>}} props */
function HeadCell({ column }) {
  const { sort } = column;
  return h('th', { scope: 'col', class: cellClass(column), 'aria-sort': sort?.active ? (sort.down ? 'descending' : 'ascending') : undefined },
    sort ? h('button', { type: 'button', class: 'sort', onClick: sort.toggle, title: t('list.sorted', { column: column.title }) }, column.title, sort.active && h(Icon, { name: sort.down ? 'down' : 'up' })) : column.title);
}

/** Moves the marked row of the page's table, or opens it. @param {'next' | 'previous' | 'open'} act */
export function moveRow(act) {
  const rows = [...document.querySelectorAll('tbody[data-rows] > tr[data-id]')];
  const current = rows.findIndex((row) => row.hasAttribute('data-current'));
  if (act === 'open') {
    const link = rows[current]?.querySelector('a');
    if (link instanceof HTMLElement) link.click();
    return;
  }
  const index = Math.max(0, Math.min(rows.length - 1, current + (act === 'next' ? 1 : -1)));
  rows[current]?.removeAttribute('data-current');
  rows[index]?.setAttribute('data-current', '');
  const link = rows[index]?.querySelector('a');
  if (link instanceof HTMLElement) link.focus();
}
