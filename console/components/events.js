/** The last events that this page has seen, as they come. */
import { maybe, t } from '../i18n.js';
import { live } from '../live.js';
import { h } from '../preact.js';
import { href } from '../router.js';
import { Card, Id, Outcome, Text, Time } from './basic.js';
import { Icon } from './icon.js';

/** @typedef {import('../live.js').LiveEvent} LiveEvent */

const SHOWN = 10;
const SHOWN_OF_DEVICE = 50;

/** @type {Record<string, import('./icon.js').IconName>} */
const ICONS = { device: 'devices', call: 'calls', book: 'book', voice: 'voice', webhook: 'webhook', npc: 'npc', template: 'template', picture: 'picture', key: 'keys', org: 'org', approval: 'approval' };
/** Where a thing of each kind is shown. @type {Record<string, (id: string) => string>} */
const PLACES = { book: (id) => `/books/${id}`, webhook: (id) => `/webhooks/${id}`, npc: (id) => `/npcs/${id}`, template: (id) => `/templates/${id}`, voice: () => '/voices', picture: () => '/pictures', key: () => '/keys', org: () => '/organisation' };

/** Those of one device, or the newest of all. @param {{device?: string}} props */
export function Events({ device }) {
  const events = device === undefined ? live.events.value.slice(0, SHOWN) : live.events.value.filter(({ data }) => data.device_id === device).slice(0, SHOWN_OF_DEVICE);
  return h(Card, { title: t('events.title'), flush: true }, events.length === 0
    ? h('p', { class: 'body soft' }, t(live.state.value === 'live' ? 'events.none' : 'events.off'))
    : h('ul', { class: 'lines' }, events.map((event) => h(Line, { key: event.id ?? event.data.at, event }))));
}

/** @param {{event: LiveEvent}} props */
function Line({ event: { type, data } }) {
  const kind = type === 'setting.changed' ? String(data.kind) : type.replace(/\..*$/, '');
  const device = typeof data.device_id === 'string' ? data.device_id : undefined;
  const place = typeof data.id === 'string' ? PLACES[kind]?.(data.id) : undefined;
  const word = maybe(`event.${type === 'setting.changed' ? kind : type}`) ?? type;
  return h('li', null,
    h('span', { class: 'faint' }, h(Icon, { name: ICONS[kind] ?? 'info' })),
    h('span', { class: 'row event grow' },
      place ? h('a', { href: href(place) }, word) : h('span', null, word),
      data.service && h('span', { class: 'mono break' }, h(Text, null, String(data.service))),
      device && h(Id, { id: device, to: `/devices/${encodeURIComponent(device)}` }),
      data.outcome && h(Outcome, { outcome: String(data.outcome) }),
      data.state && h('span', { class: 'tag' }, maybe(`${kind}s.state.${data.state}`) ?? h(Text, null, String(data.state))),
      data.reason && h('span', { class: 'small faint' }, maybe(`reason.${data.reason}`) ?? h(Text, null, String(data.reason)))),
    data.at && h('span', { class: 'faint small' }, h(Time, { at: data.at })));
}
