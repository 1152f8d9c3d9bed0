/** Sending a call and following it: progress and log lines while the device works, then its end. */
import { Problem, path, send } from '../api.js';
import { useEffect, useRef, useState } from '../preact.js';
import { isStream, read } from '../sse.js';

/**
 * @typedef {object} Request
 * @property {string} service
 * @property {unknown} params
 * @property {'sync' | 'async' | 'queued'} mode
 * @property {number} [timeout_ms]
 * @property {number} [expires_in_ms]
 */
/**
 * @typedef {object} Run
 * @property {'running' | 'ended' | 'stopped'} state
 * @property {Request} request
 * @property {{progress: number, total?: number, message?: string}} [progress]
 * @property {{level: string, data: unknown}[]} log
 * @property {import('../types.js').CallResult} [result]
 * @property {import('../types.js').StoredCall} [accepted]
 * @property {Error} [error]
 */

const MAX_LOG_LINES = 200;
export const STREAM_OR_JSON = 'text/event-stream, application/json';

/**
 * The last request of a form whose response is a stream of events, or JSON. A request that is
 * stopped, replaced or left is aborted, and the server cancels its calls.
 * @template {{state: 'running' | 'ended' | 'stopped', error?: Error}} R
 * @param {(run: R, event: import('../sse.js').ServerEvent) => R} next what an event changes
 * @param {(data: any, status: number) => Partial<R>} whole what a response changes that is no stream
 */
export function useRun(next, whole) {
  const [run, setRun] = useState(/** @type {R | undefined} */ (undefined));
  const current = useRef(/** @type {AbortController | undefined} */ (undefined));
  useEffect(() => () => current.current?.abort(), []);

  const start = async (/** @type {R} */ begin, /** @type {string} */ path, /** @type {Parameters<typeof send>[2]} */ options) => {
    current.current?.abort();
    const controller = new AbortController();
    current.current = controller;
    const change = (/** @type {(run: R) => R} */ act) => {
      if (current.current === controller) setRun((before) => (before ? act(before) : before));
    };
    setRun(begin);
    try {
      const response = await send('POST', path, { ...options, signal: controller.signal });
      if (!isStream(response)) {
        const data = await response.json();
        change((before) => ({ ...before, state: 'ended', ...whole(data, response.status) }));
        return;
      }
      await read(response, (event) => change((before) => next(before, event)));
      change((before) => (before.state === 'running' ? { ...before, state: 'ended', error: new Problem(502, { type: 'lost', title: '', detail: '' }, undefined, undefined) } : before));
    } catch (error) {
      change((before) => (controller.signal.aborted ? { ...before, state: 'stopped' } : { ...before, state: 'ended', error: /** @type {Error} */ (error) }));
    }
  };
  const stop = () => {
    current.current?.abort();
    setRun((before) => (before?.state === 'running' ? { ...before, state: 'stopped' } : before));
  };
  return { run, start, stop };
}

/** The last call of a form. @param {string} device */
export function useCall(device) {
  const { run, start, stop } = useRun(after, (data, status) => (status === 202 ? { accepted: data } : { result: data }));
  return {
    run, stop, start: (/** @type {Request} */ request, /** @type {string} */ key) => {
      const { mode, ...rest } = request;
      return start({ state: 'running', request, log: [] }, path`/v1/devices/${device}/calls`, {
        accept: mode === 'sync' ? STREAM_OR_JSON : 'application/json', body: mode === 'sync' ? rest : request, key,
      });
    },
  };
}

/** What an event changes. @param {Run} run @param {import('../sse.js').ServerEvent} event @returns {Run} */
export function after(run, event) {
  let data;
  try {
    data = JSON.parse(event.data);
  } catch {
    return run;
  }
  if (event.type === 'progress') return { ...run, progress: data };
  if (event.type === 'log') return { ...run, log: [...run.log, data].slice(-MAX_LOG_LINES) };
  if (event.type !== 'result') return run;
  if (typeof data.status === 'number' && typeof data.type === 'string') return { ...run, state: 'ended', error: new Problem(data.status, data, undefined, undefined) };
  return { ...run, state: 'ended', result: data };
}

/** A key for one call. Works where the page is no secure context, too. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
