/** The lamp board: one lamp for each device, lit while it is connected. */
import { plain } from '../form/safe.js';
import { t } from '../i18n.js';
import { h } from '../preact.js';
import { href } from '../router.js';

const MAX_LAMPS = 120;

/** @param {{devices: import('../types.js').Device[] | undefined, total: number | undefined}} props */
export function LampBoard({ devices, total }) {
  if (!devices) return h('div', { class: 'lamps', 'aria-hidden': 'true' }, Array.from({ length: 12 }, (_, index) => h('span', { class: 'lamp-cell', key: index }, h('i', { class: 'unknown' }))));
  const shown = [...devices.filter((device) => device.online), ...devices.filter((device) => !device.online)].slice(0, MAX_LAMPS);
  const rest = (total ?? devices.length) - shown.length;
  return h('div', { class: 'lamp-board' },
    h('ul', { class: 'lamps', 'aria-label': t('overview.board') }, shown.map((device) => {
      const name = `${plain(device.id)}: ${t(device.online ? 'device.online' : 'device.offline')}`;
      return h('li', { key: device.id }, h('a', { class: 'lamp-cell', href: href(`/devices/${encodeURIComponent(device.id)}`), title: name, 'aria-label': name }, h('i', { class: device.online ? 'lit' : '' })));
    })),
    rest > 0 && h('a', { class: 'small', href: href('/devices') }, t('overview.board.more', { n: rest })));
}
