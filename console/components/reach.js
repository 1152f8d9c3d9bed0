/** What the key of the session reaches: without it, missing devices would seem not to exist. */
import { session } from '../api.js';
import { plain } from '../form/safe.js';
import { t } from '../i18n.js';
import { Notice } from './basic.js';
import { h } from '../preact.js';

/** The devices in words; undefined if there is no limit. */
function devices() {
  const { device_prefix: prefix, device_label: label } = session.value?.restrictions ?? {};
  const limits = [prefix && t('reach.prefix', { prefix: plain(prefix) }), label && t('reach.label', { label: plain(label) })].filter(Boolean);
  return limits.length > 0 ? limits.join(t('reach.and')) : undefined;
}

/** A line for each limit. */
export function Reach() {
  const { services } = session.value?.restrictions ?? {};
  const within = devices();
  return [
    within && h('div', { key: 'devices', class: 'small soft break' }, t('reach.devices', { devices: within })),
    services && h('div', { key: 'services', class: 'small soft break' }, t('reach.services', { services: plain(services.join(', ')) })),
  ];
}

/** Why a list of devices may not have all of them. */
export function ReachNotice() {
  const within = devices();
  return within ? h(Notice, null, t('reach.listed', { devices: within })) : null;
}
