/** The search over everything: devices by the beginning of their id, calls by id, pages by name. */
import { get } from '../api.js';
import { t } from '../i18n.js';
import { h, useEffect, useState } from '../preact.js';
import { useLoad } from '../resource.js';
import { href, visit } from '../router.js';
import { SCREENS, isOpen } from '../screens.js';
import { Presence, Text } from './basic.js';
import { Dialog } from './dialog.js';
import { Icon } from './icon.js';

/** @typedef {{to: string, label: string, online?: boolean, icon: import('./icon.js').IconName}} Found */

/** @param {{onClose: () => void}} props */
export function Finder({ onClose }) {
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const wanted = text.trim();
  const devices = useLoad(async (signal) => {
    if (wanted === '') return [];
    const page = await get('/v1/devices', { prefix: wanted, services: 'none', limit: 8 }, signal);
    return /** @type {import('../types.js').Device[]} */ (page.devices).filter((device) => device.id.startsWith(wanted)).slice(0, 8);
  }, [wanted]);
  const found = results(wanted, devices.data ?? []);
  useEffect(() => { setChosen(0); }, [wanted]);
  const open = (/** @type {Found | undefined} */ item) => {
    if (!item) return;
    onClose();
    visit(href(item.to));
  };
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing) return;
    if (event.key === 'ArrowDown') setChosen(Math.min(chosen + 1, found.length - 1));
    else if (event.key === 'ArrowUp') setChosen(Math.max(chosen - 1, 0));
    else if (event.key === 'Enter') open(found[chosen]);
    else return;
    event.preventDefault();
  };
  return h(Dialog, { title: t('app.find'), onClose },
    h('input', { class: 'input', type: 'search', autofocus: true, role: 'combobox', 'aria-expanded': String(found.length > 0), 'aria-controls': 'found', 'aria-label': t('app.find'), 'aria-activedescendant': found[chosen] ? `found-${chosen}` : undefined, autocomplete: 'off', spellcheck: false, placeholder: 'toy-1, call_…', value: text, onInput: (/** @type {any} */ event) => setText(event.target.value), onKeyDown: keys }),
    h('ul', { id: 'found', class: 'found', role: 'listbox', 'aria-label': t('app.find') }, found.map((item, index) => h('li', { key: item.to, id: `found-${index}`, role: 'option', 'aria-selected': String(index === chosen), onClick: () => open(item), onPointerMove: () => setChosen(index) },
      h(Icon, { name: item.icon }), h('span', { class: 'grow break' }, h(Text, null, item.label)), item.online !== undefined && h(Presence, { online: item.online })))),
    found.length === 0 && h('p', { class: 'soft small' }, wanted === '' ? t('app.find.hint') : t('app.find.none')));
}

/** @param {string} wanted @param {import('../types.js').Device[]} devices @returns {Found[]} */
function results(wanted, devices) {
  const pages = SCREENS.filter((screen) => screen.group && isOpen(screen)).map((screen) => ({ to: /** @type {string} */ (screen.paths[0]), label: t(screen.title), icon: screen.icon ?? /** @type {const} */ ('right') }));
  const named = pages.filter((page) => page.label.toLowerCase().includes(wanted.toLowerCase()));
  const call = /^call_[0-9a-f]{32}$/.test(wanted) ? [{ to: `/calls/${wanted}`, label: t('app.find.call', { id: wanted }), icon: /** @type {const} */ ('calls') }] : [];
  return [...call, ...devices.map((device) => ({ to: `/devices/${encodeURIComponent(device.id)}`, label: device.id, online: device.online, icon: /** @type {const} */ ('devices') })), ...named];
}
