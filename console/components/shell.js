/** The frame around every page: navigation, bar, banner, dialogs over the page, keys. */
import { request, session, signInAgain, unavailableSince } from '../api.js';
import { relative, t } from '../i18n.js';
import { live } from '../live.js';
import { h, useEffect, useState } from '../preact.js';
import { href, navigate, route } from '../router.js';
import { GROUPS, SCREENS, isOpen } from '../screens.js';
import { set, settings } from '../settings.js';
import { leaving } from '../unsaved.js';
import { Button, Id, Text, toast, toasts } from './basic.js';
import { Dialog } from './dialog.js';
import { Check, segmented } from './field.js';
import { Finder } from './finder.js';
import { Icon, Mark } from './icon.js';
import { Reach } from './reach.js';
import { SignIn } from './sign_in.js';
import { onKey } from './shortcuts.js';

/** @param {{children?: any}} props */
export function Shell({ children }) {
  const [menu, setMenu] = useState(false);
  const [open, setOpen] = useState(/** @type {'find' | 'keys' | undefined} */ (undefined));
  const { path } = route.value;
  useEffect(() => { setMenu(false); }, [path]);
  useEffect(() => onKey({ find: () => setOpen('find'), keys: () => setOpen('keys') }), []);
  const since = unavailableSince.value;
  return h('div', { class: 'frame' },
    h('a', { class: 'skip', href: '#main', onClick: (/** @type {Event} */ event) => {
      event.preventDefault();
      document.querySelector('main')?.focus();
    } }, t('app.skip')),
    menu && h('button', { type: 'button', class: 'scrim', 'aria-label': t('act.close'), onClick: () => setMenu(false) }),
    h(Navigation, { open: menu }),
    h('div', { class: 'column' },
      h('header', { class: 'bar' },
        h(Button, { kind: 'plain', icon: 'menu', label: t('app.menu'), class: 'menu-button', 'aria-expanded': String(menu), onClick: () => setMenu(!menu) }),
        h('button', { type: 'button', class: 'find', 'aria-label': t('app.find'), onClick: () => setOpen('find') }, h(Icon, { name: 'search' }), h('span', null, t('app.find')), settings.value.keys && h('kbd', { 'aria-hidden': 'true' }, '/')),
        h('div', { class: 'grow' }),
        h(Connection, null),
        h(Account, { showKeys: () => setOpen('keys') })),
      since !== undefined && h('div', { class: 'banner', role: 'status' }, h(Icon, { name: 'warning' }), t('app.unavailable', { when: relative(new Date(since).toISOString()) })),
      h('main', { id: 'main', tabIndex: -1 }, h('div', { class: 'page' }, children))),
    open === 'find' && h(Finder, { onClose: () => setOpen(undefined) }),
    open === 'keys' && h(Keys, { onClose: () => setOpen(undefined) }),
    leaving.value && h(Leaving, { go: leaving.value }),
    signInAgain.value && h(Dialog, { title: t('signIn.again'), locked: true, onClose: () => {} }, h('p', { class: 'soft' }, t('signIn.again.text')), h(SignIn, null)),
    h(Toasts, null));
}

/** Asks whether what is not saved may be lost. @param {{go: () => void}} props */
function Leaving({ go }) {
  const end = (/** @type {() => void} */ act) => () => {
    leaving.value = undefined;
    act();
  };
  const stay = end(() => {});
  return h(Dialog, { title: t('leave.title'), onClose: stay },
    h('p', { class: 'soft' }, t('leave.text')),
    h('div', { class: 'actions' }, h(Button, { kind: 'danger', onClick: end(go) }, t('leave.act')), h(Button, { kind: 'primary', autofocus: true, onClick: stay }, t('leave.stay'))));
}

function Toasts() {
  return h('div', { class: 'toasts', role: 'status' }, toasts.value.map((each) => h('div', { class: 'toast', key: each.id }, h(Icon, { name: each.icon }), each.text)));
}

/** @param {{open: boolean}} props */
function Navigation({ open }) {
  const { screen } = route.value;
  const current = screen?.parent ?? screen?.paths[0];
  const shown = SCREENS.filter((each) => each.group && isOpen(each));
  return h('nav', { class: open ? 'nav open' : 'nav', 'aria-label': t('app.menu') },
    h('a', { class: 'brand', href: href('/') }, h(Mark, null), 'Switchboard'),
    GROUPS.map((group) => {
      const items = shown.filter((each) => each.group === group);
      if (items.length === 0) return null;
      return h('div', { class: 'nav-group', key: group },
        group !== 'run' && h('h2', null, t(`group.${group}`)),
        items.map((each) => h('a', { key: each.paths[0], class: 'item', href: href(/** @type {string} */ (each.paths[0])), 'aria-current': each.paths[0] === current ? 'page' : undefined }, each.icon && h(Icon, { name: each.icon }), t(each.title))));
    }));
}

