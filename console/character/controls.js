/** The controls of a character's settings, one for each kind of value. */
import { send, url } from '../api.js';
import { Bone, Button, Failure, Notice, Text } from '../components/basic.js';
import { Dialog } from '../components/dialog.js';
import { Check, Select } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { t } from '../i18n.js';
import { h, useEffect, useState } from '../preact.js';
import { useList } from '../resource.js';
import { href } from '../router.js';

/** @typedef {import('./fields.js').Setting} Setting */
/** @typedef {{id?: string, 'aria-describedby'?: string, 'aria-invalid'?: string, 'aria-labelledby'?: string}} Attributes */
/** @typedef {{field: Setting, value: any, set: (value: any) => void, attributes: Attributes, disabled: boolean}} Props */

const inputOf = (/** @type {(text: string) => void} */ take) => (/** @type {any} */ event) => take(event.target.value);

/** @param {Props} props */
export const Line = ({ field, value, set, attributes, disabled }) => h('input', { ...attributes, class: 'input', type: 'text', disabled, maxLength: field.max, value: value ?? '', onInput: inputOf(set) });

/** @param {Props} props */
export const Paragraph = ({ field, value, set, attributes, disabled }) => h('textarea', { ...attributes, class: 'textarea fit', disabled, rows: field.rows ?? 3, maxLength: field.max, value: value ?? '', onInput: inputOf(set) });

/** @param {Props} props */
export const Numeral = ({ field, value, set, attributes, disabled }) => h('input', { ...attributes, class: 'input short', type: 'number', inputMode: 'decimal', disabled, min: field.min, max: field.max, step: field.step, value: value ?? '', onInput: inputOf((text) => set(text === '' ? undefined : Number(text))) });

/** @param {Props} props */
export function Flag({ field, value, set, attributes, disabled }) {
  return h(Check, { ...attributes, checked: value ?? field.fallback ?? false, disabled, onChange: set }, t(/** @type {any} */ (`character.${field.path}`)));
}

/** Several texts, each in a box of its own. @param {Props} props */
export function Paragraphs({ field, value, set, attributes, disabled }) {
  /** @type {string[]} */
  const texts = value ?? [];
  const label = t(/** @type {any} */ (`character.${field.path}`));
  return h('div', { class: 'stack tight', role: 'group', ...attributes },
    texts.map((text, index) => h('div', { class: 'input-group', key: index },
      h('textarea', { class: 'textarea fit', rows: 2, disabled, maxLength: field.max, 'aria-label': `${label} ${index + 1}`, value: text, onInput: inputOf((changed) => set(texts.map((each, place) => (place === index ? changed : each)))) }),
      h(Button, { kind: 'plain', small: true, icon: 'cross', disabled, label: `${t('act.remove')}: ${label} ${index + 1}`, onClick: () => set(texts.filter((_, place) => place !== index)) }))),
    h('div', null, h(Button, { small: true, icon: 'plus', disabled: disabled || texts.length >= 16, onClick: () => set([...texts, '']) }, t('act.add'))));
}

/** Short texts: Enter adds one. @param {Props} props */
export function Words({ field, value, set, attributes, disabled }) {
  const [text, setText] = useState('');
  /** @type {string[]} */
  const words = value ?? [];
  const label = t(/** @type {any} */ (`character.${field.path}`));
  const add = () => {
    const word = text.trim();
    if (word && !words.includes(word)) set([...words, word]);
    setText('');
  };
  return h('div', { class: 'words', role: 'group', ...attributes, id: undefined },
    words.map((word) => h('span', { class: 'word', key: word }, h(Text, null, word), !disabled && h('button', { type: 'button', 'aria-label': `${t('act.remove')}: ${word}`, onClick: () => set(words.filter((each) => each !== word)) }, h(Icon, { name: 'cross' })))),
    h('input', { id: attributes.id, type: 'text', 'aria-label': `${t('act.add')}: ${label}`, placeholder: t('character.words.add'), disabled, maxLength: 200, value: text, onInput: inputOf(setText), onBlur: add, onKeyDown: (/** @type {KeyboardEvent} */ event) => {
      if (event.isComposing) return;
      if (event.key === 'Enter') {
        event.preventDefault();
        add();
      } else if (event.key === 'Backspace' && text === '' && words.length > 0) set(words.slice(0, -1));
    } }));
}

/** JSON that is kept as a draft until it is valid. @param {Props} props */
export function JsonBox({ value, set, attributes, disabled }) {
  const [draft, setDraft] = useState(/** @type {string | undefined} */ (undefined));
  const [wrong, setWrong] = useState(false);
  const text = draft ?? (value === undefined ? '' : JSON.stringify(value, null, 2));
  useEffect(() => {
    if (!wrong) setDraft(undefined);
  }, [JSON.stringify(value)]);
  const take = (/** @type {string} */ written) => {
    setDraft(written);
    try {
      set(written.trim() === '' ? undefined : JSON.parse(written));
      setWrong(false);
    } catch {
      setWrong(true);
    }
  };
  return h('div', { class: 'stack tight' },
    h('textarea', { ...attributes, class: 'textarea mono', rows: value === undefined ? 3 : 12, disabled, spellcheck: false, value: text, 'aria-invalid': wrong ? 'true' : attributes['aria-invalid'], onInput: inputOf(take) }),
    wrong && h('div', { class: 'state bad small', role: 'status' }, h(Icon, { name: 'warning' }), t('character.json.wrong')));
}

