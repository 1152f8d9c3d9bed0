/** Native dialogs: to confirm what cannot be undone, and to show a secret once. */
import { useAct } from '../act.js';
import { t } from '../i18n.js';
import { h, useEffect, useId, useRef, useState } from '../preact.js';
import { useUnsaved } from '../unsaved.js';
import { Button, Failure, Notice } from './basic.js';
import { Code } from './code.js';
import { Field } from './field.js';
import { Qr } from './qr.js';

/** What was typed into it would be lost. @param {{title: any, onClose: () => void, children?: any, wide?: boolean, locked?: boolean}} props */
export function Dialog({ title, onClose, children, wide, locked }) {
  const id = useId();
  const [typed, setTyped] = useState(false);
  useUnsaved(typed);
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return h('dialog', {
    ref: element, class: wide ? 'wide' : undefined, 'aria-labelledby': id, onInput: (/** @type {any} */ event) => { if (event.target.closest('form')) setTyped(true); },
    onCancel: (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!locked) onClose();
    },
  }, h('div', { class: 'inner' }, h('div', { class: 'row apart' }, h('h2', { id }, title), !locked && h(Button, { kind: 'plain', small: true, icon: 'cross', label: t('act.close'), onClick: onClose })), children));
}

/**
 * Asks before something that cannot be undone; with `word`, it has to be typed.
 * @param {{title: string, text: any, act: string, word?: string, onClose: () => void, run: () => Promise<unknown>}} props
 */
export function Confirm({ title, text, act: label, word, onClose, run }) {
  const [typed, setTyped] = useState('');
  const { busy, error, run: act } = useAct(async () => {
    await run();
    onClose();
  });
  const submit = (/** @type {Event} */ event) => (word && typed !== word ? event.preventDefault() : act(event));
  return h(Dialog, { title, onClose },
    h('form', { class: 'stack', onSubmit: submit },
      h('p', { class: 'soft' }, text),
      word && h(Field, { label: t('confirm.type', { word }), render: (attributes) => h('input', { ...attributes, class: 'input mono', autocomplete: 'off', spellcheck: false, value: typed, onInput: (/** @type {any} */ event) => setTyped(event.target.value) }) }),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'danger', type: 'submit', busy, disabled: word !== undefined && typed !== word }, label))));
}

/** Shows a secret, once; for a device also as a picture that it can read. It closes only by its button. @param {{title: string, secret: string, qr?: string, children?: any, onClose: () => void}} props */
export function Secret({ title, secret, qr, children, onClose }) {
  useUnsaved(true);
  return h(Dialog, { title, onClose, wide: true, locked: true },
    h(Notice, { tone: 'warn' }, t('secret.once')),
    h(Code, { text: secret, wrap: true, label: title }),
    qr && h('div', { class: 'qr-box' }, h(Qr, { text: secret, label: qr }), h('p', { class: 'small soft' }, t('secret.qr'))),
    children,
    h('div', { class: 'actions' }, h(Button, { kind: 'primary', onClick: onClose }, t('secret.copied'))));
}
