/** One webhook: its health, its deliveries, its secret. */
import { useAct } from '../act.js';
import { may, patch, path, post, remove, request } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Head, Id, Notice, Text, Time, toast } from '../components/basic.js';
import { Snippets } from '../components/code.js';
import { Confirm, Dialog, Secret } from '../components/dialog.js';
import { Select, TextField } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { table } from '../components/table.js';
import { VERIFY } from '../components/verify.js';
import { exact, maybe, number, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList, useLoad } from '../resource.js';
import { href, navigate, setQuery } from '../router.js';
import { random } from '../upload/books.js';
import { EventChoice, Health } from './webhooks.js';

/** @typedef {import('../types.js').Webhook} Webhook */
/** @typedef {import('../types.js').Delivery} Delivery */

/** @type {import('../screens.js').Screen} */
export const webhook = { paths: ['/webhooks/:id'], title: 'webhook.title', parent: '/webhooks', view: WebhookPage };

/** @param {{params: Record<string, string>, query: URLSearchParams}} props */
function WebhookPage({ params, query }) {
  const id = /** @type {string} */ (params.id);
  const resource = useLoad((signal) => request('GET', path`/v1/webhooks/${id}`, { signal }), [id]);
  /** @type {Webhook | undefined} */
  const data = resource.data?.data;
  const etag = resource.data?.etag;
  const state = query.get('state') ?? '';
  const deliveries = useList(path`/v1/webhooks/${id}/deliveries`, 'deliveries', { state });
  const reload = () => {
    resource.reload();
    deliveries.reload();
  };
  // Deliveries have no events.
  useLive(reload);
  useLive(reload, [`webhook:${id}`]);
  const back = { to: '/webhooks', label: t('webhooks.title') };
  if (resource.error && !data) return h('div', null, h(Head, { title: t('webhook.title'), back }), h(Failure, { error: resource.error, retry: resource.reload }));
  return h('div', { class: 'stack wide' },
    h(Head, { title: data ? h('span', { class: 'break' }, h(Text, null, data.description || data.url)) : h('span', { class: 'bone headline-bone' }), text: h(Id, { id }), back }, data && may('admin') && h(Acts, { webhook: data, etag, reload })),
    data && h(Trouble, { webhook: data, etag, reload }),
    h('div', { class: 'columns two' },
      h('div', { class: 'stack' }, h(Deliveries, { list: deliveries, state }), h(Card, { title: t('webhook.verify') }, h('div', { class: 'stack tight' }, h('p', { class: 'soft' }, t('webhook.verify.text')), h(Snippets, { tabs: VERIFY, label: t('webhook.verify') })))),
      h(Card, { title: t('webhook.facts') }, data ? h(Facts, { webhook: data }) : h(Bone, { width: 200 }))));
}

/** What stops deliveries, and what helps. @param {{webhook: Webhook, etag: string | undefined, reload: () => void}} props */
function Trouble({ webhook: { id, enabled, disabled_reason: reason, failing_since: since, dropped }, etag, reload }) {
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const enable = async () => {
    try {
      await patch(path`/v1/webhooks/${id}`, { enabled: true }, { etag });
      setError(undefined);
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
    reload();
  };
  return h('div', { class: 'stack tight' },
    enabled === false && h(Notice, { tone: reason ? 'bad' : undefined, title: t('webhooks.disabled'), actions: may('admin') && h(Button, { small: true, icon: 'play', onClick: enable }, t('webhook.enable')) }, reason ? maybe(`webhook.reason.${reason}`) ?? reason : t('webhook.disabled.text')),
    enabled !== false && since && h(Notice, { tone: 'warn', title: t('webhook.failing', { time: exact(since) }) }, t('webhook.failing.text')),
    dropped > 0 && h(Notice, { tone: 'warn', title: t('webhook.dropped', { n: dropped }) }, t('webhook.dropped.text')),
    h(Failure, { error }));
}

/** @param {{webhook: Webhook, etag: string | undefined, reload: () => void}} props */
function Acts({ webhook: data, etag, reload }) {
  const [open, setOpen] = useState(/** @type {'edit' | 'rotate' | 'delete' | undefined} */ (undefined));
  const [secret, setSecret] = useState(/** @type {string | undefined} */ (undefined));
  const [busy, setBusy] = useState(false);
  const close = () => setOpen(undefined);
  const test = async () => {
    setBusy(true);
    try {
      await post(path`/v1/webhooks/${data.id}/test`, undefined, { key: random() });
      toast(t('webhook.tested'));
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    setBusy(false);
    reload();
  };
  return [
    h(Button, { key: 'test', kind: 'primary', icon: 'bolt', busy, disabled: data.enabled === false, onClick: test }, t('webhook.test')),
    h(Button, { key: 'edit', onClick: () => setOpen('edit') }, t('webhook.edit')),
    h(Button, { key: 'rotate', icon: 'keys', onClick: () => setOpen('rotate') }, t('webhook.rotate')),
    h(Button, { key: 'delete', kind: 'danger', icon: 'trash', label: t('act.delete'), onClick: () => setOpen('delete') }),
    open === 'edit' && h(Edit, { key: 'editing', webhook: data, etag, onClose: close, saved: () => {
      close();
      reload();
    } }),
    open === 'rotate' && h(Confirm, { key: 'rotating', title: t('webhook.rotate'), text: t('webhook.rotate.text'), act: t('webhook.rotate'), onClose: close, run: async () => {
      const made = await post(path`/v1/webhooks/${data.id}/rotate-secret`, undefined, { key: random() });
      setSecret(made.secret);
      reload();
    } }),
    open === 'delete' && h(Confirm, { key: 'deleting', title: t('webhook.delete'), text: t('webhook.delete.text'), act: t('act.delete'), onClose: close, run: async () => {
      await remove(path`/v1/webhooks/${data.id}`, { etag });
      navigate(href('/webhooks'));
    } }),
    secret && h(Secret, { key: 'secret', title: t('webhooks.secret'), secret, onClose: () => setSecret(undefined) }, h('p', { class: 'soft' }, t('webhook.rotated.text'))),
  ];
}

/** @param {{webhook: Webhook, etag: string | undefined, onClose: () => void, saved: () => void}} props */
function Edit({ webhook: data, etag, onClose, saved }) {
  const [address, setAddress] = useState(data.url);
  const [description, setDescription] = useState(data.description ?? '');
  const [events, setEvents] = useState(data.events);
  const { busy, error, run } = useAct(async () => {
    await patch(path`/v1/webhooks/${data.id}`, { url: address.trim(), description: description.trim() || null, events }, { etag });
    saved();
  });
  return h(Dialog, { title: t('webhook.edit'), onClose }, h('form', { class: 'stack', onSubmit: run },
    h(TextField, { label: t('webhooks.url'), hint: t('webhooks.url.hint'), mono: true, value: address, onInput: setAddress, maxLength: 2_048, autocomplete: 'off', spellcheck: false, required: true }),
    h(TextField, { label: t('webhooks.description'), optional: true, value: description, onInput: setDescription, maxLength: 500, autocomplete: 'off' }),
    h(EventChoice, { value: events, onChange: setEvents }),
    h(Failure, { error }),
    h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: address.trim() === '' || events.length === 0 }, t('act.save')))));
}

