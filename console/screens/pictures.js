/** Pictures: portraits of characters, and what agents may see. */
import { may, path, remove, request } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Head, Id, Notice, Text } from '../components/basic.js';
import { Confirm, Dialog } from '../components/dialog.js';
import { Drop } from '../components/drop.js';
import { Picture } from '../components/media.js';
import { Uses } from '../components/uses.js';
import { plain } from '../form/safe.js';
import { exact, number, size, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { setQuery } from '../router.js';
import { random } from '../upload/books.js';

/** @typedef {import('../types.js').Picture} Portrait */

/** @type {import('../screens.js').Screen} */
export const pictures = { paths: ['/pictures'], title: 'pictures.title', group: 'knowledge', icon: 'picture', shortcut: 'i', view: Pictures };

const ACCEPT = '.png,.jpg,.jpeg,.gif,.webp,image/png,image/jpeg,image/gif,image/webp';
const MAX_BYTES = 10 * 1024 * 1024;

/** The URI of a picture by the name of its file. @param {string} name */
export function uriOf(name) {
  const words = name.replace(/\.\w+$/, '').toLowerCase().normalize('NFKD').replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '');
  return `picture://${words || 'picture'}-${random().slice(0, 6)}`;
}

/** @param {{query: URLSearchParams}} props */
function Pictures({ query }) {
  const list = useList('/v1/pictures', 'pictures', {}, 48);
  /** @type {Portrait[] | undefined} */
  const items = list.data?.items;
  const [sending, setSending] = useState(/** @type {string[]} */ ([]));
  const [failed, setFailed] = useState(/** @type {{name: string, error: Error}[]} */ ([]));
  useLive(list.reload, ['picture']);
  const take = async (/** @type {File[]} */ files) => {
    setFailed([]);
    for (const file of files) {
      setSending((all) => [...all, file.name]);
      try {
        if (file.size > MAX_BYTES) throw new Error(t('pictures.large', { size: size(file.size) }));
        const name = file.name.replace(/\.\w+$/, '').slice(0, 100) || file.name.slice(0, 100);
        await request('POST', '/v1/pictures', { body: file, contentType: 'application/octet-stream', key: random(), query: { name, uri: uriOf(file.name) } });
      } catch (error) {
        setFailed((all) => [...all, { name: file.name, error: /** @type {Error} */ (error) }]);
      }
      setSending((all) => all.filter((each) => each !== file.name));
    }
    list.reload();
  };
  const shown = items?.find((each) => each.id === query.get('id'));
  return h('div', { class: 'stack' },
    h(Head, { title: t('pictures.title'), text: t('pictures.text') }),
    may('admin') && h(Drop, { label: sending.length > 0 ? t('pictures.sending', { n: sending.length }) : t('pictures.drop'), hint: t('pictures.formats'), accept: ACCEPT, multiple: true, onFiles: take }),
    failed.map(({ name, error }) => h(Notice, { key: name, tone: 'bad', role: 'alert', title: plain(name) }, h(Text, null, error.message))),
    list.error && !items ? h(Failure, { error: list.error, retry: list.reload })
      : items && items.length === 0 ? h(Card, { flush: true }, h(Empty, { title: t('pictures.none'), text: t('pictures.none.text') }))
        : h('ul', { class: 'pictures', 'aria-busy': items ? undefined : 'true' }, items ? items.map((picture) => h('li', { key: picture.id },
          h('button', { type: 'button', class: 'frame-box', 'aria-label': t('pictures.open', { name: plain(picture.name) }), onClick: () => setQuery({ id: picture.id }) }, h(Picture, { path: path`/v1/pictures/${picture.id}/content`, alt: '' })),
          h('strong', { class: 'clip', title: plain(picture.name) }, h(Text, null, picture.name)),
          h('span', { class: 'small soft number' }, `${number(picture.width)} × ${number(picture.height)} · ${size(picture.size_bytes)}`))) : Array.from({ length: 6 }, (_, key) => h('li', { key }, h('span', { class: 'frame-box' }, h('span', { class: 'bone picture-bone' })), h(Bone, { width: 90 }), h(Bone, { width: 110 })))),
    list.data?.more && h('p', { class: 'row' }, h(Button, { onClick: list.more, busy: list.loading }, t('act.more'))),
    shown && h(Details, { picture: shown, onClose: () => setQuery({ id: undefined }), removed: list.reload }));
}

/** @param {{picture: Portrait, onClose: () => void, removed: () => void}} props */
function Details({ picture, onClose, removed }) {
  const [deleting, setDeleting] = useState(false);
  if (deleting) {
    return h(Confirm, { title: t('pictures.delete', { name: picture.name }), text: h('span', { class: 'stack tight' }, t('pictures.delete.text'), h('span', { class: 'row' }, t('uses.title'), h(Uses, { id: picture.id }))), act: t('act.delete'), onClose: () => setDeleting(false), run: async () => {
      await remove(path`/v1/pictures/${picture.id}`);
      onClose();
      removed();
    } });
  }
  return h(Dialog, { title: h(Text, null, picture.name), onClose, wide: true },
    h('div', { class: 'picture-large' }, h(Picture, { path: path`/v1/pictures/${picture.id}/content`, alt: plain(picture.name) })),
    h('dl', { class: 'facts lines' },
      line(t('pictures.size'), `${number(picture.width)} × ${number(picture.height)} · ${size(picture.size_bytes)}`),
      line(t('pictures.format'), h('code', null, picture.mime_type)),
      line('URI', h(Id, { id: picture.uri })),
      line(t('pictures.id'), h(Id, { id: picture.id })),
      line(t('pictures.made'), exact(picture.created_at)),
      line(t('uses.title'), h(Uses, { id: picture.id }))),
    h('div', { class: 'actions' }, may('admin') && h(Button, { kind: 'danger', icon: 'trash', onClick: () => setDeleting(true) }, t('act.delete'))));
}

/** @param {string} name @param {any} value */
const line = (name, value) => h('div', { key: name }, h('dt', { class: 'soft' }, name), h('dd', null, value));