/** How often what is shown is read, and the switch that holds it still. */
function Connection() {
  const paused = live.paused.value;
  const shown = paused ? 'paused' : live.state.value;
  return h('div', { class: `connection ${shown}` },
    h('span', { class: 'connection-state', title: t(`live.${shown}.text`) }, h('i', { 'aria-hidden': 'true' }), h('span', { class: 'connection-word' }, t(`live.${shown}`))),
    h(Button, { kind: 'plain', small: true, icon: paused ? 'play' : 'pause', label: t(paused ? 'live.resume' : 'live.pause'), onClick: () => live.pause(!paused) }));
}

/** @param {{showKeys: () => void}} props */
function Account({ showKeys }) {
  const value = session.value;
  const { theme, language, zone, keys } = settings.value;
  if (!value) return null;
  const name = value.org_name ?? t('app.operator');
  const signOut = async () => {
    try {
      await request('DELETE', '/v1/session', { anonymous: true });
      live.stop();
      session.value = null;
      navigate(href('/'));
    } catch (error) {
      toast(String(/** @type {Error} */ (error).message), 'warning');
    }
  };
  return h('details', { class: 'menu account', onKeyDown: closeOnEscape, onFocusOut: closeOutside },
    h('summary', { class: 'button plain', title: t('app.account'), 'aria-label': `${t('app.account')}: ${name}` }, h('span', { class: 'account-name' }, h(Text, null, name)), h(Icon, { name: 'chevron' })),
    h('div', { class: 'sheet' },
      h('div', null, h('strong', null, h(Text, null, name)), h('div', { class: 'small soft' }, t('app.signedInWith', { name: value.actor.name || (value.actor.id ?? '') })), value.org_id && h(Id, { id: value.org_id })),
      h('div', { class: 'row' }, value.is_operator && h('span', { class: 'tag accent' }, t('app.operator')), value.scopes.map((scope) => h('span', { class: 'tag', key: scope, title: t(`scope.${scope}`) }, scope))),
      h(Reach, null),
      h('hr', null),
      h('div', { class: 'pair' }, t('app.language'), segmented({ label: t('app.language'), value: language, onChange: (value) => set({ language: value }), options: [{ value: 'en', label: 'EN' }, { value: 'zh', label: '中文' }] })),
      h('div', { class: 'stack tight' }, t('app.theme'), segmented({ label: t('app.theme'), value: theme, onChange: (value) => set({ theme: value }), options: [{ value: 'system', label: t('app.theme.system') }, { value: 'light', label: t('app.theme.light') }, { value: 'dark', label: t('app.theme.dark') }] })),
      h('div', { class: 'pair' }, t('app.zone'), segmented({ label: t('app.zone'), value: zone, onChange: (value) => set({ zone: value }), options: [{ value: 'local', label: t('app.zone.local') }, { value: 'utc', label: t('app.zone.utc') }] })),
      h(Check, { checked: keys, onChange: (value) => set({ keys: value }) }, t('app.keys')),
      h('hr', null),
      h('div', { class: 'row apart' }, h(Button, { kind: 'plain', small: true, onClick: showKeys }, t('app.keys.help')), h(Button, { small: true, icon: 'signOut', onClick: signOut }, t('app.signOut')))));
}

/** @param {any} event */
function closeOnEscape(event) {
  if (event.key !== 'Escape' || !event.currentTarget.open) return;
  event.currentTarget.open = false;
  event.currentTarget.querySelector('summary').focus();
}

/** @param {any} event */
function closeOutside(event) {
  if (event.relatedTarget instanceof Node && !event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
}
addEventListener('click', (event) => {
  for (const menu of document.querySelectorAll('details.menu[open]')) {
    const inside = event.target instanceof Element && menu.contains(event.target);
    // What was chosen from a list is done; settings stay open.
    if (!inside || event.target.closest('.sheet.list :is(a, button)')) menu.removeAttribute('open');
  }
});

/** @param {{onClose: () => void}} props */
function Keys({ onClose }) {
  const go = SCREENS.filter((each) => each.shortcut).map((each) => /** @type {const} */ ([['g', each.shortcut ?? ''], t('keys.go', { page: t(each.title) })]));
  /** @type {(readonly [readonly string[], string])[]} */
  const rows = [[['/'], t('keys.find')], ...go, [['j', 'k'], t('keys.rows')], [['Enter'], t('keys.open')], [['c'], t('keys.call')], [['Ctrl', 'Enter'], t('keys.send')], [['Esc'], t('keys.close')], [['?'], t('keys.show')]];
  return h(Dialog, { title: t('keys.title'), onClose },
    h('dl', { class: 'facts lines' }, rows.map(([keys, text]) => h('div', { key: text }, h('dt', null, text), h('dd', null, keys.map((key) => h('kbd', { key }, key)))))));
}
