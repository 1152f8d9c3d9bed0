/** The uploads of skills books of this page. They continue while another screen is shown, and after a reload. */
import { get, path, Problem, request, Unreachable } from '../api.js';
import { signal } from '../preact.js';
import { sha256 } from './sha256.js';
import { forget, keep, kept, keptIds } from './store.js';
import { transfer } from './transfer.js';

/** @typedef {import('../types.js').SkillsBook} SkillsBook */
/** @typedef {{name: string, step: 'hashing' | 'sending' | 'ended' | 'failed', progress?: import('./transfer.js').Progress, error?: Error, id?: string, stop: AbortController}} Upload */

/** Each upload by its key: the book's id, or a number before there is one. @type {import('../vendor/signals.mjs').Signal<ReadonlyMap<string, Upload>>} */
export const uploads = signal(new Map());
let next = 0;

/** @type {Record<string, SkillsBook['mime_type']>} */
const TYPES = { txt: 'text/plain', text: 'text/plain', md: 'text/markdown', markdown: 'text/markdown', html: 'text/html', htm: 'text/html', pdf: 'application/pdf' };
export const MAX_BYTES = 64 * 1024 * 1024;

/** The format of a file, by its name. @param {string} name */
export const formatOf = (name) => TYPES[(name.split('.').pop() ?? '').toLowerCase()];

/** @param {string} key @param {Partial<Upload> | undefined} change */
function set(key, change) {
  const all = new Map(uploads.value);
  const before = all.get(key);
  if (change === undefined) all.delete(key);
  else all.set(key, { .../** @type {Upload} */ (before), ...change });
  uploads.value = all;
}

/** Sends one part. `fetch` reports no progress of a body, so this is the older interface. @param {string} id @param {number} number @param {Blob} part @param {(bytes: number) => void} sent @param {AbortSignal} signal */
function put(id, number, part, sent, signal) {
  return /** @type {Promise<void>} */ (new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const abort = () => xhr.abort();
    signal.addEventListener('abort', abort);
    const end = (/** @type {() => void} */ act) => () => {
      signal.removeEventListener('abort', abort);
      act();
    };
    xhr.open('PUT', path`/v1/skills-books/${id}/parts/${String(number)}`);
    xhr.setRequestHeader('Content-Type', 'application/octet-stream');
    xhr.setRequestHeader('X-Switchboard-Console', '1');
    xhr.upload.onprogress = (event) => sent(event.loaded);
    xhr.onerror = end(() => reject(new Unreachable('the connection ended')));
    xhr.onabort = end(() => reject(signal.reason));
    xhr.onload = end(() => {
      if (xhr.status < 300) resolve();
      // Signing in again continues the transfer: this request waits for it.
      else if (xhr.status === 401) get('/v1/session').then(() => reject(new Unreachable('signed in again')), reject);
      else reject(problem(xhr));
    });
    xhr.send(part);
  }));
}

/** @param {XMLHttpRequest} xhr */
function problem(xhr) {
  let document = {};
  try {
    document = JSON.parse(xhr.responseText);
  } catch {
    // A proxy's page: the status is all that is known.
  }
  const seconds = Number(xhr.getResponseHeader('Retry-After'));
  return new Problem(xhr.status, document, seconds > 0 ? seconds * 1_000 : undefined, xhr.getResponseHeader('X-Request-Id') ?? undefined);
}

/** @param {string} key @param {string} id @param {Blob} file @param {boolean} begun @param {AbortSignal} stop */
async function run(key, id, file, begun, stop) {
  set(key, { step: 'sending', id, error: undefined });
  await transfer(file, begun, {
    put: (number, part, sent, signal) => put(id, number, part, sent, signal),
    finish: () => request('POST', path`/v1/skills-books/${id}/finish`, { signal: stop }),
    wait: (ms, signal) => new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        resolve();
      });
    }),
    now: () => performance.now(),
    report: (progress) => { if (!stop.aborted) set(key, { progress }); },
  }, stop);
  await forget(id);
  set(key, undefined);
}

/** @param {string} key @param {unknown} error @param {AbortSignal} stop */
const ended = (key, error, stop) => set(key, stop.aborted ? undefined : { step: 'failed', error: /** @type {Error} */ (error) });

/** Declares a book and sends its file. Returns when it is sent. @param {File} file @param {string} locale @param {() => void} changed */
export async function upload(file, locale, changed) {
  next += 1;
  const key = String(next);
  const stop = new AbortController();
  set(key, { name: file.name, step: 'hashing', stop });
  try {
    const hash = await sha256(file, stop.signal);
    const declared = { name: file.name.slice(0, 100), mime_type: formatOf(file.name) ?? 'text/plain', locale, size_bytes: file.size, sha256: hash };
    const { data } = await request('POST', '/v1/skills-books', { body: declared, key: random(), signal: stop.signal });
    set(key, { id: data.id });
    changed();
    await keep(data.id, file);
    await run(key, data.id, file, false, stop.signal);
  } catch (error) {
    ended(key, error, stop.signal);
  }
  changed();
}

/** Continues the upload of a book. @param {SkillsBook} book @param {Blob} file @param {() => void} changed @returns {Promise<'sent' | 'other' | 'failed'>} */
export async function resume(book, file, changed) {
  const stop = new AbortController();
  set(book.id, { name: book.name, step: 'hashing', id: book.id, stop });
  try {
    if (file.size !== book.size_bytes || await sha256(file, stop.signal) !== book.sha256) {
      set(book.id, undefined);
      return 'other';
    }
    await keep(book.id, file);
    await run(book.id, book.id, file, true, stop.signal);
    changed();
    return 'sent';
  } catch (error) {
    ended(book.id, error, stop.signal);
    return 'failed';
  }
}

/** Continues what a reload has interrupted. @param {SkillsBook[]} books @param {() => void} changed */
export async function resumeKept(books, changed) {
  for (const id of await keptIds()) {
    const book = books.find((each) => each.id === id);
    if (of(id) || !book) continue;
    if (book.state !== 'uploading') await forget(id);
    else {
      const file = await kept(id);
      if (file && !of(id)) resume(book, file, changed);
    }
  }
}

/** The upload of a book. @param {string} id */
export const of = (id) => [...uploads.value.values()].find((each) => each.id === id);

/** Stops the upload of a book; what was sent stays. @param {string} key */
export function stop(key) {
  const upload = uploads.value.get(key);
  upload?.stop.abort();
  if (upload?.id) forget(upload.id);
  set(key, undefined);
}

/** A key that no other request has; pages without https have no randomUUID. */
export function random() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
