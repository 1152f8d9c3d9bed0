/** A document that was changed elsewhere: what it was, yours, theirs, and what to keep. */
import { Button, Notice, Text } from '../components/basic.js';
import { Dialog } from '../components/dialog.js';
import { maybe, t } from '../i18n.js';
import { h, useState } from '../preact.js';
import { brief } from './editor.js';

/** @typedef {import('./fields.js').Difference} Difference */

/** The name of a field. @param {string} path */
export const nameOf = (path) => maybe(`character.${path}`) ?? path;

/** @param {{differences: Difference[], onClose: () => void, keep: (kept: Record<string, 'mine' | 'theirs'>) => void}} props */
export function Conflict({ differences, onClose, keep }) {
  const [kept, setKept] = useState(/** @type {Record<string, 'mine' | 'theirs'>} */ (Object.fromEntries(differences.map((each) => [each.path, each.by === 'theirs' ? 'theirs' : 'mine']))));
  const asked = [...differences].sort((a, b) => Number(b.by === 'both') - Number(a.by === 'both'));
  return h(Dialog, { title: t('conflict.title'), onClose, wide: true },
    h('p', { class: 'soft' }, t('conflict.text')),
    differences.length === 0 && h(Notice, { tone: 'good' }, t('conflict.none')),
    h('div', { class: 'conflicts' }, asked.map((each) => h('fieldset', { key: each.path, class: each.by === 'both' ? 'conflict both' : 'conflict' },
      h('legend', null, nameOf(each.path), ' ', h('span', { class: 'tag' }, t(`conflict.by.${each.by}`))),
      h('p', { class: 'small soft break' }, `${t('conflict.base')} `, h(Text, null, brief(each.base))),
      h('div', { class: 'conflict-sides' }, /** @type {const} */ (['mine', 'theirs']).map((side) => h('label', { key: side, class: kept[each.path] === side ? 'side kept' : 'side' },
        h('input', { type: 'radio', name: `keep-${each.path}`, checked: kept[each.path] === side, onChange: () => setKept({ ...kept, [each.path]: side }) }),
        h('span', { class: 'two-lines' }, h('strong', null, t(`conflict.${side}`)), h('span', { class: 'break' }, h(Text, null, brief(each[side]))))))))),
    ),
    h('div', { class: 'actions' },
      h(Button, { onClick: onClose }, t('conflict.later')),
      h(Button, { kind: 'primary', onClick: () => keep(kept) }, t('conflict.keep'))));
}
