/**
 * Keeps what is shown up to date. While the stream of events is open, an event marks what it is
 * about, and that is read again; whatever no event is about, and everything while there is no
 * stream, is read every few seconds. A hidden page or a pause has neither.
 */
import { Problem, send, session } from './api.js';
import { signal, useEffect, useRef } from './preact.js';
import { isStream, read } from './sse.js';

export const POLL_INTERVAL_MS = 5_000;
/** Every this many polls, what events are about is read too: not all of it has an event. */
const POLLS_PER_READING = 12;
/** At most one reading of a view in this time, however many events it is about. */
export const EVENT_INTERVAL_MS = 1_000;
/** The server sends a keep-alive every 15 s. */
const KEEP_ALIVE_TIMEOUT_MS = 45_000;
const FIRST_BACKOFF_MS = 1_000;
const MAX_BACKOFF_MS = 30_000;
/** How long a refused stream waits: it may be that of a server of the previous release. */
export const REFUSED_BACKOFF_MS = 60_000;
/** A stream that ends before this time and without an event does not end the backoff. */
const STABLE_MS = 10_000;
const MAX_EVENTS = 200;

/**
 * @typedef {{type: string, id?: string, data: Record<string, any>}} LiveEvent
 * @typedef {{reload: () => void, of: string[] | undefined, last: number, timer: ReturnType<typeof setTimeout> | undefined}} Subscriber
 * @typedef {{open: () => void, event: (event: LiveEvent) => void, move: (id: string) => void}} Sink
 * @typedef {(last: string | undefined, on: Sink, stop: AbortSignal) => Promise<void>} Source
 * runs until the stream ends; calls `open` once it is there, and `move` with a position after events of others
 */

/** What an event is about: its type, the kind of thing, and the things themselves. @param {LiveEvent} event @returns {string[]} */
export function topics({ type, data }) {
  const kind = type === 'setting.changed' ? String(data.kind) : type.replace(/\..*$/, '');
  return [type, kind, ...[data.device_id, data.call_id, data.id].filter((id) => typeof id === 'string').map((id) => `${kind}:${id}`)];
}

/** Whether the session receives the events of a topic: one of some devices receives those of devices only. @param {string} topic */
function isReceived(topic) {
  const { device_prefix: prefix, device_label: label } = session.value?.restrictions ?? {};
  return !(prefix || label) || /^(device|call)([.:]|$)/.test(topic);
}

export class Live {
  /** @param {Source} [source] of events; without one, everything is polled */
  constructor(source) {
    this.source = source;
    this.paused = signal(false);
    /** How changes are noticed. @type {import('./vendor/signals.mjs').Signal<'live' | 'reconnecting' | 'polling'>} */
    this.state = signal('polling');
    /** The last events, newest first. @type {import('./vendor/signals.mjs').Signal<LiveEvent[]>} */
    this.events = signal([]);
    /** @type {Set<Subscriber>} */
    this.subscribers = new Set();
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
    /** @type {string | undefined} */
    this.last = undefined;
    /** @type {AbortController | undefined} */
    this.stream = undefined;
  }

  /** Adds a subscriber; returns what removes it. @param {() => void} reload @param {string[]} [of] the topics that it shows; without them it is polled */
  subscribe(reload, of) {
    const subscriber = /** @type {Subscriber} */ ({ reload, of, last: 0, timer: undefined });
    this.subscribers.add(subscriber);
    return () => {
      clearTimeout(subscriber.timer);
      this.subscribers.delete(subscriber);
    };
  }

  /** Holds what is shown still, or reloads it and keeps it up to date again. @param {boolean} paused */
  pause(paused) {
    this.paused.value = paused;
    this.reload();
    this.follow();
  }

  start() {
    let polls = 0;
    this.timer ??= setInterval(() => {
      polls += 1;
      this.reload(this.state.value === 'live' && polls % POLLS_PER_READING !== 0);
    }, POLL_INTERVAL_MS);
    this.follow();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = undefined;
    this.last = undefined;
    this.events.value = [];
    this.follow();
  }

  /** A hidden page would keep its session from ending. */
  get resting() {
    return this.timer === undefined || this.paused.value || Boolean(globalThis.document?.hidden);
  }

