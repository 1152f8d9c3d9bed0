/** Webhooks: where events are sent, and whether they arrive. */
import { useAct } from '../act.js';
import { may, post } from '../api.js';
import { Button, Card, Empty, Failure, Head, Text, Time } from '../components/basic.js';
import { Dialog, Secret } from '../components/dialog.js';
import { Check, TextField } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { table } from '../components/table.js';
import { maybe, number, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useRef, useState } from '../preact.js';
import { useList } from '../resource.js';
import { href, navigate } from '../router.js';
import { random } from '../upload/books.js';

/** @typedef {import('../types.js').Webhook} Webhook */
/** @typedef {Webhook['events'][number]} EventName */

/** @type {import('../screens.js').Screen} */
export const webhooks = { paths: ['/webhooks'], title: 'webhooks.title', group: 'connect', icon: 'webhook', shortcut: 'w', view: Webhooks };

export const EVENTS = /** @type {EventName[]} */ (['device.online', 'device.offline', 'device.event', 'call.finished', 'quota.warning']);

function Webhooks() {
  const list = useList('/v1/webhooks', 'webhooks', {});
  const [adding, setAdding] = useState(false);
  const [made, setMade] = useState(/** @type {import('../types.js').CreatedWebhook | undefined} */ (undefined));
  // Deliveries change its health without an event.
  useLive(list.reload);
  useLive(list.reload, ['webhook']);
  const add = h(Button, { kind: 'primary', icon: 'plus', disabled: !may('admin'), onClick: () => setAdding(true) }, t('webhooks.add'));
  return h('div', null,
    h(Head, { title: t('webhooks.title'), text: t('webhooks.text') }, add),
    h(Card, { flush: true }, table({
      label: t('webhooks.title'), items: /** @type {Webhook[] | undefined} */ (list.data?.items), id: (webhook) => webhook.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: h(Empty, { title: t('webhooks.none'), text: t('webhooks.none.text'), action: may('admin') && h(Button, { kind: 'primary', onClick: () => setAdding(true) }, t('webhooks.add')) },
        h('dl', { class: 'facts lines' }, EVENTS.map((event) => h('div', { key: event }, h('dt', null, h('code', null, event)), h('dd', { class: 'soft' }, t(`webhooks.event.${event}`)))))),
      columns: [
        { title: t('webhooks.url'), width: 200, cell: (webhook) => h('span', { class: 'two-lines' }, h('a', { class: 'main break', href: href(`/webhooks/${webhook.id}`) }, h(Text, null, webhook.description || webhook.url)), webhook.description && h('span', { class: 'small soft break' }, h(Text, null, webhook.url))) },
        { title: t('webhooks.health'), width: 90, cell: (webhook) => h(Health, { webhook }) },
        { title: t('webhooks.events'), width: 150, wide: true, cell: (webhook) => h('span', { class: 'row' }, webhook.events.map((event) => h('span', { class: 'tag', key: event }, event))) },
        { title: t('webhooks.dropped'), width: 40, number: true, wide: true, cell: (webhook) => number(webhook.dropped) },
        { title: t('webhooks.made'), width: 80, wide: true, cell: (webhook) => h('span', { class: 'soft' }, h(Time, { at: webhook.created_at })) },
      ],
    })),
    adding && h(NewWebhook, { onClose: () => setAdding(false), added: (webhook) => {
      setAdding(false);
      setMade(webhook);
    } }),
    made && h(Secret, { title: t('webhooks.secret'), secret: made.secret, onClose: () => navigate(href(`/webhooks/${made.id}`)) }, h('p', { class: 'soft' }, t('webhooks.secret.text'))));
}

/** Whether events arrive. @param {{webhook: Webhook}} props */
export function Health({ webhook }) {
  const { enabled, disabled_reason: reason, failing_since: since } = webhook;
  if (enabled === false) return h('span', { class: 'two-lines' }, h('span', { class: `state ${reason ? 'bad' : 'calm'}` }, h(Icon, { name: reason ? 'cross' : 'minus' }), t('webhooks.disabled')), reason && h('span', { class: 'small soft' }, maybe(`webhooks.reason.${reason}`) ?? reason));
  if (since) return h('span', { class: 'two-lines' }, h('span', { class: 'state warn' }, h(Icon, { name: 'warning' }), t('webhooks.failing')), h('span', { class: 'small soft' }, h(Time, { at: since })));
  return h('span', { class: 'state good' }, h(Icon, { name: 'check' }), t('webhooks.healthy'));
}

/** @param {{value: EventName[], onChange: (value: EventName[]) => void}} props */
export function EventChoice({ value, onChange }) {
  return h('fieldset', { class: 'stack tight' }, h('legend', { class: 'label' }, t('webhooks.events')),
    EVENTS.map((event) => h(Check, { key: event, checked: value.includes(event), hint: t(`webhooks.event.${event}`), onChange: (checked) => onChange(EVENTS.filter((each) => (each === event ? checked : value.includes(each)))) }, h('code', null, event))));
}

/** @param {{onClose: () => void, added: (webhook: import('../types.js').CreatedWebhook) => void}} props */
function NewWebhook({ onClose, added }) {
  const [address, setAddress] = useState('');
  const [description, setDescription] = useState('');
  const [events, setEvents] = useState(/** @type {EventName[]} */ (['device.online', 'device.offline']));
  const key = useRef(random());
  const { busy, error, run } = useAct(async () => {
    try {
      added(await post('/v1/webhooks', { url: address.trim(), events, ...(description.trim() && { description: description.trim() }) }, { key: key.current }));
    } catch (failure) {
      key.current = random();
      throw failure;
    }
  });
  return h(Dialog, { title: t('webhooks.add'), onClose },
    h('form', { class: 'stack', onSubmit: run },
      h(TextField, { label: t('webhooks.url'), hint: t('webhooks.url.hint'), mono: true, value: address, onInput: setAddress, placeholder: 'https://example.com/switchboard', maxLength: 2_048, inputMode: 'url', autocomplete: 'off', spellcheck: false, required: true }),
      h(TextField, { label: t('webhooks.description'), optional: true, value: description, onInput: setDescription, maxLength: 500, autocomplete: 'off' }),
      h(EventChoice, { value: events, onChange: setEvents }),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: address.trim() === '' || events.length === 0 }, t('webhooks.add.act')))));
}
