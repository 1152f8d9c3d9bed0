/**
 * The transfer of a file in parts of 8 MiB, three at a time. A part that fails because the server or
 * the network is away is sent again after a while, until the transfer is stopped.
 *
 * What is missing is asked from the server: `finish` names the missing parts. So a transfer continues
 * after a reload, and in another browser.
 */
import { Problem, Unreachable } from '../api.js';

export const PART_BYTES = 8 * 1024 * 1024;
const AT_A_TIME = 3;
const FIRST_WAIT_MS = 1_000;
const MAX_WAIT_MS = 15_000;
/** The speed is that of the last seconds. */
const SPEED_WINDOW_MS = 8_000;

/**
 * @typedef {object} Ports what a transfer needs from its surroundings
 * @property {(number: number, part: Blob, sent: (bytes: number) => void, signal: AbortSignal) => Promise<unknown>} put
 * @property {() => Promise<unknown>} finish
 * @property {(ms: number, signal: AbortSignal) => Promise<void>} wait
 * @property {() => number} now
 * @property {(progress: Progress) => void} report
 *
 * @typedef {{sent: number, total: number, parts: number, done: number, left_ms: number | undefined, waiting: boolean}} Progress
 */

/** How many parts a file has. @param {number} size */
export const partCount = (size) => Math.max(1, Math.ceil(size / PART_BYTES));

/** Milliseconds that are left, by the speed of the last seconds. */
export class Speed {
  constructor() {
    /** @type {{at: number, sent: number}[]} */
    this.marks = [];
  }

  /** @param {number} at @param {number} sent @param {number} total */
  left(at, sent, total) {
    this.marks.push({ at, sent });
    while (this.marks.length > 2 && at - /** @type {{at: number}} */ (this.marks[0]).at > SPEED_WINDOW_MS) this.marks.shift();
    const first = /** @type {{at: number, sent: number}} */ (this.marks[0]);
    const bytes = sent - first.sent;
    return bytes > 0 && at > first.at ? ((total - sent) * (at - first.at)) / bytes : undefined;
  }
}

/** Whether sending again may succeed. @param {unknown} error */
const passes = (error) => error instanceof Unreachable || (error instanceof Problem && (error.status === 429 || error.status >= 500 || error.kind === 'request_in_progress'));

/** The parts that a refused `finish` names. @param {unknown} error @returns {number[]} */
export const missingParts = (error) => (error instanceof Problem && error.kind === 'parts_missing' && Array.isArray(error.document.missing_parts) ? error.document.missing_parts : []);

/**
 * Sends what is missing, and finishes. `begun` is false for a book that has no parts yet.
 * @param {Blob} file @param {boolean} begun @param {Ports} ports @param {AbortSignal} signal
 */
export async function transfer(file, begun, ports, signal) {
  const count = partCount(file.size);
  const again = (/** @type {() => Promise<unknown>} */ act) => repeated(act, ports, signal);
  let missing = Array.from({ length: count }, (_, index) => index + 1);
  if (begun) {
    const named = await finish(again, ports);
    if (named.length === 0) return;
    missing = named;
  }
  // A second round follows only if parts were lost in between.
  for (let round = 0; round < 3 && missing.length > 0; round += 1) {
    await sendParts(file, missing, count, ports, signal);
    missing = await finish(again, ports);
  }
  if (missing.length > 0) throw new Error(`parts are missing: ${missing.join(', ')}`);
}

/** @param {(act: () => Promise<unknown>) => Promise<unknown>} again @param {Ports} ports */
async function finish(again, ports) {
  try {
    await again(ports.finish);
    return [];
  } catch (error) {
    const missing = missingParts(error);
    if (missing.length === 0) throw error;
    return missing;
  }
}

/** @param {Blob} file @param {number[]} missing @param {number} count @param {Ports} ports @param {AbortSignal} outer */
async function sendParts(file, missing, count, ports, outer) {
  const failed = new AbortController();
  const signal = AbortSignal.any([outer, failed.signal]);
  const size = (/** @type {number} */ number) => Math.min(PART_BYTES, file.size - (number - 1) * PART_BYTES);
  let stored = file.size - missing.reduce((all, number) => all + size(number), 0);
  /** @type {Map<number, number>} */
  const flying = new Map();
  const speed = new Speed();
  let done = count - missing.length;
  let waiting = 0;
  const report = () => {
    const sent = stored + [...flying.values()].reduce((all, bytes) => all + bytes, 0);
    ports.report({ sent, total: file.size, parts: count, done, left_ms: speed.left(ports.now(), sent, file.size), waiting: waiting > 0 });
  };
  const rest = [...missing];
  const worker = async () => {
    for (let number = rest.shift(); number !== undefined; number = rest.shift()) {
      const part = number;
      const start = (part - 1) * PART_BYTES;
      await repeated(() => ports.put(part, file.slice(start, start + PART_BYTES), (bytes) => {
        flying.set(part, Math.min(bytes, size(part)));
        report();
      }, signal), ports, signal, (held) => {
        waiting += held ? 1 : -1;
        flying.delete(part);
        report();
      });
      flying.delete(part);
      stored += size(part);
      done += 1;
      report();
    }
  };
  report();
  try {
    await Promise.all(Array.from({ length: Math.min(AT_A_TIME, missing.length) }, worker));
  } catch (error) {
    failed.abort();
    throw error;
  }
}

/** Acts until it succeeds, or fails for good. @param {() => Promise<unknown>} act @param {Ports} ports @param {AbortSignal} signal @param {(waiting: boolean) => void} [waiting] */
async function repeated(act, ports, signal, waiting = () => {}) {
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, MAX_WAIT_MS)) {
    signal.throwIfAborted();
    try {
      return await act();
    } catch (error) {
      if (signal.aborted || !passes(error)) throw error;
      waiting(true);
      await ports.wait(Math.max(wait, (error instanceof Problem && error.retryAfterMs) || 0), signal);
      waiting(false);
    }
  }
}
