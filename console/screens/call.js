/** One call: its way from being asked to its end, and what came back. */
import { path, remove } from '../api.js';
import { Bone, Button, Card, Delivered, Failure, Head, Id, Notice, Outcome, Text, Time, toast } from '../components/basic.js';
import { Result } from '../components/result.js';
import { duration, exact, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { href } from '../router.js';

/** @typedef {import('../types.js').StoredCall} Call */

/** @type {import('../screens.js').Screen} */
export const call = { paths: ['/calls/:id'], title: 'call.title', parent: '/calls', view: CallPage };

/** @param {{params: Record<string, string>}} props */
function CallPage({ params }) {
  const id = /** @type {string} */ (params.id);
  const resource = useResource(path`/v1/calls/${id}`);
  const data = /** @type {Call | undefined} */ (resource.data);
  const again = () => {
    if (data?.state !== 'ended') resource.reload();
  };
  useLive(again);
  useLive(again, [`call:${id}`]);
  const back = { to: '/calls', label: t('calls.title') };
  if (resource.error && !data) return h('div', null, h(Head, { title: t('call.title'), back }), h(Failure, { error: resource.error, retry: resource.reload }));
  return h('div', { class: 'stack wide' },
    h(Head, { title: data ? h('span', { class: 'mono break' }, h(Text, null, data.service)) : h('span', { class: 'bone headline-bone' }), text: data && h('span', { class: 'row' }, h(Id, { id: data.device_id, to: `/devices/${encodeURIComponent(data.device_id)}` }), h(Id, { id })), back },
      data && h(Acts, { call: data, reload: resource.reload })),
    data ? h(Timeline, { call: data }) : h(Card, null, h(Bone, { width: 400 })),
    data && h(Details, { call: data }));
}

/** @param {{call: Call, reload: () => void}} props */
function Acts({ call: { call_id: id, device_id: device, service, state }, reload }) {
  const [busy, setBusy] = useState(false);
  const cancel = async () => {
    setBusy(true);
    try {
      await remove(path`/v1/calls/${id}`);
      toast(t('call.cancelled'));
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    setBusy(false);
    reload();
  };
  return [
    state === 'queued' && h(Button, { key: 'cancel', kind: 'danger', icon: 'cross', busy, onClick: cancel }, t('call.cancel')),
    h(Button, { key: 'again', icon: 'again', href: href(`/devices/${encodeURIComponent(device)}`, { service }) }, t('call.again')),
  ];
}

/** Asked, sent, ended: jacks on one cord. @param {{call: Call}} props */
function Timeline({ call }) {
  const ended = call.outcome !== undefined;
  const sent = ended ? call.delivered !== 'no' : call.state === 'sent';
  const steps = [
    { name: t('call.asked'), done: true, detail: h(Time, { at: call.created_at }) },
    { name: call.delivered === 'no' && ended ? t('call.notSent') : t('call.sent'), done: sent, detail: h(Delivered, { delivered: call.delivered }) },
    { name: ended ? h(Outcome, { outcome: /** @type {string} */ (call.outcome) }) : t('call.ends'), done: ended, detail: ended && call.elapsed_ms !== undefined ? duration(call.elapsed_ms) : call.expires_at && call.state === 'queued' ? h('span', null, t('calls.expires'), ' ', h(Time, { at: call.expires_at })) : t('call.waiting') },
  ];
  return h('ol', { class: 'timeline' }, steps.map((step, index) => h('li', { key: index, class: step.done ? 'done' : '' }, h('i', { 'aria-hidden': 'true' }), h('strong', null, step.name), h('span', { class: 'small soft' }, step.detail))));
}

/** @param {{call: Call}} props */
function Details({ call }) {
  const errors = call.errors ?? [];
  return h('div', { class: 'columns two' },
    h('div', { class: 'stack' },
      call.detail && h(Notice, { tone: call.outcome === 'succeeded' ? undefined : 'warn' }, h(Text, null, call.detail)),
      errors.length > 0 && h(Card, { title: t('call.errors') }, h('ul', { class: 'stack' }, errors.map((each) => h('li', { key: each.pointer }, h('code', null, h(Text, null, each.pointer || '/')), ' ', h(Text, null, each.detail))))),
      call.result ? h(Card, { title: t('service.result') }, h(Result, { result: call.result, valid: call.result_valid })) : !call.detail && errors.length === 0 && h(Notice, { icon: call.outcome ? 'info' : 'clock' }, t(call.outcome ? 'call.noContent' : 'call.pending'))),
    h(Card, { title: t('call.facts') }, h('dl', { class: 'facts lines' },
      line(t('calls.at'), exact(call.created_at)),
      call.ended_at && line(t('calls.ended'), exact(call.ended_at)),
      line(t('calls.mode'), t(`calls.mode.${call.mode}`)),
      call.elapsed_ms !== undefined && line(t('calls.took'), duration(call.elapsed_ms)),
      call.expires_at && line(t('calls.expires'), exact(call.expires_at)))));
}

/** @param {string} name @param {any} value */
const line = (name, value) => h('div', { key: name }, h('dt', { class: 'soft' }, name), h('dd', null, value));
