/** Reading the API from a view: what was read stays while it is read again, or cannot be. */
import { get } from './api.js';
import { useCallback, useEffect, useRef, useState } from './preact.js';

/**
 * @template T
 * @typedef {object} Resource
 * @property {T | undefined} data
 * @property {Error | undefined} error of the last attempt
 * @property {boolean} loading
 * @property {number} at when `data` was read
 * @property {() => void} reload
 * @property {(change: (data: T) => T) => void} change what is shown, until the next reading
 */

/**
 * Reads whenever `inputs` change and whenever `reload` is called; a `reload` in the course of a
 * reading is one more reading after it.
 * @template T @param {(signal: AbortSignal) => Promise<T>} load @param {unknown[]} inputs @returns {Resource<T>}
 */
export function useLoad(load, inputs) {
  const [state, setState] = useState(/** @type {{data?: T, error?: Error, loading: boolean, at: number, key: string}} */ ({ loading: true, at: 0, key: '' }));
  const key = JSON.stringify(inputs);
  const latest = useRef(load);
  latest.current = load;
  const running = useRef(/** @type {{controller: AbortController, again: boolean} | undefined} */ (undefined));

  const read = useCallback(async () => {
    if (running.current) {
      running.current.again = true;
      return;
    }
    const run = { controller: new AbortController(), again: false };
    running.current = run;
    setState((before) => ({ ...before, loading: true, data: before.key === key ? before.data : undefined, error: before.key === key ? before.error : undefined, key }));
    try {
      const data = await latest.current(run.controller.signal);
      if (!run.controller.signal.aborted) setState({ data, loading: false, at: Date.now(), key });
    } catch (error) {
      if (!run.controller.signal.aborted) setState((before) => ({ ...before, error: /** @type {Error} */ (error), loading: false }));
    }
    if (running.current !== run) return;
    running.current = undefined;
    if (run.again) read();
  }, [key]);

  useEffect(() => {
    read();
    return () => {
      running.current?.controller.abort();
      running.current = undefined;
    };
  }, [read]);

  const change = useCallback((/** @type {(data: T) => T} */ change) => {
    setState((before) => (before.data === undefined ? before : { ...before, data: change(before.data) }));
  }, []);
  const current = state.key === key || state.key === '';
  return { data: current ? state.data : undefined, error: current ? state.error : undefined, loading: state.loading || !current, at: state.at, reload: read, change };
}

/**
 * Reads one path.
 * @template [T=any] @param {string | undefined} path nothing is read without one @param {import('./api.js').Options['query']} [query] @returns {Resource<T>}
 */
export function useResource(path, query = {}) {
  return useLoad(async (signal) => (path ? get(path, query, signal) : /** @type {any} */ (undefined)), [path, query]);
}

/**
 * Reads a list page by page: `more` adds the next page, `reload` reads as many as are shown.
 * @template [T=any] @param {string | undefined} path nothing is read without one @param {string} member that holds the items
 * @param {import('./api.js').Options['query']} query @param {number} [limit]
 */
export function useList(path, member, query, limit = 50) {
  const [shown, setShown] = useState({ key: '', count: limit });
  const key = JSON.stringify([path, query]);
  const count = shown.key === key ? shown.count : limit;
  const list = useLoad(async (signal) => {
    if (!path) return undefined;
    /** @type {T[]} */
    const items = [];
    let cursor;
    let rest = {};
    do {
      /** @type {any} */
      const page = await get(path, { ...query, limit: Math.min(count - items.length, 200), cursor }, signal);
      items.push(...page[member]);
      cursor = page.next_cursor ?? undefined;
      rest = page;
    } while (cursor && items.length < count);
    return { items, more: cursor !== undefined, page: /** @type {any} */ (rest) };
  }, [path, query, count]);
  // The former page stays while the next one is read.
  const before = useRef(/** @type {{key: string, data: typeof list.data}} */ ({ key: '', data: undefined }));
  if (list.data) before.current = { key, data: list.data };
  const data = list.data ?? (before.current.key === key ? before.current.data : undefined);
  return { ...list, data, more: () => setShown({ key, count: count + limit }) };
}
