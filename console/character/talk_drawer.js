/** A conversation with an NPC, beside the page: streamed, with the calls it makes. */
import { may, path, Problem, send } from '../api.js';
import { Button, Failure, Notice, Outcome, Text } from '../components/basic.js';
import { Json } from '../components/code.js';
import { TextField } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { t } from '../i18n.js';
import { h, signal, useEffect, useRef, useState } from '../preact.js';
import { href } from '../router.js';
import { settings } from '../settings.js';
import { read } from '../sse.js';
import { Avatar } from './controls.js';
import { apply, begin } from './talk.js';

/** @typedef {import('./talk.js').Turn} Turn */
/** @typedef {{turns: Turn[], conversation: string | undefined}} Talk */

/** The conversations of this page, by NPC: closing the drawer keeps them. @type {import('../vendor/signals.mjs').Signal<Record<string, Talk>>} */
const talks = signal({});
/** @type {Map<string, AbortController>} */
const running = new Map();
/** @type {Talk} */
const NONE = { turns: [], conversation: undefined };
const MAX_MESSAGE_CHARS = 16_384;

/** @param {string} npc @param {(talk: Talk) => Talk} change */
function update(npc, change) {
  talks.value = { ...talks.value, [npc]: change(talks.value[npc] ?? NONE) };
}

/** @param {string} npc @param {(turn: Turn) => Turn} change */
function updateLast(npc, change) {
  update(npc, (talk) => ({ ...talk, turns: talk.turns.map((turn, index) => (index === talk.turns.length - 1 ? change(turn) : turn)) }));
}

/** Sends a message, and follows the answer. @param {string} npc @param {string} text @param {string} subject */
async function sendMessage(npc, text, subject) {
  const stopping = new AbortController();
  running.set(npc, stopping);
  const { conversation } = talks.value[npc] ?? NONE;
  update(npc, (talk) => ({ ...talk, turns: [...talk.turns, begin(text)] }));
  try {
    const response = await send('POST', path`/v1/npcs/${npc}/chat`, {
      accept: 'text/event-stream', headers: { 'Accept-Language': settings.value.language === 'zh' ? 'zh-Hans, en;q=0.5' : 'en' }, signal: stopping.signal,
      body: { text, ...(conversation && { conversation_id: conversation }), ...(subject && { subject }) },
    });
    await read(response, (event) => {
      if (stopping.signal.aborted) return;
      const data = JSON.parse(event.data);
      if (data.conversation_id) update(npc, (talk) => ({ ...talk, conversation: data.conversation_id }));
      updateLast(npc, (turn) => apply(turn, { type: event.type, data }));
    });
    if (!stopping.signal.aborted) updateLast(npc, (turn) => (turn.state === 'answering' ? { ...turn, state: 'failed', problem: { detail: t('talk.cut') } } : turn));
  } catch (error) {
    if (stopping.signal.aborted) return;
    updateLast(npc, (turn) => ({ ...turn, state: 'failed', problem: error instanceof Problem ? error : { detail: String(/** @type {Error} */ (error).message) } }));
  } finally {
    if (running.get(npc) === stopping) running.delete(npc);
  }
}

/** @param {string} npc */
function stop(npc) {
  running.get(npc)?.abort();
  running.delete(npc);
  updateLast(npc, (turn) => (turn.state === 'answering' ? { ...turn, state: 'stopped' } : turn));
}

