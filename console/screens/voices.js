/** Voices: a sample, the consent of the person who speaks in it, and what a provider made of it. */
import { may, path, post, remove } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Head, Id, Notice, Text, Time, toast } from '../components/basic.js';
import { Confirm } from '../components/dialog.js';
import { Select } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { Player } from '../components/media.js';
import { Uses } from '../components/uses.js';
import { NewVoice } from '../components/voice_form.js';
import { duration, exact, maybe, size, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { setQuery } from '../router.js';
import { language } from './books.js';

/** @typedef {import('../types.js').Voice} Voice */

/** @type {import('../screens.js').Screen} */
export const voices = { paths: ['/voices'], title: 'voices.title', group: 'knowledge', icon: 'voice', shortcut: 'v', view: Voices };

const STATES = /** @type {Voice['state'][]} */ (['uploaded', 'training', 'ready', 'failed', 'expired']);

/** @param {{query: URLSearchParams}} props */
function Voices({ query }) {
  const state = query.get('state') ?? '';
  const list = useList('/v1/voices', 'voices', { state });
  /** @type {Voice[] | undefined} */
  const items = list.data?.items;
  const [adding, setAdding] = useState(false);
  useLive(list.reload, ['voice']);
  const add = h(Button, { kind: 'primary', icon: 'plus', disabled: !may('admin'), onClick: () => setAdding(true) }, t('voices.add'));
  return h('div', null,
    h(Head, { title: t('voices.title'), text: t('voices.text') }, add),
    h('div', { class: 'toolbar' }, h('div', null, h(Select, { 'aria-label': t('voices.state'), value: state, onChange: (value) => setQuery({ state: value }), options: [{ value: '', label: t('voices.state.all') }, ...STATES.map((value) => ({ value, label: t(`voices.state.${value}`) }))] }))),
    list.error && !items ? h(Failure, { error: list.error, retry: list.reload })
      : items && items.length === 0 ? h(Card, { flush: true }, state ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text') }) : h(Empty, { title: t('voices.none'), text: t('voices.none.text'), action: may('admin') && h(Button, { kind: 'primary', onClick: () => setAdding(true) }, t('voices.add')) }, h(Notice, { title: t('voices.consent.why') }, t('voices.consent.why.text'))))
        : h('ul', { class: 'cards', 'aria-busy': items ? undefined : 'true' }, items ? items.map((voice) => h(VoiceCard, { key: voice.id, voice, reload: list.reload })) : [1, 2, 3].map((key) => h('li', { key }, h(Bone, { width: 140 }), h(Bone, { width: 220 }), h(Bone, { width: 180 }), h(Bone, { width: 200 })))),
    list.data?.more && h('p', { class: 'row' }, h(Button, { onClick: list.more, busy: list.loading }, t('act.more'))),
    adding && h(NewVoice, { onClose: () => setAdding(false), added: () => {
      setAdding(false);
      list.reload();
    } }));
}

/** @type {Record<Voice['state'], ['good' | 'bad' | 'warn' | 'calm', import('../components/icon.js').IconName]>} */
const LOOKS = { uploaded: ['calm', 'clock'], training: ['calm', 'clock'], ready: ['good', 'check'], failed: ['bad', 'cross'], expired: ['warn', 'warning'] };

/** @param {{voice: Voice, reload: () => void}} props */
function VoiceCard({ voice, reload }) {
  const [deleting, setDeleting] = useState(false);
  const [busy, setBusy] = useState(false);
  const [tone, icon] = LOOKS[voice.state];
  const train = async () => {
    setBusy(true);
    try {
      await post(path`/v1/voices/${voice.id}/train`);
      toast(t('voices.trained'));
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    setBusy(false);
    reload();
  };
  const { consent } = voice;
  return h('li', null,
    h('div', { class: 'row apart' }, h('h2', null, h(Text, null, voice.name)), h('span', { class: `state ${tone}` }, h(Icon, { name: icon }), t(`voices.state.${voice.state}`))),
    voice.error && h('p', { class: 'small soft break' }, maybe(`voices.error.${voice.error.kind}`) ?? h(Text, null, voice.error.detail)),
    h(Player, { path: path`/v1/voices/${voice.id}/preview`, label: t('voices.play', { name: voice.name }) }),
    h('div', { class: 'row' }, h('span', { class: 'tag', title: t('voices.provider') }, voice.provider), (voice.languages ?? []).map((tag) => h('span', { class: 'tag', key: tag, title: tag }, language(tag))), (voice.labels ?? []).map((label) => h('span', { class: 'tag accent', key: label }, h(Text, null, label)))),
    h('div', { class: 'stack tight' },
      h('span', { class: 'small soft' }, t('voices.consent.of', { name: '' }), h('strong', null, h(Text, null, consent.by)), ', ', h(Time, { at: consent.agreed_at })),
      h('blockquote', { class: 'consent small', title: consent.statement }, h(Text, null, consent.statement)),
      h('span', { class: 'small soft' }, consent.expires_at ? t('voices.consent.until', { time: exact(consent.expires_at) }) : t('voices.consent.forever'))),
    h('div', { class: 'row apart small soft' }, h('span', { class: 'number' }, `${duration(voice.duration_ms)} · ${size(voice.size_bytes)}`), h(Id, { id: voice.id })),
    may('admin') && h('div', { class: 'acts' },
      h(Button, { small: true, icon: 'again', busy, disabled: voice.state === 'training' || voice.state === 'uploaded', onClick: train }, t('voices.train')),
      h(Button, { small: true, kind: 'danger', icon: 'trash', onClick: () => setDeleting(true) }, t('act.delete'))),
    deleting && h(Confirm, { title: t('voices.delete', { name: voice.name }), text: h('span', { class: 'stack tight' }, t('voices.delete.text'), h('span', { class: 'row' }, t('uses.title'), h(Uses, { id: voice.id }))), act: t('act.delete'), word: voice.name, onClose: () => setDeleting(false), run: async () => {
      await remove(path`/v1/voices/${voice.id}`);
      reload();
    } }));
}
