/**
 * Requests to the API of the process that served the page. The session is a cookie that scripts
 * cannot read. An error of the API is a `Problem`; a 401 waits until the person has signed in again
 * and then repeats the request, so that nothing typed is lost.
 */
import { signal } from './preact.js';
import { releaseAll } from './unsaved.js';

/** @typedef {import('./types.js').Session} Session */
/** @typedef {import('./types.js').Violation} Violation */
/**
 * @typedef {object} Options
 * @property {unknown} [body] sent as JSON, or as it is if it is a Blob
 * @property {Record<string, string | number | boolean | string[] | null | undefined>} [query] empty values are left out, lists repeated
 * @property {string} [etag] the version that the change is based on
 * @property {string} [key] the Idempotency-Key
 * @property {string} [contentType]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {boolean} [anonymous] a 401 is an answer, not a reason to sign in
 */
/** @template T @typedef {{data: T, etag: string | undefined, status: number, location: string | undefined}} Answer */

/** A problem document (RFC 9457), or what stands for one if the answer had none. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} document @param {number | undefined} retryAfterMs @param {string | undefined} trace */
  constructor(status, document, retryAfterMs, trace) {
    super(document.detail || document.title || `HTTP ${status}`);
    this.status = status;
    this.document = document;
    /** The last part of `type`, such as `device_offline`. */
    this.kind = String(document.type ?? '').replace(/^.*\//, '');
    this.title = String(document.title ?? '');
    /** @type {Violation[]} */
    this.errors = Array.isArray(document.errors) ? document.errors : [];
    this.retryAfterMs = retryAfterMs;
    this.trace = trace;
  }
}

/** The request has no answer: the server or the network is away. */
export class Unreachable extends Error {}

/** The session; undefined until it is known, null without one. @type {import('./vendor/signals.mjs').Signal<Session | null | undefined>} */
export const session = signal(undefined);
/** Whether a session ended while the page was in use. */
export const signInAgain = signal(false);
/** Since when requests have failed because the server is away or overloaded; undefined otherwise. @type {import('./vendor/signals.mjs').Signal<number | undefined>} */
export const unavailableSince = signal(undefined);

/** The problems that concern the whole server, not what was asked. */
const AWAY = ['service_unavailable', 'store_unavailable', 'bus_unavailable', 'credentials_unverifiable'];

/** @type {(() => void)[]} */
let waiting = [];

/**
 * The session is there: repeats the requests that wait for it. Those of another organisation are
 * dropped with the page and all that it shows; they must never be repeated with other rights.
 * @param {Session} value
 */
export function signedIn(value) {
  const before = session.value;
  if (before && (before.org_id !== value.org_id || before.is_operator !== value.is_operator)) {
    waiting = [];
    releaseAll();
    location.replace('/console/');
    return;
  }
  session.value = value;
  signInAgain.value = false;
  for (const resume of waiting.splice(0)) resume();
}

function untilSignedIn() {
  signInAgain.value = true;
  return /** @type {Promise<void>} */ (new Promise((resolve) => { waiting.push(resolve); }));
}

/** The URL of a request. @param {string} path @param {Options['query']} [query] */
export function url(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) search.append(name, each);
    else if (value !== undefined && value !== null && value !== '') search.set(name, String(value));
  }
  return search.size > 0 ? `${path}?${search}` : path;
}

/** Milliseconds until a request may be repeated. @param {string | null} header @param {number} [now] */
export function retryAfter(header, now = Date.now()) {
  if (!header) return undefined;
  const seconds = Number(header);
  const ms = Number.isFinite(seconds) ? seconds * 1_000 : Date.parse(header) - now;
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

/**
 * Sends a request and returns its response, which is successful.
 * @param {string} method @param {string} path @param {Options & {accept?: string}} [options] @returns {Promise<Response>}
 */
export async function send(method, path, options = {}) {
  const headers = new Headers({ Accept: options.accept ?? 'application/json', 'X-Switchboard-Console': '1', ...options.headers });
  if (options.etag) headers.set('If-Match', options.etag);
  if (options.key) headers.set('Idempotency-Key', options.key);
  let body;
  if (options.body instanceof Blob) body = options.body;
  else if (options.body !== undefined) body = JSON.stringify(options.body);
  if (body !== undefined) headers.set('Content-Type', options.contentType ?? 'application/json');
  let response;
  try {
    response = await fetch(url(path, options.query), { method, headers, body, signal: options.signal, credentials: 'same-origin', redirect: 'error', cache: 'no-store' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    unavailableSince.value ??= Date.now();
    throw new Unreachable(String(error));
  }
  if (response.ok) {
    unavailableSince.value = undefined;
    return response;
  }
  const problem = await problemOf(response);
  if (response.status === 401 && !options.anonymous) {
    await untilSignedIn();
    return send(method, path, options);
  }
  if (AWAY.includes(problem.kind) || (problem.kind === '' && response.status >= 502)) unavailableSince.value ??= Date.now();
  else if (response.status < 500) unavailableSince.value = undefined;
  throw problem;
}

/** @param {Response} response */
async function problemOf(response) {
  let document = {};
  try {
    const parsed = await response.json();
    if (parsed && typeof parsed === 'object') document = parsed;
  } catch {
    // A proxy's page: the status is all that is known.
  }
  return new Problem(response.status, document, retryAfter(response.headers.get('Retry-After')), response.headers.get('X-Request-Id') ?? response.headers.get('Traceparent') ?? undefined);
}

/**
 * Sends a request and reads its JSON.
 * @template [T=any] @param {string} method @param {string} path @param {Options} [options] @returns {Promise<Answer<T>>}
 */
export async function request(method, path, options = {}) {
  const response = await send(method, path, options);
  const text = await response.text();
  return {
    data: text === '' ? undefined : JSON.parse(text),
    etag: response.headers.get('ETag') ?? undefined,
    status: response.status,
    location: response.headers.get('Location') ?? undefined,
  };
}

/** @template [T=any] @param {string} path @param {Options['query']} [query] @param {AbortSignal} [signal] @returns {Promise<T>} */
export const get = async (path, query, signal) => (await request('GET', path, { query, signal })).data;
/** @template [T=any] @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<T>} */
export const post = async (path, body, options) => (await request('POST', path, { ...options, body })).data;
/** @template [T=any] @param {string} path @param {unknown} body @param {Options} [options] @returns {Promise<T>} */
export const patch = async (path, body, options) => (await request('PATCH', path, { contentType: 'application/merge-patch+json', ...options, body })).data;
/** @param {string} path @param {Options} [options] */
export const remove = async (path, options) => (await request('DELETE', path, options)).data;

/** A path below `/v1`, its parts encoded. @param {TemplateStringsArray} texts @param {string[]} parts */
export const path = (texts, ...parts) => texts.reduce((all, text, index) => all + encodeURIComponent(parts[index - 1] ?? '') + text);

/** What this session may do. @param {string} scope */
export const may = (scope) => session.value?.scopes.includes(/** @type {any} */ (scope)) ?? false;
