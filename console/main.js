/**
 * The console of Switchboard: what a person sees at /console.
 *
 * No build step: the browser loads these files as they are, and `console/vendor` holds the
 * libraries. `h(Component, props, …children)` takes the place of JSX, so `tsc --checkJs` checks
 * every property. Where things are:
 *
 * - `screens.js` lists the screens; each is one file of `screens/`, with its texts in
 *   `text/en/NAME.js` and `text/zh/NAME.js` (the same keys; `text/en.js` joins them) and, if it has
 *   any, its styles in `style/screens.css`. A new screen is these files, and two lines in the lists.
 * - `api.js` sends requests (`get`, `post`, `patch`, `remove`); errors are `Problem`s. `resource.js`
 *   reads for a view: `useResource(path, query)`, `useList(path, member, query)`; `live.js` calls back
 *   when to read again: `useLive(reload, topics)`.
 * - `components/` has what screens share. Look there first: `basic.js` (Head, Card, Empty, Notice,
 *   Failure, Id, Time, Outcome), `table.js`, `field.js`, `dialog.js`, `code.js`, `chart.js`.
 * - `form/` makes fields from a device's JSON Schema. Pure functions, tested without a browser.
 * - `router.js`: a screen gets `params` and `query`; filters and tabs live in the URL (`setQuery`).
 *
 * Rules. Whatever comes from a device or a person is shown by `Text`: text nodes only, invisible
 * characters marked. No HTML from strings, no style attributes, no eval, nothing from other hosts;
 * the policy of the page enforces this, and `tests/tidy` looks for it. Lists keep what they show
 * while they are read again, and stand bones where nothing is known yet, so that nothing jumps.
 */
import { Problem, request, session, signedIn } from './api.js';
import { Failure } from './components/basic.js';
import { Shell } from './components/shell.js';
import { Missing } from './components/missing.js';
import { t } from './i18n.js';
import { live } from './live.js';
import { effect, h, render, useEffect, useState } from './preact.js';
import { href, navigate, route, start } from './router.js';
import { SCREENS, isOpen } from './screens.js';
import { refused } from './components/sign_in.js';
import { SignInPage } from './screens/sign_in.js';

/** Exchanges the one-time code of `up` in the address, which must not stay there. */
async function exchangeCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (!code) return false;
  history.replaceState(null, '', location.pathname + location.search);
  try {
    signedIn((await request('POST', '/v1/session', { body: { code }, anonymous: true })).data);
    return true;
  } catch (error) {
    refused.value = /** @type {Error} */ (error);
    return false;
  }
}

async function findSession() {
  if (await exchangeCode()) return;
  try {
    session.value = (await request('GET', '/v1/session', { anonymous: true })).data;
  } catch (error) {
    if (error instanceof Problem && (error.status === 401 || error.status === 403)) session.value = null;
    else throw error;
  }
}

function App() {
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const find = () => {
    setError(undefined);
    findSession().catch(setError);
  };
  useEffect(find, []);
  if (session.value === undefined) return error ? h('div', { class: 'page' }, h(Failure, { error, retry: find })) : null;
  if (session.value === null) return h(SignInPage, null);
  const { screen, params, query, path } = route.value;
  if (path === '/' && !session.value.org_id) {
    navigate(href('/organisation'), { replace: true });
    return null;
  }
  return h(Shell, null, screen && isOpen(screen) ? h(screen.view, { key: screen.paths[0], params, query }) : h(Missing, { key: path }));
}

start(SCREENS);
effect(() => {
  const { screen, params } = route.value;
  const title = screen ? t(screen.title) : t('app.notFound');
  const subject = Object.values(params)[0];
  document.title = session.value ? [subject, title, 'Switchboard'].filter(Boolean).join(' · ') : 'Switchboard';
});
let following = false;
effect(() => {
  const wanted = Boolean(session.value);
  if (wanted === following) return;
  following = wanted;
  if (wanted) live.start();
  else live.stop();
});
const root = document.querySelector('#app');
if (root) {
  root.textContent = '';
  render(h(App, null), root);
}
