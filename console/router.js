/** The History API router. The URL holds what a screen shows; a screen is found by its path. */
import { signal } from './preact.js';
import { leave, unsaved } from './unsaved.js';

const BASE = '/console';

/** `handed` is what the former page handed over; it is in no address. @typedef {{path: string, params: Record<string, string>, query: URLSearchParams, screen: import('./screens.js').Screen | undefined, handed?: unknown}} Route */

/** @type {import('./screens.js').Screen[]} */
let screens = [];
/** @type {import('./vendor/signals.mjs').Signal<Route>} */
export const route = signal({ path: '/', params: {}, query: new URLSearchParams(), screen: undefined });

/**
 * The address of a place in the console; the values of the query that are empty are left out.
 * @param {string} path @param {Record<string, string | number | boolean | null | undefined>} [query]
 */
export function href(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) search.set(name, String(value));
  }
  return BASE + (path === '/' ? '/' : path) + (search.size > 0 ? `?${search}` : '');
}

/** The parameters of a path if a pattern such as `/devices/:id` matches it. @param {string} pattern @param {string} path */
export function match(pattern, path) {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return undefined;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? '';
    if (!part.startsWith(':')) {
      if (part !== value) return undefined;
    } else {
      if (value === '') return undefined;
      try {
        params[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return undefined;
      }
    }
  }
  return params;
}

/** @param {URL} url @returns {Route} */
export function resolve(url) {
  const path = url.pathname.slice(BASE.length).replace(/\/+$/, '') || '/';
  for (const screen of screens) {
    for (const pattern of screen.paths) {
      const params = match(pattern, path);
      if (params) return { path, params, query: url.searchParams, screen };
    }
  }
  return { path, params: {}, query: url.searchParams, screen: undefined };
}

/** The number of this entry among those of the history; each entry's state has its own. */
let entry = 0;

/** The place of the address, with what was handed over to this entry of the history. */
const current = () => ({ ...resolve(new URL(location.href)), handed: history.state?.handed });

/** Shows another place. @param {string} to as `href` returns it @param {{replace?: boolean, handed?: unknown}} [options] */
export function navigate(to, { replace = false, handed = replace ? history.state?.handed : undefined } = {}) {
  if (!replace) entry += 1;
  history[replace ? 'replaceState' : 'pushState']({ entry, handed }, '', to);
  const before = route.value;
  route.value = current();
  if (before.path === route.value.path) return;
  scrollTo(0, 0);
  // Screen readers announce the new page; the focus is not lost with the old one.
  requestAnimationFrame(() => document.querySelector('main')?.focus({ preventScroll: true }));
}

/** Shows another place because the person wants it: asks first if something would be lost. @param {string} to @param {unknown} [handed] */
export const visit = (to, handed) => (new URL(to, location.href).pathname === location.pathname ? navigate(to, { handed }) : leave(() => navigate(to, { handed })));

/** Whether a click opens a link in this page. @param {MouseEvent} event */
const isPlain = (event) => !event.defaultPrevented && event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

/** The attributes of a link that hands over what an address must not have: it would be in the history and in logs. @param {string} to @param {unknown} handed */
export const handing = (to, handed) => ({ href: to, onClick: (/** @type {MouseEvent} */ event) => {
  if (!isPlain(event)) return;
  event.preventDefault();
  visit(to, handed);
} });

/** Changes the query of this place, without a new entry in the history. @param {Record<string, string | undefined>} change */
export function setQuery(change) {
  const query = { ...Object.fromEntries(route.value.query), ...change };
  navigate(href(route.value.path, query), { replace: true });
}

/** Starts the router. @param {import('./screens.js').Screen[]} all */
export function start(all) {
  screens = all;
  entry = history.state?.entry ?? 0;
  const show = () => { route.value = current(); };
  /** The entry that the page itself goes to, for which nothing is asked. @type {number | undefined} */
  let awaited;
  addEventListener('popstate', () => {
    const to = history.state?.entry ?? 0;
    const by = to - entry;
    if (to === awaited || by === 0 || !unsaved() || resolve(new URL(location.href)).path === route.value.path) {
      awaited = undefined;
      entry = to;
      show();
      return;
    }
    // The browser has moved already: it goes back until the person agrees.
    awaited = entry;
    history.go(-by);
    leave(() => {
      awaited = to;
      history.go(by);
    });
  });
  document.addEventListener('click', (event) => {
    if (!isPlain(event)) return;
    const link = event.target instanceof Element ? event.target.closest('a[href]') : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute('download')) return;
    if (link.origin !== location.origin || !(link.pathname === BASE || link.pathname.startsWith(`${BASE}/`))) return;
    if (link.hash && link.pathname === location.pathname) return;
    event.preventDefault();
    visit(link.pathname + link.search);
  });
  show();
}
