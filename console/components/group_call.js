/** One call to many devices, and its outcomes as they come. */
import { STREAM_OR_JSON, useRun } from './call.js';

/**
 * @typedef {import('../types.js').GroupCallItem} Item
 * @typedef {object} GroupRun
 * @property {'running' | 'ended' | 'stopped'} state
 * @property {string} service
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
  const { run, start, stop } = useRun(next, (data) => data);
  return {
    run, stop, start: (/** @type {import('../types.js').Schemas['NewGroupCall']} */ body) => start({ state: 'running', service: body.service, items: [] }, '/v1/group-calls', { accept: STREAM_OR_JSON, body }),
  };
}
