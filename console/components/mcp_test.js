/** What an MCP client does first, with its own key: `/mcp` takes no session. */
import { Problem, Unreachable } from '../api.js';

const VERSION = '2025-11-25';

/** @param {string} endpoint @param {string} key @returns {Promise<{tools: string[], server: string}>} */
export async function connect(endpoint, key) {
  const hello = await rpc(endpoint, key, 'initialize', { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'switchboard-console', version: '1' } });
  const list = await rpc(endpoint, key, 'tools/list', {}, hello.protocolVersion);
  const info = hello.serverInfo ?? {};
  return { tools: (list.tools ?? []).map((/** @type {{name: string}} */ tool) => tool.name), server: [info.title ?? info.name, info.version].filter(Boolean).join(' ') };
}

/** @param {string} endpoint @param {string} key @param {string} method @param {unknown} params @param {string} [version] */
async function rpc(endpoint, key, method, params, version) {
  let response;
  try {
    response = await fetch(endpoint, {
      method: 'POST', credentials: 'omit', redirect: 'error', cache: 'no-store',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', ...(version && { 'MCP-Protocol-Version': version }) },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    });
  } catch (error) {
    throw new Unreachable(String(error));
  }
  const text = await response.text();
  const json = text.startsWith('{') ? text : text.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('');
  let answer;
  try {
    answer = JSON.parse(json);
  } catch {
    throw new Problem(response.status, {}, undefined, undefined);
  }
  if (!response.ok) throw new Problem(response.status, answer.type ? answer : { detail: answer.error?.message }, undefined, undefined);
  if (answer.error) throw new Problem(response.status, { title: answer.error.message, detail: answer.error.message }, undefined, undefined);
  return answer.result;
}
