/** One device: its presence above, and its services, journal, asynchronous and queued calls, events, NPC, MCP endpoint, approvals and raw state as tabs. */
import { may, path, post, remove } from '../api.js';
import { Bone, Button, Card, Failure, Head, Presence, Text, Time, copy, toast } from '../components/basic.js';
import { Json } from '../components/code.js';
import { Confirm } from '../components/dialog.js';
import { Events } from '../components/events.js';
import { Tabs } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { Journal } from '../components/journal.js';
import { EditLabels, Labels } from '../components/labels.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { href, navigate } from '../router.js';
import { Connect } from './agent.js';
import { DeviceApprovals } from './device_approvals.js';
import { DeviceCalls } from './device_calls.js';
import { NewToken } from './device_dialogs.js';
import { DeviceNpc } from './device_npc.js';
import { Services } from './device_services.js';
import { Left } from './devices.js';

/** @typedef {import('../types.js').Device} Device */

/** @type {import('../screens.js').Screen} */
export const device = { paths: ['/devices/:id', '/devices/:id/:tab'], title: 'device.title', parent: '/devices', view: DevicePage };

const TABS = /** @type {const} */ (['services', 'journal', 'calls', 'events', 'npc', 'mcp', 'approvals', 'raw']);

/** @param {{params: Record<string, string>, query: URLSearchParams}} props */
function DevicePage({ params, query }) {
  const id = /** @type {string} */ (params.id);
  const tab = params.tab ?? 'services';
  const place = `/devices/${encodeURIComponent(id)}`;
  const resource = useResource(path`/v1/devices/${id}`);
  useLive(resource.reload, [`device:${id}`, 'approval', 'org']);
  const data = /** @type {Device | undefined} */ (resource.data);
  if (resource.error && !data) return h('div', null, h(Head, { title: h('span', { class: 'mono' }, h(Text, null, id)), back: { to: '/devices', label: t('devices.title') } }), h(Failure, { error: resource.error, retry: resource.reload }));
  const count = data ? Object.keys(data.services ?? {}).length : undefined;
  const waiting = Object.values(data?.approvals ?? {}).filter((state) => state !== 'approved').length;
  return h('div', { class: 'stack wide' },
    h(Summary, { id, device: data, reload: resource.reload }),
    h(Tabs, { label: t('device.tabs'), tabs: TABS.map((name) => ({ to: href(name === 'services' ? place : `${place}/${name}`), label: t(`device.${name}`), current: name === tab, count: name === 'services' ? count : name === 'approvals' ? waiting || undefined : undefined })) }),
    tab === 'services' && h(Services, { key: id, device: data, query }),
    tab === 'journal' && h(Journal, { key: id, device: id, limit: 200 }),
    tab === 'calls' && h(DeviceCalls, { key: id, device: id }),
    tab === 'events' && h(Events, { key: id, device: id }),
    tab === 'npc' && h(DeviceNpc, { key: id, device: id }),
    tab === 'mcp' && h(Connect, { key: id, query, scope: 'device', subject: id }),
    tab === 'approvals' && h(DeviceApprovals, { key: id, device: id }),
    tab === 'raw' && h(Card, { title: `GET /v1/devices/${id}` }, data ? h(Json, { value: data, label: t('device.raw') }) : h(Bone, null)));
}

/** @param {{id: string, device: Device | undefined, reload: () => void}} props */
function Summary({ id, device, reload }) {
  const [open, setOpen] = useState(/** @type {'token' | 'labels' | 'disconnect' | 'forget' | undefined} */ (undefined));
  const close = () => setOpen(undefined);
  const fact = (/** @type {import('../i18n.js').Key} */ name, /** @type {any} */ value) => h('div', null, h('dt', null, t(name)), h('dd', null, device ? value : h(Bone, null)));
  return h('div', null,
    h('header', { class: 'page-head' },
      h('div', null,
        h('a', { class: 'crumb', href: href('/devices') }, h(Icon, { name: 'left' }), t('devices.title')),
        h('div', { class: 'row device-name' }, h('h1', { class: 'break' }, h(Text, null, id)), h(Button, { kind: 'plain', small: true, icon: 'copy', label: t('act.copy.id', { id }), onClick: () => copy(id) }), device && h(Presence, { online: device.online }))),
      h('div', { class: 'row' },
        may('admin') && h(Button, { icon: 'lock', onClick: () => setOpen('token') }, t('device.token')),
        may('admin') && h('details', { class: 'menu' },
          h('summary', { class: 'button' }, t('device.more'), h(Icon, { name: 'chevron' })),
          h('div', { class: 'sheet list' },
            device && h(Button, { kind: 'plain', icon: 'group', onClick: () => setOpen('labels') }, t('labels.edit')),
            device?.online ? h(Button, { kind: 'plain', icon: 'power', onClick: () => setOpen('disconnect') }, t('device.disconnect')) : h(Button, { kind: 'plain', icon: 'trash', onClick: () => setOpen('forget') }, t('device.forget')))))),
    device && (device.labels?.length || device.note) ? h('div', { class: 'device-notes' },
      device.labels?.length ? h('div', { class: 'row labels' }, h(Labels, { labels: device.labels })) : null,
      device.note ? h('p', { class: 'note' }, h(Text, null, device.note)) : null) : null,
    h('dl', { class: 'facts' },
      device && !device.online ? fact('device.lastSeen', h(Left, { device })) : fact('device.since', h(Time, { at: device?.since })),
      device && !device.online && device.left_reason ? null : fact('device.node', h('span', { class: 'mono' }, device?.node ? device.node.split('.')[0] : t('none'))),
      fact('device.services', t('devices.serviceCount', { n: Object.keys(device?.services ?? {}).length }))),
    open === 'token' && h(NewToken, { device: id, onClose: close }),
    open === 'labels' && device && h(EditLabels, { device, onClose: close, saved: reload }),
    open === 'disconnect' && h(Confirm, { title: `${t('device.disconnect')}: ${id}`, text: t('device.disconnect.text'), act: t('device.disconnect'), onClose: close, run: async () => {
      await post(path`/v1/devices/${id}/disconnect`);
      reload();
    } }),
    open === 'forget' && h(Confirm, { title: `${t('device.forget')}: ${id}`, text: t('device.forget.text'), act: t('device.forget'), word: id, onClose: close, run: async () => {
      await remove(path`/v1/devices/${id}`);
      toast(t('device.forgotten', { id }));
      navigate(href('/devices'));
    } }));
}
