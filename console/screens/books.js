/** Skills books: documents that characters search. They are dropped here, sent in parts, and read by the server. */
import { may } from '../api.js';
import { Button, Card, Empty, Failure, Head, Id, Notice, Text, Time, toast } from '../components/basic.js';
import { Drop } from '../components/drop.js';
import { Icon } from '../components/icon.js';
import { Meter } from '../components/meter.js';
import { SelectField } from '../components/field.js';
import { table } from '../components/table.js';
import { duration, maybe, number, size, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useEffect, useState } from '../preact.js';
import { useList } from '../resource.js';
import { formatOf, MAX_BYTES, of, resumeKept, stop, upload, uploads } from '../upload/books.js';

/** @typedef {import('../types.js').SkillsBook} SkillsBook */
/** @typedef {import('../upload/books.js').Upload} Upload */

/** @type {import('../screens.js').Screen} */
export const books = { paths: ['/books'], title: 'books.title', group: 'knowledge', icon: 'book', shortcut: 'b', view: Books };

export const ACCEPT = '.txt,.text,.md,.markdown,.html,.htm,.pdf';
/** How often the progress of the server is read while it reads a book. */
const PROGRESS_MS = 1_500;
export const LOCALES = ['en', 'zh-Hans', 'zh-Hant', 'de', 'fr', 'es', 'it', 'pt', 'nl', 'pl', 'ru', 'ja', 'ko', 'ar', 'hi', 'tr', 'vi', 'sv'];

/** A language by its name in the chosen language. @param {string} tag */
export function language(tag) {
  try {
    return new Intl.DisplayNames([t('books.locale.in')], { type: 'language' }).of(tag) ?? tag;
  } catch {
    return tag;
  }
}

/** Reads again while the server reads a book. @param {boolean} busy @param {() => void} reload */
export function useProgress(busy, reload) {
  useEffect(() => {
    if (!busy) return undefined;
    const timer = setInterval(reload, PROGRESS_MS);
    return () => clearInterval(timer);
  }, [busy]);
}

function Books() {
  const list = useList('/v1/skills-books', 'skills_books', {});
  /** @type {SkillsBook[] | undefined} */
  const items = list.data?.items;
  useLive(list.reload, ['book']);
  useProgress((items ?? []).some((book) => book.state === 'parsing' || book.state === 'indexing'), list.reload);
  const loaded = items !== undefined;
  useEffect(() => { if (items) resumeKept(items, list.reload); }, [loaded]);
  const [refused, setRefused] = useState(/** @type {string[]} */ ([]));
  const [locale, setLocale] = useState(t('books.locale.in'));
  const take = (/** @type {File[]} */ files) => {
    const wrong = files.map((file) => refusal(file)).filter((reason) => reason !== undefined);
    setRefused(wrong);
    for (const file of files) if (!refusal(file)) upload(file, locale, list.reload);
  };
  return h('div', { class: 'stack' },
    h(Head, { title: t('books.title'), text: t('books.text') }),
    may('admin') && h('div', { class: 'stack tight' },
      h(Drop, { label: t('books.drop'), hint: t('books.formats'), accept: ACCEPT, multiple: true, onFiles: take }),
      h(SelectField, { label: t('books.locale.new'), class: 'select input short', value: locale, onChange: setLocale, options: LOCALES.map((value) => ({ value, label: language(value) })) })),
    refused.length > 0 && h(Notice, { tone: 'warn', role: 'alert', title: t('books.refused') }, refused.map((reason) => h('span', { key: reason }, h(Text, null, reason)))),
    h(Uploads, null),
    h(Card, { flush: true }, table({
      label: t('books.title'), items, id: (book) => book.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: h(Empty, { title: t('books.none'), text: t('books.none.text') }),
      columns: [
        { title: t('books.name'), width: 160, cell: (book) => h('a', { class: 'main break', href: `/console/books/${book.id}` }, h(Text, null, book.name)) },
        { title: t('books.state'), width: 110, cell: (book) => h(BookState, { book }) },
        { title: t('books.size'), width: 60, number: true, wide: true, cell: (book) => h('span', { class: 'soft' }, size(book.size_bytes)) },
        { title: t('books.chunks'), width: 50, number: true, wide: true, cell: (book) => h('span', { class: 'soft' }, book.chunks_total === null || book.chunks_total === undefined ? '–' : number(book.chunks_total)) },
        { title: t('books.locale'), width: 70, wide: true, cell: (book) => h('span', { class: 'soft' }, language(book.locale)) },
        { title: t('books.id'), width: 120, wide: true, cell: (book) => h(Id, { id: book.id }) },
        { title: t('books.made'), width: 80, wide: true, cell: (book) => h('span', { class: 'soft' }, h(Time, { at: book.created_at })) },
      ],
    })));
}