/** @param {{npc: {id: string, effective: any}, onClose: () => void}} props */
export function TalkDrawer({ npc, onClose }) {
  const { turns } = talks.value[npc.id] ?? NONE;
  const [text, setText] = useState('');
  const [subject, setSubject] = useState('');
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const box = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const end = useRef(/** @type {HTMLDivElement | null} */ (null));
  const answering = turns.at(-1)?.state === 'answering';
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    box.current?.focus();
    return () => element?.close();
  }, []);
  useEffect(() => { if (end.current) end.current.scrollTop = end.current.scrollHeight; }, [turns]);
  const submit = (/** @type {string} */ typed) => {
    const wanted = typed.trim();
    if (wanted === '' || answering || !may('call')) return;
    setText('');
    sendMessage(npc.id, wanted, subject.trim());
    box.current?.focus();
  };
  const name = npc.effective.name;
  const greeting = npc.effective.persona?.greeting?.[0];
  return h('dialog', { ref: dialog, class: 'drawer', 'aria-labelledby': 'talk-title', onCancel: (/** @type {Event} */ event) => {
    event.preventDefault();
    onClose();
  } },
  h('div', { class: 'talk' },
    h('header', { class: 'talk-head' },
      h(Avatar, { id: npc.effective.avatar, name }),
      h('div', { class: 'grow' }, h('h2', { id: 'talk-title' }, h(Text, null, name)), npc.effective.persona?.role && h('div', { class: 'small soft clip' }, h(Text, null, npc.effective.persona.role))),
      h(Button, { small: true, kind: 'plain', icon: 'again', disabled: turns.length === 0, label: t('talk.new'), onClick: () => {
        stop(npc.id);
        update(npc.id, () => NONE);
        box.current?.focus();
      } }),
      h(Button, { small: true, kind: 'plain', icon: 'cross', label: t('act.close'), onClick: onClose })),
    h('div', { class: 'talk-log', ref: end, role: 'log', 'aria-label': t('talk.log', { name }), 'aria-busy': answering ? 'true' : undefined, tabIndex: 0 },
      greeting && h('div', { class: 'bubble' }, h(Text, null, greeting)),
      turns.length === 0 && h('div', { class: 'talk-start' },
        h('p', { class: 'soft' }, t('talk.start', { name })),
        may('call') && h('div', { class: 'suggestions' }, /** @type {const} */ (['talk.example.can', 'talk.example.time', 'talk.example.know']).map((key) => h('button', { type: 'button', key, onClick: () => submit(t(key)) }, t(key))))),
      turns.map((turn, index) => h(OneTurn, { key: index, turn }))),
    h('footer', { class: 'talk-foot' },
      !may('call') && h(Notice, { tone: 'warn' }, t('scope.missing', { scope: 'call' })),
      h('form', { class: 'talk-form', onSubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        submit(text);
      } },
      h('textarea', { ref: box, class: 'textarea', rows: 2, maxLength: MAX_MESSAGE_CHARS, 'aria-label': t('talk.message'), placeholder: t('talk.message'), value: text, disabled: !may('call'), onInput: (/** @type {any} */ event) => setText(event.target.value), onKeyDown: (/** @type {KeyboardEvent} */ event) => {
        // An IME confirms its choice with Enter.
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
        event.preventDefault();
        submit(text);
      } }),
      answering ? h(Button, { key: 'stop', icon: 'stop', onClick: () => stop(npc.id) }, t('talk.stop')) : h(Button, { key: 'send', kind: 'primary', type: 'submit', disabled: text.trim() === '' || !may('call') }, t('talk.send'))),
      h('details', { class: 'small' }, h('summary', null, t('talk.options')), h('div', { class: 'inset stack tight' },
        h(TextField, { label: t('talk.subject'), hint: t('talk.subject.hint'), value: subject, onInput: setSubject, maxLength: 128, placeholder: 'user:anna', spellcheck: false, autocapitalize: 'off' }))))));
}

/** @param {{turn: Turn}} props */
function OneTurn({ turn }) {
  const { problem } = turn;
  const error = problem && (problem instanceof Error ? problem : new Problem(Number(problem.status ?? 0), problem, undefined, undefined));
  return h('div', { class: 'turn' },
    h('div', { class: 'bubble mine' }, h('span', { class: 'hidden' }, t('talk.you')), h(Text, null, turn.message)),
    turn.parts.map((part, index) => (part.kind === 'text'
      ? part.text.trim() && h('div', { class: 'bubble', key: index }, h(Text, null, part.text))
      : h('details', { class: 'tool-call', key: index },
        h('summary', null, h(Icon, { name: 'calls' }), h('span', { class: 'mono break' }, h(Text, null, part.tool)), h('span', { class: 'small soft' }, h(Text, null, part.device)), part.outcome && h(Outcome, { outcome: part.outcome })),
        h('div', { class: 'stack tight' },
          h('div', { class: 'small soft' }, t('talk.params')), h(Json, { value: part.params ?? {}, label: t('talk.params') }),
          h('div', { class: 'small soft' }, t('talk.result')), h(Json, { value: part.result ?? null, label: t('talk.result') }),
          h('a', { class: 'small', href: href(`/devices/${encodeURIComponent(part.device)}`, { service: part.tool }) }, t('talk.device')))))),
    turn.state === 'answering' && h('div', { class: 'typing', role: 'status' }, h('span', { class: 'hidden' }, t('talk.answering')), h('i', null), h('i', null), h('i', null)),
    turn.state === 'stopped' && h('p', { class: 'small soft' }, t('talk.stopped')),
    error && h(Failure, { error }),
    turn.sources.length > 0 && h('div', { class: 'row small sources' }, h('span', { class: 'soft' }, t('talk.sources')), turn.sources.map((source) => h('span', { class: 'tag', key: source.id + source.title, title: source.id }, h(Text, null, source.title || t(source.kind === 'memory' ? 'talk.memory' : 'talk.passage'))))));
}
