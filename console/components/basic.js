/** The small parts that every screen uses. */
import { Problem } from '../api.js';
import { parts } from '../form/safe.js';
import { exact, maybe, relative, t } from '../i18n.js';
import { Fragment, h, signal, useEffect, useRef, useState } from '../preact.js';
import { href } from '../router.js';
import { Icon, LooseCord } from './icon.js';

/** @typedef {import('./icon.js').IconName} IconName */

/** A text of a device or a person, its invisible characters marked. @param {{children: string | undefined | null}} props */
export function Text({ children }) {
  if (!children) return null;
  return h(Fragment, null, parts(String(children)).map((part) => (part.mark ? h('span', { class: 'mark' }, part.text) : part.text)));
}

/** @param {{icon?: IconName, kind?: 'primary' | 'danger' | 'plain', small?: boolean, label?: string, busy?: boolean, children?: any, [more: string]: any}} props */
export function Button({ icon, kind, small, label, busy, children, class: more, ...rest }) {
  const classes = ['button', kind, small && 'small', !children && 'icon', more].filter(Boolean).join(' ');
  const content = [icon && h(Icon, { name: icon }), children];
  if (rest.href) return h('a', { class: classes, 'aria-label': label, title: label, ...rest }, content);
  return h('button', { type: 'button', class: classes, 'aria-label': label, title: label, ...rest, disabled: rest.disabled || busy, 'aria-busy': busy ? 'true' : undefined }, content);
}

/** A line at the edge of the page that goes away by itself. @type {import('../vendor/signals.mjs').Signal<{id: number, text: string, icon: IconName}[]>} */
export const toasts = signal([]);
let toastId = 0;

/** @param {string} text @param {IconName} [icon] */
export function toast(text, icon = 'check') {
  toastId += 1;
  const id = toastId;
  toasts.value = [...toasts.value, { id, text, icon }].slice(-3);
  setTimeout(() => { toasts.value = toasts.value.filter((each) => each.id !== id); }, 4_000);
}

/** Copies a text; without a secure context the person has to. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t('act.copied'));
    return true;
  } catch {
    toast(t('act.copy.failed'), 'info');
    return false;
  }
}

/** An id in monospace, one click to copy; a link if it leads somewhere. @param {{id: string, to?: string, strong?: boolean}} props */
export function Id({ id, to, strong }) {
  const shown = h(Text, null, id);
  return h('span', { class: 'id' },
    to ? h('a', { href: href(to), class: strong ? 'main' : undefined, title: id }, shown) : h('span', { title: id }, shown),
    h('button', { type: 'button', 'aria-label': t('act.copy.id', { id }), title: t('act.copy'), onClick: () => copy(id) }, h(Icon, { name: 'copy' })));
}

/** A time relative to now, exact when pointed at. @param {{at: string | null | undefined}} props */
export function Time({ at }) {
  if (!at) return h('span', { class: 'faint' }, t('time.never'));
  return h('time', { dateTime: at, title: exact(at) }, relative(at));
}

/** Whether a device is connected: a lamp, and the word. @param {{online: boolean}} props */
export function Presence({ online }) {
  return h('span', { class: `lamp ${online ? 'on' : 'off'}` }, h('i', { 'aria-hidden': 'true' }), t(online ? 'device.online' : 'device.offline'));
}

/** @type {Record<string, ['good' | 'bad' | 'warn' | 'calm', IconName]>} */
const OUTCOMES = {
  succeeded: ['good', 'check'], failed: ['bad', 'cross'], invalid: ['warn', 'warning'], unknown_device: ['warn', 'question'],
  unknown_service: ['warn', 'question'], offline: ['calm', 'ring'], overloaded: ['warn', 'warning'], cancelled: ['calm', 'minus'],
  timed_out: ['warn', 'clock'], lost: ['bad', 'question'], expired: ['calm', 'clock'], unavailable: ['warn', 'warning'], not_sent: ['warn', 'warning'], queued: ['calm', 'clock'], sent: ['calm', 'right'],
};

/** How a call ended, or its state before that. @param {{outcome: string}} props */
export function Outcome({ outcome }) {
  const [tone, icon] = OUTCOMES[outcome] ?? ['calm', 'info'];
  return h('span', { class: `state ${tone}` }, h(Icon, { name: icon }), maybe(`outcome.${outcome}`) ?? outcome);
}

/** Whether the device may have acted. @param {{delivered: string}} props */
export function Delivered({ delivered }) {
  return h('span', { title: maybe(`delivered.${delivered}.text`) }, maybe(`delivered.${delivered}`) ?? delivered);
}