/** One of the organisation's voices, or a provider's own. @param {Props} props */
export function VoicePicker({ value, set, attributes, disabled }) {
  const list = useList('/v1/voices', 'voices', {}, 200);
  const [named, setNamed] = useState(false);
  const voices = list.data?.items ?? [];
  const other = named || (typeof value === 'string' && value !== '' && !value.startsWith('voice_'));
  const missing = typeof value === 'string' && value.startsWith('voice_') && list.data && !voices.some((voice) => voice.id === value);
  const options = [
    { value: '', label: t('character.voice.none') },
    ...voices.map((voice) => ({ value: voice.id, label: voice.state === 'ready' ? voice.name : `${voice.name} (${t('character.voice.notReady')})` })),
    ...(missing || (!list.data && value && !other) ? [{ value, label: value }] : []),
    { value: 'other', label: t('character.voice.other') },
  ];
  return h('div', { class: 'stack tight' },
    h(Select, { ...attributes, disabled, value: other ? 'other' : value ?? '', options, onChange: (/** @type {string} */ chosen) => {
      setNamed(chosen === 'other');
      if (chosen !== 'other') set(chosen === '' ? undefined : chosen);
    } }),
    other && h('input', { class: 'input mono', type: 'text', disabled, 'aria-label': t('character.voice.name'), placeholder: t('character.voice.name'), maxLength: 128, value: value?.startsWith('voice_') ? '' : value ?? '', onInput: inputOf((text) => set(text === '' ? undefined : text)) }));
}

/** The address of a picture's bytes. @param {string} id */
const content = (id) => url(`/v1/pictures/${encodeURIComponent(id)}/content`);

/** The picture of a character, or its initial. @param {{id: string | null | undefined, name: string, large?: boolean}} props */
export function Avatar({ id, name, large }) {
  const [broken, setBroken] = useState(/** @type {string | undefined} */ (undefined));
  const classes = large ? 'avatar large' : 'avatar';
  if (id && broken !== id) return h('img', { class: classes, src: content(id), alt: '', loading: 'lazy', onError: () => setBroken(id) });
  return h('span', { class: classes, 'aria-hidden': 'true' }, [...name.trim()][0]?.toUpperCase() ?? '?');
}

/** @param {Props & {name?: string}} props */
export function PicturePicker({ value, set, attributes, disabled, name = '' }) {
  const [open, setOpen] = useState(false);
  return h('div', { class: 'row', role: 'group', ...attributes },
    h(Avatar, { id: value, name, large: true }),
    h(Button, { small: true, icon: 'picture', disabled, onClick: () => setOpen(true) }, t('character.picture.choose')),
    value && h(Button, { small: true, kind: 'plain', disabled, onClick: () => set(undefined) }, t('act.remove')),
    open && h(Pictures, { value, choose: (id) => {
      set(id);
      setOpen(false);
    }, onClose: () => setOpen(false) }));
}

/** @param {{value: string | undefined, choose: (id: string) => void, onClose: () => void}} props */
function Pictures({ value, choose, onClose }) {
  const list = useList('/v1/pictures', 'pictures', {}, 100);
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const upload = async (/** @type {any} */ event) => {
    const file = event.target.files?.[0];
    if (!file) return;
    try {
      const answer = await send('POST', '/v1/pictures', { query: { name: file.name.slice(0, 100) }, body: file, contentType: 'application/octet-stream' });
      choose((await answer.json()).id);
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
  };
  return h(Dialog, { title: t('character.picture.choose'), onClose, wide: true },
    h(Failure, { error: error ?? list.error, retry: error ? undefined : list.reload }),
    !list.data && !list.error && h(Bone, { width: 240 }),
    list.data?.items.length === 0 && h('p', { class: 'soft' }, t('character.picture.none')),
    h('div', { class: 'picture-grid' }, list.data?.items.map((picture) => h('button', { type: 'button', key: picture.id, 'aria-pressed': String(picture.id === value), onClick: () => choose(picture.id) },
      h('img', { src: content(picture.id), alt: '', loading: 'lazy' }), h('span', { class: 'clip' }, h(Text, null, picture.name))))),
    h('label', { class: 'upload' }, h('span', null, t('character.picture.upload')), h('input', { type: 'file', accept: 'image/png,image/jpeg,image/webp,image/gif', onChange: upload })));
}

/** @param {Props} props */
export function BookPicker({ value, set, attributes, disabled }) {
  const list = useList('/v1/skills-books', 'skills_books', {}, 200);
  /** @type {string[]} */
  const chosen = value ?? [];
  const books = list.data?.items ?? [];
  const unknown = list.data ? chosen.filter((id) => !books.some((book) => book.id === id)) : [];
  const toggle = (/** @type {string} */ id) => (/** @type {boolean} */ on) => set(on ? [...chosen, id] : chosen.filter((each) => each !== id));
  if (list.error) return h(Failure, { error: list.error, retry: list.reload });
  if (!list.data) return h(Bone, { width: 200 });
  if (books.length === 0 && unknown.length === 0) return h(Notice, null, t('character.books.none'), h('div', null, h('a', { href: href('/books') }, t('character.books.open'))));
  return h('div', { class: 'stack tight', role: 'group', ...attributes },
    books.map((book) => h(Check, { key: book.id, checked: chosen.includes(book.id), disabled, onChange: toggle(book.id) }, h(Text, null, book.name), book.state !== 'ready' && h('span', { class: 'faint small' }, ` · ${book.state}`))),
    unknown.map((id) => h(Check, { key: id, checked: true, disabled, onChange: toggle(id) }, h('code', null, id))));
}
