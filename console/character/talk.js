/** A conversation with an NPC: what its events make of an answer. Pure, so that it is tested without a browser. */

/**
 * @typedef {{kind: 'text', text: string} | {kind: 'call', device: string, tool: string, params: any, result: any, outcome: string}} Part
 * @typedef {{kind: string, id: string, title?: string, score?: number}} Source
 * @typedef {object} Turn
 * @property {string} message of the person
 * @property {Part[]} parts of the answer, in their order
 * @property {'answering' | 'done' | 'stopped' | 'failed'} state
 * @property {Source[]} sources what the answer was drawn from
 * @property {any} [problem] why it failed
 */

/** @param {string} message @returns {Turn} */
export const begin = (message) => ({ message, parts: [], state: 'answering', sources: [] });

/** @param {Turn} turn @param {{type: string, data: any}} event @returns {Turn} */
export function apply(turn, { type, data }) {
  if (type === 'text') {
    const last = turn.parts.at(-1);
    if (last?.kind === 'text') return { ...turn, parts: [...turn.parts.slice(0, -1), { kind: 'text', text: last.text + data.text }] };
    return { ...turn, parts: [...turn.parts, { kind: 'text', text: String(data.text) }] };
  }
  if (type === 'call') {
    const result = parsed(data.result);
    return { ...turn, parts: [...turn.parts, { kind: 'call', device: data.device_id, tool: data.tool, params: data.params, result, outcome: outcomeOf(result) }] };
  }
  if (type === 'end') return { ...turn, state: 'done', sources: Array.isArray(data.sources) ? data.sources : [] };
  if (type === 'error') return { ...turn, state: 'failed', problem: data };
  return turn;
}

/** A result that is JSON in a text, as tools give it to models. @param {unknown} result */
function parsed(result) {
  if (typeof result !== 'string') return result;
  try {
    return JSON.parse(result);
  } catch {
    return result;
  }
}

/** @param {any} result */
function outcomeOf(result) {
  if (typeof result?.outcome === 'string') return result.outcome;
  if (result?.success === false || result?.error !== undefined || result?.isError === true) return 'failed';
  return result && typeof result === 'object' ? 'succeeded' : '';
}