/** Why a file cannot be a book. @param {File} file */
function refusal(file) {
  if (!formatOf(file.name)) return t('books.refused.type', { name: file.name });
  if (file.size === 0) return t('books.refused.empty', { name: file.name });
  if (file.size > MAX_BYTES) return t('books.refused.size', { name: file.name, size: size(file.size) });
  return undefined;
}

/** @type {Record<SkillsBook['state'], ['good' | 'bad' | 'warn' | 'calm', import('../components/icon.js').IconName]>} */
const STATES = { uploading: ['warn', 'upload'], parsing: ['calm', 'clock'], indexing: ['calm', 'clock'], ready: ['good', 'check'], failed: ['bad', 'cross'], cancelled: ['calm', 'minus'] };

/** @param {{book: SkillsBook}} props */
export function BookState({ book }) {
  const [tone, icon] = STATES[book.state];
  const held = book.state === 'uploading' && !of(book.id);
  return h('span', { class: 'two-lines' },
    h('span', { class: `state ${tone}` }, h(Icon, { name: icon }), t(held ? 'books.state.interrupted' : `books.state.${book.state}`)),
    book.state === 'indexing' && h('span', { class: 'small soft number' }, number(book.progress, { style: 'percent' })),
    book.error && h('span', { class: 'small soft' }, reason(book)));
}

/** Why a book failed, in words. @param {SkillsBook} book */
export const reason = (book) => maybe(`books.error.${book.error?.kind}`) ?? book.error?.detail ?? '';

/** What this page sends. */
function Uploads() {
  const all = [...uploads.value];
  if (all.length === 0) return null;
  return h(Card, { title: t('books.uploads'), flush: true }, h('ul', { class: 'uploads' }, all.map(([key, each]) => h('li', { key }, h(UploadLine, { name: key, upload: each })))));
}

/** @param {{name: string, upload: Upload}} props */
export function UploadLine({ name, upload: { name: file, step, progress, error } }) {
  const halt = () => {
    stop(name);
    toast(t('books.upload.stopped'), 'info');
  };
  return h('div', { class: 'stack tight' },
    h('div', { class: 'row apart' }, h('strong', { class: 'break' }, h(Text, null, file)), h(Button, { small: true, icon: step === 'failed' ? 'cross' : 'stop', onClick: halt }, t(step === 'failed' ? 'act.dismiss' : 'books.upload.stop'))),
    step === 'failed' ? h(Failure, { error })
      : h(Meter, { label: t('books.upload.progress', { name: file }), share: step === 'hashing' || !progress ? undefined : progress.sent / progress.total,
        left: step === 'hashing' || !progress ? t('books.upload.hashing') : t('books.upload.sent', { sent: size(progress.sent), total: size(progress.total), done: progress.done, parts: progress.parts }),
        right: progress?.waiting ? t('books.upload.waiting') : progress?.left_ms !== undefined && t('books.upload.left', { time: duration(Math.max(1_000, Math.round(progress.left_ms / 1_000) * 1_000)) }) }));
}
