/** What stands at the foot of the page while there are changes: what changed, save, discard. */
import { Button, Failure, toast } from '../components/basic.js';
import { t } from '../i18n.js';
import { h, useEffect } from '../preact.js';
import { Conflict, nameOf } from './conflict.js';

/** @param {{document: ReturnType<typeof import('./document.js').useDocument>}} props */
export function SaveBar({ document: edited }) {
  const saved = (/** @type {boolean} */ done) => {
    if (done) toast(t('character.saved'));
  };
  useEffect(() => {
    const first = Object.keys(edited.wrong)[0];
    const control = first && document.querySelector(`[data-field="${CSS.escape(first)}"] :is(input, textarea, select)`);
    if (control instanceof HTMLElement) control.focus();
  }, [edited.error]);
  // The bar must not cover what is being edited.
  useEffect(() => { if (edited.dirty) document.activeElement?.scrollIntoView({ block: 'nearest' }); }, [edited.dirty]);
  useEffect(() => {
    const keys = (/** @type {KeyboardEvent} */ event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key !== 's' || !edited.dirty) return;
      event.preventDefault();
      if (!edited.busy) edited.save().then(saved);
    };
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  });
  return [
    edited.dirty && h('div', { class: 'save-bar', role: 'region', 'aria-label': t('character.changes', { n: edited.changes.length }), key: 'bar' },
      h(Failure, { error: edited.error }),
      h('div', { class: 'row apart' },
        h('div', { class: 'two-lines' }, h('strong', { role: 'status' }, t('character.changes', { n: edited.changes.length })), h('span', { class: 'small soft clip' }, edited.changes.slice(0, 4).map(nameOf).join(', '), edited.changes.length > 4 ? ' …' : '')),
        h('div', { class: 'row' }, h(Button, { disabled: edited.busy, onClick: edited.discard }, t('character.discard')), h(Button, { kind: 'primary', busy: edited.busy, onClick: () => edited.save().then(saved) }, t('act.save'))))),
    edited.conflict && h(Conflict, { key: 'conflict', differences: edited.conflict, onClose: edited.closeConflict, keep: (kept) => { edited.keep(kept).then(saved); } }),
  ];
}
