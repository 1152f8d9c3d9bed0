/** Keeps what is shown up to date: while it runs and the page is visible, subscribers reload every few seconds. */
import { signal, useEffect, useRef } from './preact.js';

export const POLL_INTERVAL_MS = 5_000;

export class Live {
  constructor() {
    this.paused = signal(false);
    /** @type {Set<() => void>} */
    this.subscribers = new Set();
    /** @type {ReturnType<typeof setInterval> | undefined} */
    this.timer = undefined;
  }

  /** Adds a subscriber; returns what removes it. @param {() => void} reload */
  subscribe(reload) {
    this.subscribers.add(reload);
    return () => { this.subscribers.delete(reload); };
  }

  /** Holds what is shown still, or reloads it and keeps it up to date again. @param {boolean} paused */
  pause(paused) {
    this.paused.value = paused;
    this.reload();
  }

  start() {
    this.timer ??= setInterval(() => this.reload(), POLL_INTERVAL_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  reload() {
    // A hidden page would keep its session from ending.
    if (this.paused.value || globalThis.document?.hidden) return;
    for (const reload of [...this.subscribers]) reload();
  }
}

/** The polling of this page. */
export const live = new Live();

/** Calls back whenever what a view shows is to be read again. @param {() => void} reload */
export function useLive(reload) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => live.subscribe(() => latest.current()), []);
}