/** @param {{list: ReturnType<typeof useList<Delivery>>, state: string}} props */
function Deliveries({ list, state }) {
  const again = async (/** @type {Delivery} */ delivery) => {
    try {
      await post(path`/v1/webhook-deliveries/${delivery.id}/redeliver`, undefined, { key: random() });
      toast(t('webhook.redelivered'));
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    list.reload();
  };
  const choice = h(Select, { 'aria-label': t('webhook.delivery.state'), value: state, onChange: (value) => setQuery({ state: value }), options: [{ value: '', label: t('webhook.delivery.all') }, ...['pending', 'delivered', 'failed'].map((value) => ({ value, label: maybe(`webhook.delivery.${value}`) ?? value }))] });
  return h(Card, { title: t('webhook.deliveries'), actions: choice, flush: true }, table({
    label: t('webhook.deliveries'), items: list.data?.items, id: (delivery) => delivery.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more, bones: 4,
    empty: state ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text') }) : h(Empty, { title: t('webhook.deliveries.none'), text: t('webhook.deliveries.none.text') }),
    columns: [
      { title: t('webhook.event'), width: 110, cell: (delivery) => h('span', { class: 'two-lines' }, h('code', null, delivery.event), h('span', { class: 'small soft' }, h(Time, { at: delivery.created_at }))) },
      { title: t('webhook.delivery.state'), width: 140, cell: (delivery) => h(DeliveryState, { delivery }) },
      { title: t('webhook.attempts'), width: 30, number: true, wide: true, cell: (delivery) => number(delivery.attempts) },
      { title: t('webhook.acts'), width: 80, number: true, cell: (delivery) => delivery.state === 'failed' && may('admin') && h(Button, { small: true, icon: 'again', onClick: () => again(delivery) }, t('webhook.redeliver')) },
    ],
  }));
}

/** @type {Record<Delivery['state'], ['good' | 'bad' | 'warn' | 'calm', import('../components/icon.js').IconName]>} */
const LOOKS = { pending: ['calm', 'clock'], delivered: ['good', 'check'], failed: ['bad', 'cross'] };

/** @param {{delivery: Delivery}} props */
function DeliveryState({ delivery }) {
  const [tone, icon] = LOOKS[delivery.state];
  const { last_error: error, last_status: status, next_attempt_at: next } = delivery;
  return h('span', { class: 'two-lines' },
    h('span', { class: `state ${tone}` }, h(Icon, { name: icon }), t(`webhook.delivery.${delivery.state}`), status !== null && status !== undefined && h('code', { class: 'faint' }, String(status))),
    error && delivery.state !== 'delivered' && h('span', { class: 'small soft break' }, maybe(`webhook.error.${error}`) ?? error),
    delivery.state === 'pending' && next && h('span', { class: 'small soft' }, t('webhook.next'), ' ', h(Time, { at: next })));
}

/** @param {{webhook: Webhook}} props */
function Facts({ webhook: data }) {
  const line = (/** @type {string} */ name, /** @type {any} */ value) => h('div', { key: name }, h('dt', { class: 'soft' }, name), h('dd', null, value));
  return h('dl', { class: 'facts lines' },
    line(t('webhooks.health'), h(Health, { webhook: data })),
    line(t('webhooks.url'), h('span', { class: 'mono break' }, h(Text, null, data.url))),
    line(t('webhooks.events'), h('span', { class: 'row' }, data.events.map((event) => h('span', { class: 'tag', key: event }, event)))),
    line(t('webhooks.dropped'), number(data.dropped)),
    data.former_secret_until && line(t('webhook.former'), exact(data.former_secret_until)),
    line(t('webhooks.made'), exact(data.created_at)));
}
