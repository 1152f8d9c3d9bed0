/** Which services a character may use: the real ones of its devices, to tick. */
import { get, path } from '../api.js';
import { Bone, Button, Failure, Text } from '../components/basic.js';
import { Check, segmented } from '../components/field.js';
import { compare, t } from '../i18n.js';
import { h, useState } from '../preact.js';
import { useLoad } from '../resource.js';
import { serviceNames } from '../screens/devices.js';

/** Beyond it devices are read as a list. */
const MAX_SINGLE_READS = 12;

/** @typedef {{name: string, devices: string[], description: string}} Offered */

/** The services of some devices, or of all without any. @param {string[]} ids */
function useServices(ids) {
  return useLoad(async (signal) => {
    /** @type {import('../types.js').Device[]} */
    let devices;
    if (ids.length > 0 && ids.length <= MAX_SINGLE_READS) {
      const read = await Promise.allSettled(ids.map((id) => get(path`/v1/devices/${id}`, undefined, signal)));
      devices = read.filter((each) => each.status === 'fulfilled').map((each) => each.value);
    } else {
      const page = await get('/v1/devices', { limit: 200 }, signal);
      devices = page.devices.filter((/** @type {{id: string}} */ device) => ids.length === 0 || ids.includes(device.id));
    }
    /** @type {Map<string, Offered>} */
    const found = new Map();
    for (const device of devices) {
      for (const name of serviceNames(device)) {
        const service = /** @type {any} */ (device.services ?? {})[name];
        const entry = found.get(name) ?? { name, devices: [], description: String(service?.description ?? '') };
        entry.devices.push(device.id);
        found.set(name, entry);
      }
    }
    return [...found.values()].sort((a, b) => compare(a.name, b.name));
  }, [ids]);
}

/**
 * @param {object} props
 * @param {string[] | undefined} props.allow undefined allows all
 * @param {string[] | undefined} props.deny
 * @param {boolean} props.fixed whether the template allows a list, so that "all" cannot be chosen
 * @param {string[]} props.devices
 * @param {boolean} props.disabled
 * @param {(path: string, value: any) => void} props.set
 */
export function ToolPolicy({ allow, deny = [], fixed, devices, disabled, set }) {
  const services = useServices(devices);
  const [text, setText] = useState('');
  const offered = services.data ?? [];
  const named = [...(allow ?? []), ...deny].filter((name, index, all) => all.indexOf(name) === index && !offered.some((each) => each.name === name));
  /** @type {Offered[]} */
  const rows = [...offered, ...(services.data ? named : []).map((name) => ({ name, devices: [], description: '' }))];
  const may = (/** @type {string} */ name) => !deny.includes(name) && (allow === undefined || allow.includes(name));
  const toggle = (/** @type {string} */ name, /** @type {boolean} */ on) => {
    if (allow !== undefined) {
      set('tools.allow', on ? [...allow.filter((each) => each !== name), name] : allow.filter((each) => each !== name));
      if (on && deny.includes(name)) set('tools.deny', deny.filter((each) => each !== name));
    } else set('tools.deny', on ? deny.filter((each) => each !== name) : [...deny, name]);
  };
  const choose = (/** @type {'all' | 'listed'} */ mode) => set('tools.allow', mode === 'all' ? undefined : rows.map((row) => row.name).filter((name) => may(name)));
  const addName = () => {
    const name = text.trim();
    if (name) toggle(name, allow !== undefined);
    setText('');
  };
  return h('div', { class: 'stack' },
    h('div', { class: 'stack tight' },
      !disabled && segmented({ label: t('tools.mode'), value: allow === undefined ? 'all' : 'listed', onChange: choose, options: [{ value: /** @type {const} */ ('all'), label: t('tools.all') }, { value: /** @type {const} */ ('listed'), label: t('tools.listed') }] }),
      h('p', { class: 'small soft' }, t(allow === undefined ? 'tools.all.text' : 'tools.listed.text'), fixed && ` ${t('tools.fixed')}`)),
    h(Failure, { error: services.error, retry: services.reload }),
    !services.data && !services.error && h('div', { class: 'stack tight' }, h(Bone, { width: 220 }), h(Bone, { width: 180 }), h(Bone, { width: 200 })),
    services.data && rows.length === 0 && h('p', { class: 'soft' }, t('tools.none')),
    rows.length > 0 && h('ul', { class: 'tool-list' }, rows.map((row) => h('li', { key: row.name },
      h(Check, { checked: may(row.name), disabled, onChange: (/** @type {boolean} */ on) => toggle(row.name, on), hint: row.description ? h(Text, null, row.description.slice(0, 160)) : undefined }, h('span', { class: 'mono break' }, h(Text, null, row.name))),
      h('span', { class: 'small faint' }, row.devices.length === 0 ? t('tools.gone') : h(Text, null, row.devices.slice(0, 3).join(', ') + (row.devices.length > 3 ? ' …' : '')))))),
    !disabled && h('div', { class: 'input-group add-name' },
      h('input', { class: 'input mono', type: 'text', 'aria-label': t(allow === undefined ? 'tools.deny.other' : 'tools.allow.other'), placeholder: t(allow === undefined ? 'tools.deny.other' : 'tools.allow.other'), spellcheck: false, autocapitalize: 'off', maxLength: 128, value: text, onInput: (/** @type {any} */ event) => setText(event.target.value), onKeyDown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== 'Enter' || event.isComposing) return;
        event.preventDefault();
        addName();
      } }),
      h(Button, { disabled: text.trim() === '', onClick: addName }, t('act.add'))));
}
