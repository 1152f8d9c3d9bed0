/** What makes and changes memories. */
import { useAct } from '../act.js';
import { patch, path, post } from '../api.js';
import { Button, Failure } from '../components/basic.js';
import { Dialog } from '../components/dialog.js';
import { Field, segmented, SelectField, TextField } from '../components/field.js';
import { t } from '../i18n.js';
import { h, useState } from '../preact.js';

/** @typedef {{subject?: string, kind?: string, importance?: number, expires_at?: string}} Common */
/** @typedef {{text: string} & Record<string, any>} NewMemory */

const MAX_MEMORIES = 100;
const DAY_MS = 86_400_000;

/** Memories of a text: one a line, or JSON. What they leave out comes from `common`. @param {string} written @param {Common} common @returns {NewMemory[]} */
export function parseMany(written, common) {
  const text = written.trim();
  if (!text.startsWith('[') && !text.startsWith('{')) {
    return text.split('\n').map((line) => line.trim()).filter(Boolean).map((line) => ({ ...common, text: line }));
  }
  const parsed = JSON.parse(text);
  const list = Array.isArray(parsed) ? parsed : Array.isArray(parsed.memories) ? parsed.memories : [parsed];
  return list.map((/** @type {any} */ each, /** @type {number} */ index) => {
    if (typeof each === 'string') return { ...common, text: each };
    if (!each || typeof each !== 'object' || typeof each.text !== 'string') throw new Error(t('memories.many.wrong', { n: index + 1 }));
    return { ...common, ...each };
  });
}

/** @param {{draft: {subject: string, kind: string, importance: string, days: string}, set: (change: Record<string, string>) => void, keepEnd?: boolean}} props */
function Members({ draft, set, keepEnd }) {
  const lifetimes = [...(keepEnd ? [{ value: 'keep', label: t('memories.days.keep') }] : []), { value: '', label: t(keepEnd ? 'memories.ends.never' : 'memories.days.policy') }, ...['1', '7', '30', '365'].map((days) => ({ value: days, label: t('memories.days', { n: Number(days) }) }))];
  return h('div', { class: 'form-grid' },
    h(TextField, { label: t('memories.subject'), optional: true, hint: t('memories.subject.hint'), value: draft.subject, maxLength: 128, placeholder: 'user:anna', spellcheck: false, autocapitalize: 'off', onInput: (subject) => set({ subject }) }),
    h(TextField, { label: t('memories.kind'), optional: true, hint: t('memories.kind.hint'), value: draft.kind, maxLength: 64, onInput: (kind) => set({ kind }) }),
    h(Field, { label: `${t('memories.importance')}: ${draft.importance}`, hint: t('memories.importance.hint'), render: (attributes) => h('input', { ...attributes, type: 'range', min: 0, max: 1, step: 0.05, value: draft.importance, onInput: (/** @type {any} */ event) => set({ importance: event.target.value }) }) }),
    h(SelectField, { label: t('memories.ends'), value: draft.days, options: lifetimes, onChange: (days) => set({ days }) }));
}

/** @param {string} days */
const endOf = (days) => new Date(Date.now() + Number(days) * DAY_MS).toISOString();

/** @param {{path: string, onClose: () => void, saved: () => void}} props */
export function AddMemories({ path: place, onClose, saved }) {
  const [mode, setMode] = useState(/** @type {'one' | 'many'} */ ('one'));
  const [text, setText] = useState('');
  const [draft, setDraft] = useState({ subject: '', kind: '', importance: '0.5', days: '' });
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const [wrong, setWrong] = useState('');
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setWrong('');
    setError(undefined);
    /** @type {Common} */
    const common = { importance: Number(draft.importance), ...(draft.subject.trim() && { subject: draft.subject.trim() }), ...(draft.kind.trim() && { kind: draft.kind.trim() }), ...(draft.days && { expires_at: endOf(draft.days) }) };
    let list;
    try {
      list = mode === 'one' ? [{ ...common, text }] : parseMany(text, common);
    } catch (failure) {
      setWrong(/** @type {Error} */ (failure).message);
      return;
    }
    if (list.length > MAX_MEMORIES) {
      setWrong(t('memories.many.limit', { n: list.length }));
      return;
    }
    setBusy(true);
    try {
      await post(place, mode === 'one' ? list[0] : { memories: list });
      saved();
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
      setBusy(false);
    }
  };
  return h(Dialog, { title: t('memories.add'), onClose, wide: true },
    h('form', { class: 'stack', onSubmit: submit },
      segmented({ label: t('memories.how'), value: mode, onChange: setMode, options: [{ value: /** @type {const} */ ('one'), label: t('memories.one') }, { value: /** @type {const} */ ('many'), label: t('memories.many') }] }),
      h(Field, { label: t(mode === 'one' ? 'memories.memory' : 'memories.many.label'), hint: t(mode === 'one' ? 'memories.memory.hint' : 'memories.many.hint'), wrong, required: true, render: (attributes) => h('textarea', { ...attributes, class: mode === 'one' ? 'textarea' : 'textarea tall', maxLength: mode === 'one' ? 65_536 : 1_048_576, value: text, onInput: (/** @type {any} */ event) => setText(event.target.value) }) }),
      h(Members, { draft, set: (change) => setDraft({ ...draft, ...change }) }),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: text.trim() === '' }, t('act.add')))));
}

/** @param {{memory: import('./memories.js').Memory, onClose: () => void, saved: () => void}} props */
export function EditMemory({ memory, onClose, saved }) {
  const [text, setText] = useState(memory.text);
  const [draft, setDraft] = useState({ subject: memory.subject ?? '', kind: memory.kind ?? '', importance: String(memory.importance), days: memory.expires_at ? 'keep' : '' });
  const { busy, error, run } = useAct(async () => {
    await patch(path`/v1/memories/${memory.id}`, {
      text, subject: draft.subject.trim() || null, kind: draft.kind.trim() || null, importance: Number(draft.importance),
      ...(draft.days !== 'keep' && { expires_at: draft.days ? endOf(draft.days) : null }),
    }, memory.version ? { etag: `"${memory.version}"` } : {});
    saved();
  });
  return h(Dialog, { title: t('memories.edit.title'), onClose, wide: true },
    h('form', { class: 'stack', onSubmit: run },
      h(Field, { label: t('memories.memory'), required: true, render: (attributes) => h('textarea', { ...attributes, class: 'textarea', maxLength: 65_536, value: text, onInput: (/** @type {any} */ event) => setText(event.target.value) }) }),
      h(Members, { draft, set: (change) => setDraft({ ...draft, ...change }), keepEnd: Boolean(memory.expires_at) }),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: text.trim() === '' }, t('act.save')))));
}