/** The head of a page. @param {{title: any, text?: any, back?: {to: string, label: string}, children?: any}} props */
export function Head({ title, text, back, children }) {
  return h('header', { class: 'page-head' },
    h('div', null,
      back && h('a', { class: 'crumb', href: href(back.to) }, h(Icon, { name: 'left' }), back.label),
      h('h1', null, title),
      text && h('p', null, text)),
    children && h('div', { class: 'row' }, children));
}

/** A titled container. @param {{title?: any, actions?: any, children?: any, flush?: boolean, footer?: any, class?: string}} props */
export function Card({ title, actions, children, flush, footer, class: more }) {
  return h('section', { class: `card ${more ?? ''}` },
    title !== undefined && h('header', null, typeof title === 'string' ? h('h2', null, title) : title, actions && h('div', { class: 'row' }, actions)),
    flush ? children : h('div', { class: 'body' }, children),
    footer && h('footer', null, footer));
}

/** What a page shows in place of nothing: what would be here, and the first step to it. @param {{title: string, text?: any, children?: any, picture?: boolean, action?: any, heading?: 'h1' | 'h2'}} props */
export function Empty({ title, text, children, picture = true, action, heading = 'h2' }) {
  return h('div', { class: 'empty' },
    picture && h(LooseCord, null),
    h(heading, null, title),
    text && h('p', null, text),
    action && h('div', { class: 'row' }, action),
    children && h('div', { class: 'more' }, children));
}

/** A line in place of a text that is being read. @param {{width?: number}} props */
export function Bone({ width = 120 }) {
  return h('span', { class: 'bone', style: { width: `${width}px`, maxWidth: '100%' }, 'aria-hidden': 'true' });
}

/** How long a change waits for the next one before it is announced. */
const ANNOUNCE_DELAY_MS = 1_500;

/** Announces to screen readers how a count has changed, once it is stable. @param {{text: string | undefined}} props */
export function Announcer({ text }) {
  const known = useRef(text);
  const [announced, setAnnounced] = useState('');
  useEffect(() => {
    known.current ??= text;
    if (text === undefined || text === known.current) return undefined;
    const timer = setTimeout(() => {
      known.current = text;
      setAnnounced(text);
    }, ANNOUNCE_DELAY_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return h('span', { class: 'hidden', role: 'status' }, announced);
}

/** A remark with a weight. @param {{tone?: 'bad' | 'warn' | 'good', icon?: IconName, title?: any, children?: any, role?: any, actions?: any}} props */
export function Notice({ tone, icon, title, children, role, actions }) {
  const fallback = tone ? /** @type {const} */ ({ bad: 'warning', warn: 'warning', good: 'check' })[tone] : 'info';
  return h('div', { class: `notice ${tone ?? ''}`, role },
    h(Icon, { name: icon ?? fallback }),
    h('div', null, title && h('strong', null, title), children, actions && h('div', { class: 'row' }, actions)));
}

/** The seconds that are left of a wait. @param {number | undefined} ms */
function useCountdown(ms) {
  const [end, setEnd] = useState(() => Date.now() + (ms ?? 0));
  const [left, setLeft] = useState(Math.ceil((ms ?? 0) / 1_000));
  useEffect(() => { setEnd(Date.now() + (ms ?? 0)); }, [ms]);
  useEffect(() => {
    const tick = () => setLeft(Math.max(0, Math.ceil((end - Date.now()) / 1_000)));
    tick();
    const timer = setInterval(tick, 500);
    return () => clearInterval(timer);
  }, [end]);
  return left;
}

/** The title of a kind of problem; whatever is wrong with a token, it was refused. @param {string} kind */
export const titleOf = (kind) => maybe(`problem.${kind.replace(/^token_.*/, 'token')}`);

/** What went wrong: the title by the problem's type, its detail as it came. @param {{error: Error | undefined, retry?: () => void}} props */
export function Failure({ error, retry }) {
  const left = useCountdown(error instanceof Problem ? error.retryAfterMs : undefined);
  if (!error) return null;
  const problem = error instanceof Problem ? error : undefined;
  const title = problem ? titleOf(problem.kind) ?? (problem.title || t('problem.other', { status: problem.status })) : t('problem.unreachable');
  return h(Notice, { tone: 'bad', role: 'alert', title, actions: retry && h(Button, { small: true, icon: 'again', disabled: left > 0, onClick: retry }, left > 0 ? t('act.retry.in', { s: left }) : t('act.retry')) },
    h('span', null, h(Text, null, problem ? String(problem.document.detail ?? '') : t('problem.unreachable.text'))),
    problem && problem.errors.length > 0 && h('ul', null, problem.errors.map((each) => h('li', null, h('code', null, h(Text, null, each.pointer || '/')), ' ', h(Text, null, each.detail)))),
    problem?.trace && h('span', { class: 'small soft' }, t('problem.trace'), ' ', h(Id, { id: problem.trace })));
}
