/** One call to many devices, and its outcomes as they come. */
import { Problem, send } from '../api.js';
import { useEffect, useRef, useState } from '../preact.js';
import { isStream, read } from '../sse.js';

/**
 * @typedef {object} Item how the call of one device ended
 * @property {string} device_id
 * @property {string} outcome
 * @property {string} delivered
 * @property {number} elapsed_ms
 * @property {any} [result]
 * @property {any} [problem]
 *
 * @typedef {object} GroupRun
 * @property {'running' | 'ended' | 'stopped'} state
 * @property {number} [devices] how many are called
 * @property {Item[]} items in the order of their ends
 * @property {Record<string, number>} [outcomes]
 * @property {Error} [error]
 */

/** What an event changes. @param {GroupRun} run @param {import('../sse.js').ServerEvent} event @returns {GroupRun} */
export function next(run, event) {
  let data;
  try {
    data = JSON.parse(event.data);
  } catch {
    return run;
  }
  if (event.type === 'started') return { ...run, devices: data.devices };
  if (event.type === 'item') return { ...run, items: [...run.items, data] };
  if (event.type === 'ended') return { ...run, state: 'ended', devices: data.devices ?? run.devices, outcomes: data.outcomes };
  return run;
}

/** The last group call of a form. */
export function useGroupCall() {
  const [run, setRun] = useState(/** @type {GroupRun | undefined} */ (undefined));
  const stopping = useRef(/** @type {AbortController | undefined} */ (undefined));
  useEffect(() => () => stopping.current?.abort(), []);
  const start = async (/** @type {Record<string, unknown>} */ body) => {
    stopping.current?.abort();
    const controller = new AbortController();
    stopping.current = controller;
    const change = (/** @type {(run: GroupRun) => GroupRun} */ act) => {
      if (stopping.current === controller) setRun((before) => (before ? act(before) : before));
    };
    setRun({ state: 'running', items: [] });
    try {
      const response = await send('POST', '/v1/group-calls', { accept: 'text/event-stream, application/json', body, signal: controller.signal });
      if (!isStream(response)) {
        const data = await response.json();
        return change((before) => ({ ...before, state: 'ended', ...data }));
      }
      await read(response, (event) => change((before) => next(before, event)));
      change((before) => (before.state === 'running' ? { ...before, state: 'ended', error: new Problem(502, { type: 'lost', title: '', detail: '' }, undefined, undefined) } : before));
    } catch (error) {
      change((before) => (controller.signal.aborted ? { ...before, state: 'stopped' } : { ...before, state: 'ended', error: /** @type {Error} */ (error) }));
    }
    return undefined;
  };
  const stop = () => {
    stopping.current?.abort();
    setRun((before) => (before?.state === 'running' ? { ...before, state: 'stopped' } : before));
  };
  return { run, start, stop };
}