  /** @param {boolean} [polled] only those with something that no event is about */
  reload(polled = false) {
    if (this.paused.value || globalThis.document?.hidden) return;
    for (const subscriber of [...this.subscribers]) if (!polled || !subscriber.of?.every(isReceived)) subscriber.reload();
  }

  /** Opens the stream, or closes it, as is fit now. */
  follow() {
    if (this.resting) {
      this.stream?.abort();
      this.stream = undefined;
    } else if (!this.stream && this.source) {
      this.stream = new AbortController();
      this.run(this.source, this.stream.signal);
    }
  }

  /** @param {Source} source @param {AbortSignal} stop */
  async run(source, stop) {
    let backoff = FIRST_BACKOFF_MS;
    while (!stop.aborted) {
      let wait = 0;
      let opened = Infinity;
      let isStable = false;
      try {
        await source(this.last, {
          open: () => {
            opened = Date.now();
            this.state.value = 'live';
            if (this.last === undefined) this.reload();
          },
          event: (event) => {
            if (this.take(event)) isStable = true;
          },
          move: (id) => { this.last = id; },
        }, stop);
      } catch (error) {
        if (stop.aborted) break;
        const refusal = error instanceof Problem && error.status >= 400 && error.status < 500 ? error : undefined;
        if (refusal) wait = refusal.retryAfterMs ?? REFUSED_BACKOFF_MS;
      }
      if (stop.aborted) break;
      this.state.value = wait > 0 ? 'polling' : 'reconnecting';
      if (isStable || Date.now() - opened >= STABLE_MS) backoff = FIRST_BACKOFF_MS;
      wait ||= backoff * (0.5 + Math.random() / 2);
      backoff = Math.min(backoff * 2, MAX_BACKOFF_MS);
      await sleep(wait, stop);
    }
    if (this.stream === undefined || this.stream.signal === stop) this.state.value = 'polling';
  }

  /** Returns whether it is an event of the organisation. @param {LiveEvent} event */
  take(event) {
    this.last = event.id ?? event.data.position ?? this.last;
    if (event.type === 'gap') this.reload();
    if (event.type === 'gap' || event.type === 'ready') return false;
    this.events.value = [event, ...this.events.value].slice(0, MAX_EVENTS);
    const about = topics(event);
    for (const subscriber of this.subscribers) if (subscriber.of?.some((topic) => about.includes(topic))) this.mark(subscriber);
    return true;
  }

  /** @param {Subscriber} subscriber */
  mark(subscriber) {
    if (subscriber.timer !== undefined) return;
    const left = subscriber.last + EVENT_INTERVAL_MS - Date.now();
    subscriber.timer = setTimeout(() => {
      subscriber.timer = undefined;
      subscriber.last = Date.now();
      if (!this.paused.value) subscriber.reload();
    }, Math.max(0, left));
  }
}

/** @param {number} ms @param {AbortSignal} stop ends it early */
function sleep(ms, stop) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      stop.removeEventListener('abort', end);
      resolve(undefined);
    };
    const timer = setTimeout(end, ms);
    stop.addEventListener('abort', end);
  });
}

/** The events of the organisation. @type {Source} */
async function organisationEvents(last, on, stop) {
  const silence = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const activity = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), KEEP_ALIVE_TIMEOUT_MS);
  };
  try {
    const response = await send('GET', '/v1/events', { accept: 'text/event-stream', signal: AbortSignal.any([stop, silence.signal]), headers: last ? { 'Last-Event-ID': last } : undefined });
    if (!isStream(response)) throw new Problem(404, {}, undefined, undefined);
    on.open();
    activity();
    await read(response, ({ type, id, data }) => {
      const value = JSON.parse(data);
      on.event({ type, id, data: value && typeof value === 'object' ? value : {} });
    }, { activity, move: on.move });
  } finally {
    clearTimeout(timer);
  }
}

/** What keeps this page up to date. */
export const live = new Live(organisationEvents);
globalThis.document?.addEventListener('visibilitychange', () => live.follow());

/** Calls back whenever what a view shows is to be read again. @param {() => void} reload @param {string[]} [of] as `topics` names it: kinds, or things such as `device:toy-1` */
export function useLive(reload, of) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => live.subscribe(() => latest.current(), of), [of?.join(' ')]);
}
