/** One skills book: how far it is, what it answers, who uses it. */
import { useAct } from '../act.js';
import { get, may, path, post, remove } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Head, Id, Notice, Text, toast } from '../components/basic.js';
import { Confirm } from '../components/dialog.js';
import { Drop } from '../components/drop.js';
import { Meter } from '../components/meter.js';
import { Uses } from '../components/uses.js';
import { exact, number, size, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useEffect, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { href, navigate } from '../router.js';
import { of, resume, resumeKept, stop, uploads } from '../upload/books.js';
import { ACCEPT, BookState, language, reason, UploadLine, useProgress } from './books.js';

/** @typedef {import('../types.js').SkillsBook} SkillsBook */

/** @type {import('../screens.js').Screen} */
export const book = { paths: ['/books/:id'], title: 'book.title', parent: '/books', view: BookPage };

/** @param {{params: Record<string, string>}} props */
function BookPage({ params }) {
  const id = /** @type {string} */ (params.id);
  const resource = useResource(path`/v1/skills-books/${id}`);
  /** @type {SkillsBook | undefined} */
  const data = resource.data;
  const [deleting, setDeleting] = useState(false);
  useLive(resource.reload, [`book:${id}`]);
  useProgress(data?.state === 'parsing' || data?.state === 'indexing', resource.reload);
  useEffect(() => { if (data?.state === 'uploading') resumeKept([data], resource.reload); }, [data?.state]);
  const back = { to: '/books', label: t('books.title') };
  if (resource.error && !data) return h('div', null, h(Head, { title: t('book.title'), back }), h(Failure, { error: resource.error, retry: resource.reload }));
  const open = data && ['uploading', 'parsing', 'indexing'].includes(data.state);
  const cancel = async () => {
    try {
      for (const [key, each] of uploads.value) if (each.id === id) stop(key);
      await post(path`/v1/skills-books/${id}/cancel`);
      toast(t('book.cancelled'));
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    resource.reload();
  };
  return h('div', { class: 'stack wide' },
    h(Head, { title: data ? h('span', { class: 'break' }, h(Text, null, data.name)) : h('span', { class: 'bone headline-bone' }), text: h(Id, { id }), back },
      data && may('admin') && [open && h(Button, { key: 'cancel', icon: 'cross', onClick: cancel }, t('book.cancel')), h(Button, { key: 'delete', kind: 'danger', icon: 'trash', onClick: () => setDeleting(true) }, t('act.delete'))]),
    h('div', { class: 'columns two' },
      h('div', { class: 'stack' }, data && h(Progress, { book: data, reload: resource.reload }), data ? h(Question, { book: data }) : h(Card, { title: t('book.ask') }, h(Bone, { width: 300 }))),
      h(Card, { title: t('book.facts') }, data ? h(Facts, { book: data }) : h(Bone, { width: 200 }))),
    deleting && data && h(Confirm, { title: t('book.delete', { name: data.name }), text: h('span', { class: 'stack tight' }, t('book.delete.text'), h('span', { class: 'row' }, t('uses.title'), h(Uses, { id }))), act: t('act.delete'), onClose: () => setDeleting(false), run: async () => {
      for (const [key, each] of uploads.value) if (each.id === id) stop(key);
      await remove(path`/v1/skills-books/${id}`);
      navigate(href('/books'));
    } }));
}

/** @param {{book: SkillsBook, reload: () => void}} props */
function Progress({ book: data, reload }) {
  const sending = of(data.id);
  const [wrong, setWrong] = useState(false);
  if (data.state === 'failed') return h(Notice, { tone: 'bad', title: reason(data) }, h(Text, null, data.error?.detail), h('span', null, t('book.failed.text')));
  if (sending) {
    const key = /** @type {string} */ ([...uploads.value].find(([, each]) => each === sending)?.[0]);
    return h(Card, { title: t('books.uploads') }, h(UploadLine, { name: key, upload: sending }));
  }
  if (data.state === 'uploading') {
    return h(Card, { title: t('book.interrupted') }, h('div', { class: 'stack' },
      h(Meter, { label: t('book.received'), share: data.bytes_received / data.size_bytes, left: t('book.received.of', { sent: size(data.bytes_received), total: size(data.size_bytes) }) }),
      h(Drop, { slim: true, label: t('book.resume'), hint: t('book.resume.text', { name: data.name }), accept: ACCEPT, disabled: !may('admin'), onFiles: async ([file]) => {
        setWrong(Boolean(file) && await resume(data, /** @type {File} */ (file), reload) === 'other');
      } }),
      wrong && h(Notice, { tone: 'warn', role: 'alert' }, t('book.resume.other'))));
  }
  if (data.state !== 'parsing' && data.state !== 'indexing') return null;
  return h(Card, { title: t(`books.state.${data.state}`) }, h(Meter, { label: t('book.indexed'), share: data.state === 'parsing' ? undefined : data.progress, left: data.state === 'parsing' ? t('book.parsing.text') : t('book.indexed.of', { done: data.chunks_indexed, total: data.chunks_total ?? 0 }) }));
}

/** @param {{book: SkillsBook}} props */
function Facts({ book: data }) {
  return h('dl', { class: 'facts lines' },
    line(t('books.state'), h(BookState, { book: data })),
    line(t('book.format'), h('code', null, data.mime_type)),
    line(t('books.locale'), language(data.locale)),
    line(t('books.size'), size(data.size_bytes)),
    line(t('books.chunks'), data.chunks_total === null || data.chunks_total === undefined ? '–' : number(data.chunks_total)),
    line(t('books.made'), exact(data.created_at)),
    line(t('uses.title'), h(Uses, { id: data.id })),
    line('SHA-256', h(Id, { id: data.sha256 })));
}

/** @param {string} name @param {any} value */
const line = (name, value) => h('div', { key: name }, h('dt', { class: 'soft' }, name), h('dd', null, value));

/** Asks the book as a character does. @param {{book: SkillsBook}} props */
function Question({ book: data }) {
  const [text, setText] = useState('');
  const [found, setFound] = useState(/** @type {{asked: string, chunks: import('../types.js').Schemas['ChunkMatch'][]} | undefined} */ (undefined));
  const searchable = data.state === 'ready' || data.chunks_indexed > 0;
  const { busy, error, run } = useAct(async () => {
    const { chunks } = await get(path`/v1/skills-books/${data.id}/search`, { q: text.trim(), limit: 5 });
    setFound({ asked: text.trim(), chunks });
  });
  return h(Card, { title: t('book.ask') }, h('div', { class: 'stack' },
    h('form', { class: 'input-group', onSubmit: run },
      h('input', { class: 'input', type: 'text', 'aria-label': t('book.ask.label'), placeholder: t('book.ask.label'), maxLength: 1_000, disabled: !searchable, value: text, onInput: (/** @type {any} */ event) => setText(event.target.value) }),
      h(Button, { kind: 'primary', type: 'submit', icon: 'search', busy, disabled: !searchable || text.trim() === '' }, t('book.ask.act'))),
    h(Failure, { error }),
    h('div', { role: 'status' }, !found ? h('p', { class: 'soft' }, t(searchable ? 'book.ask.text' : 'book.ask.notYet'))
      : found.chunks.length === 0 ? h(Empty, { picture: false, title: t('book.ask.none'), text: t('book.ask.none.text') })
        : h('p', { class: 'small soft' }, t('book.ask.found', { n: found.chunks.length }))),
    found && found.chunks.length > 0 && h('ol', { class: 'passages' }, found.chunks.map((chunk) => h('li', { key: chunk.chunk },
      h('div', { class: 'row apart small soft' }, h('span', null, chunk.heading ? h(Text, null, chunk.heading) : chunk.page ? t('book.page', { page: chunk.page }) : t('book.chunk', { chunk: chunk.chunk })), h('span', { class: 'number', title: t('book.score.text') }, t('book.score', { score: number(chunk.score, { maximumFractionDigits: 2 }) }))),
      h('p', { tabIndex: 0 }, h(Text, null, chunk.text)))))));
}
