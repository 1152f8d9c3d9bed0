/** One call: its way from being asked to its end, what was sent and what came back. */
import { Problem, get, path, remove } from '../api.js';
import { Bone, Button, Card, Delivered, Failure, Head, Id, Notice, Outcome, Text, Time, toast } from '../components/basic.js';
import { Json } from '../components/code.js';
import { Result } from '../components/result.js';
import { duration, exact, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useLoad } from '../resource.js';
import { href } from '../router.js';
import { Actor } from './calls.js';

/** @typedef {Partial<import('../types.js').StoredCall> & Partial<import('../types.js').JournalCall> & {call_id: string, device_id: string, service: string, created_at: string, delivered: import('../types.js').Delivered}} Call */

/** @type {import('../screens.js').Screen} */
export const call = { paths: ['/calls/:id'], title: 'call.title', parent: '/calls', view: CallPage };

/** A kept call has a resource of its own; another one is found in the journal. @param {string} id @param {AbortSignal} stop @returns {Promise<Call>} */
async function find(id, stop) {
  try {
    return await get(path`/v1/calls/${id}`, {}, stop);
  } catch (error) {
    if (!(error instanceof Problem && error.status === 404)) throw error;
    let cursor;
    do {
      /** @type {any} */
      const page = await get('/v1/calls/recent', { limit: 200, cursor }, stop).catch(() => undefined);
      const found = page?.calls.find((/** @type {Call} */ each) => each.call_id === id);
      if (found) return found;
      cursor = page?.next_cursor;
    } while (cursor);
    throw error;
  }
}

/** @param {{params: Record<string, string>}} props */
function CallPage({ params }) {
  const id = /** @type {string} */ (params.id);
  const resource = useLoad((stop) => find(id, stop), [id]);
  const data = resource.data;
  useLive(['call.finished'], (event) => {
    if (data && data.state && data.state !== 'ended' && (event.type === 'reload' || event.data.call_id === id)) resource.reload();
  });
  const back = { to: '/calls', label: t('calls.title') };
  if (resource.error && !data) return h('div', null, h(Head, { title: t('call.title'), back }), h(Failure, { error: resource.error, retry: resource.reload }));
  return h('div', { class: 'stack wide' },
    h(Head, { title: data ? h('span', { class: 'mono break' }, h(Text, null, data.service)) : h('span', { class: 'bone headline-bone' }), text: data && h('span', { class: 'row' }, h(Id, { id: data.device_id, to: `/devices/${encodeURIComponent(data.device_id)}` }), h(Id, { id })), back },
      data && h(Acts, { call: data, reload: resource.reload })),
    data ? h(Timeline, { call: data }) : h(Card, null, h(Bone, { width: 400 })),
    data && h(Details, { call: data }));
}

/** @param {{call: Call, reload: () => void}} props */
function Acts({ call: { call_id: id, device_id: device, service, params, state }, reload }) {
  const [busy, setBusy] = useState(false);
  const takeBack = async () => {
    setBusy(true);
    try {
      await remove(path`/v1/calls/${id}`);
      toast(t('call.takenBack'));
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    setBusy(false);
    reload();
  };
  return [
    state === 'queued' && h(Button, { key: 'back', kind: 'danger', icon: 'cross', busy, onClick: takeBack }, t('call.takeBack')),
    h(Button, { key: 'again', icon: 'again', href: href(`/devices/${encodeURIComponent(device)}`, { service, params: params && JSON.stringify(params) }) }, t('call.again')),
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
      call.params && h(Card, { title: t('service.params') }, h(Json, { value: call.params, label: t('service.params') })),
      call.result ? h(Card, { title: t('service.result') }, h(Result, { result: call.result, valid: call.result_valid })) : !call.detail && errors.length === 0 && h(Notice, { icon: call.outcome ? 'info' : 'clock' }, t(call.outcome ? 'call.noContent' : 'call.pending'))),
    h(Card, { title: t('call.facts') }, h('dl', { class: 'facts lines' },
      line(t('calls.at'), exact(call.created_at)),
      call.ended_at && line(t('calls.ended'), exact(call.ended_at)),
      call.actor && line(t('calls.by'), h(Actor, { call: /** @type {any} */ (call) })),
      call.mode && line(t('calls.mode'), t(`calls.mode.${call.mode}`)),
      call.elapsed_ms !== undefined && line(t('calls.took'), duration(call.elapsed_ms)),
      call.expires_at && line(t('calls.expires'), exact(call.expires_at)))));
}

/** @param {string} name @param {any} value */
const line = (name, value) => h('div', { key: name }, h('dt', { class: 'soft' }, name), h('dd', null, value));
