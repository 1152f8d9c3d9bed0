/**
 * What happens in the organisation, as it happens: `GET /v1/events`, resumed after a break. Where
 * the server has no events or refuses them, subscribers are asked to reload every few seconds.
 *
 * Invariant: after a gap, a pause or a change of the way, subscribers get `reload`, so that no list
 * stays behind.
 */
import { Problem, send } from './api.js';
import { signal, useEffect, useRef } from './preact.js';
import { isStream, read } from './sse.js';

/** @typedef {import('./types.js').LiveEvent} LiveEvent */
/** @typedef {'connecting' | 'live' | 'reconnecting' | 'polling' | 'stopped'} State */
/**
 * @typedef {object} Ports what a `Live` needs from its surroundings
 * @property {(lastId: string | undefined, emit: (event: import('./sse.js').ServerEvent) => void, opened: () => void, signal: AbortSignal) => Promise<void>} open reads events until the stream ends
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} wait
 * @property {() => number} [random]
 */

const POLL_INTERVAL_MS = 5_000;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 15_000;
/** How often polling tries again whether there are events. */
const POLLS_BEFORE_RETRY = 12;

export class Live {
  /** @param {Ports} ports */
  constructor(ports) {
    this.ports = ports;
    /** @type {import('./vendor/signals.mjs').Signal<State>} */
    this.state = signal('stopped');
    this.paused = signal(false);
    /** Events that came in the pause. */
    this.missed = signal(0);
    /** @type {Set<(event: LiveEvent) => void>} */
    this.subscribers = new Set();
    /** @type {AbortController | undefined} */
    this.stopping = undefined;
    /** @type {string | undefined} */
    this.lastId = undefined;
  }

  /** Adds a subscriber; returns what removes it. @param {(event: LiveEvent) => void} subscriber */
  subscribe(subscriber) {
    this.subscribers.add(subscriber);
    return () => { this.subscribers.delete(subscriber); };
  }

  /** @param {LiveEvent} event */
  publish(event) {
    if (this.paused.value) {
      this.missed.value += 1;
      return;
    }
    for (const subscriber of [...this.subscribers]) subscriber(event);
  }

  /** Holds events back, or lets them through again. @param {boolean} paused */
  pause(paused) {
    this.paused.value = paused;
    if (!paused && this.missed.value > 0) {
      this.missed.value = 0;
      this.publish({ type: 'reload', data: {} });
    }
  }

  /** Follows events until `stop`. */
  async start() {
    if (this.stopping) return;
    const stopping = new AbortController();
    this.stopping = stopping;
    this.state.value = 'connecting';
    let backoff = FIRST_BACKOFF_MS;
    let first = true;
    while (!stopping.signal.aborted) {
      try {
        await this.ports.open(this.lastId, (event) => this.take(event), () => {
          if (!first && this.lastId === undefined) this.publish({ type: 'reload', data: {} });
          first = false;
          backoff = FIRST_BACKOFF_MS;
          this.state.value = 'live';
        }, stopping.signal);
      } catch (error) {
        if (stopping.signal.aborted) break;
        if (error instanceof Problem && isFinal(error)) {
          first = false;
          await this.poll(stopping.signal);
          continue;
        }
        backoff = Math.max(backoff, error instanceof Problem ? error.retryAfterMs ?? 0 : 0);
      }
      if (stopping.signal.aborted) break;
      this.state.value = 'reconnecting';
      const random = (this.ports.random ?? Math.random)();
      await this.ports.wait(backoff * (0.5 + random / 2), stopping.signal);
      backoff = Math.min(backoff * 2, MAX_BACKOFF_MS);
    }
  }

  /** Asks subscribers to reload, for a minute. @param {AbortSignal} signal */
  async poll(signal) {
    this.state.value = 'polling';
    for (let polls = 0; polls < POLLS_BEFORE_RETRY && !signal.aborted; polls += 1) {
      await this.ports.wait(POLL_INTERVAL_MS, signal);
      if (!signal.aborted) this.publish({ type: 'reload', data: { poll: true } });
    }
  }

  stop() {
    this.stopping?.abort();
    this.stopping = undefined;
    this.lastId = undefined;
    this.state.value = 'stopped';
  }

  /** @param {import('./sse.js').ServerEvent} event */
  take(event) {
    if (event.id !== undefined) this.lastId = event.id;
    let data;
    try {
      data = JSON.parse(event.data || '{}');
    } catch {
      return;
    }
    this.publish({ type: event.type === 'gap' ? 'reload' : event.type, id: event.id, data });
  }
}

/** Whether the server has no events for this session, so that asking again at once is useless. @param {Problem} problem */
const isFinal = (problem) => [403, 404, 405, 406, 501].includes(problem.status);

/** The events of this page. */
export const live = new Live({
  async open(lastId, emit, opened, signal) {
    const response = await send('GET', '/v1/events', { accept: 'text/event-stream', headers: lastId === undefined ? undefined : { 'Last-Event-ID': lastId }, signal });
    if (!isStream(response)) throw new Problem(406, {}, undefined, undefined);
    opened();
    await read(response, emit);
  },
  wait: (ms, signal) => new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    }
    signal.addEventListener('abort', done);
  }),
});

/**
 * Calls back for events of some types (`device.` is all of devices), and for `reload`.
 * @param {string[]} types @param {(event: LiveEvent) => void} callback
 */
export function useLive(types, callback) {
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => live.subscribe((event) => {
    const wanted = event.type === 'reload' || types.some((type) => (type.endsWith('.') ? event.type.startsWith(type) : event.type === type));
    if (wanted) latest.current(event);
  }), [types.join()]);
}
