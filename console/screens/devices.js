/** The list of devices: presence, what they offer, where they are. Filters live in the URL. */
import { may } from '../api.js';
import { Button, Card, Empty, Head, Id, Presence, Text, Time, copy } from '../components/basic.js';
import { configuration } from '../components/clients.js';
import { NpcFilter, NpcOf, devicesOf, useDeviceNpcs } from '../components/device_npcs.js';
import { Filter, segmented } from '../components/field.js';
import { LabelFilter, Labels, labelsOf } from '../components/labels.js';
import { ReachNotice } from '../components/reach.js';
import { table } from '../components/table.js';
import { compare, maybe, number, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useMemo } from '../preact.js';
import { useList, useLoad } from '../resource.js';
import { href, setQuery } from '../router.js';

/** @typedef {import('../types.js').Device} Device */

/** @type {import('../screens.js').Screen} */
export const devices = { paths: ['/devices'], title: 'devices.title', group: 'run', icon: 'devices', shortcut: 'd', view: Devices };

/** @param {{query: URLSearchParams}} props */
function Devices({ query }) {
  const filter = { online: query.get('online') ?? '', prefix: query.get('prefix') ?? '', service: query.get('service') ?? '' };
  const label = labelsOf(query);
  const npc = query.get('npc') ?? '';
  const npcs = useDeviceNpcs();
  const list = useDevices(npc, { services: 'names', ...filter, label });
  useLive(list.reload, npc ? ['device', 'npc'] : ['device']);
  const sort = query.get('sort') ?? 'id';
  const filtered = npc !== '' || label.length > 0 || Object.values(filter).some(Boolean);
  const items = useMemo(() => list.data && sorted(/** @type {Device[]} */ (list.data.items), sort), [list.data, sort]);
  const online = items?.filter((device) => device.online).length;
  return h('div', null,
    h(Head, { title: t('devices.title'), text: t('devices.text') }, h(Button, { kind: 'primary', icon: 'plus', href: href('/welcome') }, t('devices.connect'))),
    h(ReachNotice, null),
    h('div', { class: 'toolbar' },
      h(Filter, { label: t('devices.prefix'), name: 'prefix', value: filter.prefix }),
      h(Filter, { label: t('devices.service'), name: 'service', value: filter.service }),
      segmented({ label: t('devices.presence'), value: filter.online, onChange: (value) => setQuery({ online: value }), options: [{ value: '', label: t('all') }, { value: 'true', label: t('device.online') }, { value: 'false', label: t('device.offline') }] }),
      h(LabelFilter, { value: label }),
      h(NpcFilter, { value: npc, npcs: npcs.data }),
      label.length > 0 && h(Button, { icon: 'bolt', href: href('/group', { label: label.join(',') }) }, t('group.title'))),
    h(Card, { flush: true },
      table({
        label: t('devices.title'), columns: columns(sort, npcs), items, id: (device) => device.id, error: list.error, reload: list.reload, loading: list.loading,
        more: list.data?.more && list.more,
        foot: items && t(list.data?.more ? 'list.shown' : 'devices.shown', { n: items.length, online: number(online ?? 0) }),
        empty: filtered
          ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text'), action: h(Button, { onClick: () => setQuery({ online: undefined, prefix: undefined, service: undefined, label: undefined, npc: undefined }) }, t('list.clear')) })
          : h(Empty, { title: t('overview.none'), text: t('overview.none.text'), action: h(Button, { kind: 'primary', href: href('/welcome') }, t('overview.connect')) }),
      })));
}

/** All devices in pages, or those of an NPC, which are few, at once. @param {string} npc @param {import('../components/device_npcs.js').Filter} filter */
function useDevices(npc, filter) {
  const all = useList(npc ? undefined : '/v1/devices', 'devices', filter);
  const linked = useLoad(async (stop) => (npc ? devicesOf(npc, filter, stop) : undefined), [npc, filter]);
  return npc ? { ...linked, more: undefined } : all;
}

/** @param {Device[]} items @param {string} sort */
function sorted(items, sort) {
  const down = sort.startsWith('-');
  const name = sort.replace('-', '');
  const key = (/** @type {Device} */ device) => ({ presence: device.online ? '1' : '0', since: device.since ?? device.last_seen ?? '', services: String(serviceNames(device).length).padStart(6, '0') })[name];
  const all = [...items].sort((a, b) => (name === 'id' ? compare(a.id, b.id) : compare(key(a) ?? '', key(b) ?? '') || compare(a.id, b.id)));
  return down ? all.reverse() : all;
}

/** @param {string} sort @param {ReturnType<typeof useDeviceNpcs>} npcs @returns {import('../components/table.js').Column<Device>[]} */
function columns(sort, npcs) {
  const by = (/** @type {string} */ name) => ({ active: sort.replace('-', '') === name, down: sort.startsWith('-'), toggle: () => setQuery({ sort: sort === name ? `-${name}` : name }) });
  return [
    { title: t('devices.id'), width: 130, sort: by('id'), cell: (device) => h(Id, { id: device.id, to: `/devices/${encodeURIComponent(device.id)}`, strong: true }) },
    { title: t('labels.title'), width: 110, cell: (device) => (device.labels?.length ? h('span', { class: 'row labels' }, h(Labels, { labels: device.labels })) : null) },
    { title: t('devices.presence'), width: 70, sort: by('presence'), cell: (device) => h(Presence, { online: device.online }) },
    { title: t('devices.since'), width: 110, sort: by('since'), cell: (device) => h('span', { class: 'soft' }, device.online ? h(Time, { at: device.since }) : h(Left, { device })) },
    { title: t('devices.services'), width: 60, sort: by('services'), cell: (device) => h('span', { title: serviceNames(device).slice(0, 20).join(', ') }, t('devices.serviceCount', { n: serviceNames(device).length })) },
    { title: t('device.npc'), width: 80, cell: (device) => h(NpcOf, { device: device.id, npcs }) },
    { title: t('devices.node'), width: 80, wide: true, cell: (device) => device.node && h('span', { class: 'mono faint', title: device.node }, device.node.split('.')[0]) },
    { title: t('keyring.acts'), width: 50, number: true, wide: true, cell: (device) => h(Acts, { id: device.id }) },
  ];
}

/** What one does with a device most often. @param {{id: string}} props */
function Acts({ id }) {
  const mcp = () => configuration('cursor', { origin: location.origin, endpoint: `/mcp/devices/${encodeURIComponent(id)}`, scope: 'device', subject: id, key: undefined, stdio: false });
  return h('span', { class: 'nowrap' },
    may('call') && h(Button, { small: true, kind: 'plain', icon: 'bolt', label: t('devices.call', { id }), href: href(`/devices/${encodeURIComponent(id)}`) }),
    h(Button, { small: true, kind: 'plain', icon: 'agent', label: t('devices.mcp', { id }), onClick: () => copy(mcp()) }));
}

/** When and why the last connection ended. @param {{device: Device}} props */
export function Left({ device }) {
  return h('span', null, h(Time, { at: device.last_seen }), device.left_reason && h('span', { class: 'faint' }, ` · `, maybe(`reason.${device.left_reason}`) ?? h(Text, null, device.left_reason)));
}

/** The names of what a device offers, in whichever form the list has them. @param {Device} device */
export const serviceNames = (device) => device.service_names ?? Object.keys(device.services ?? {});
