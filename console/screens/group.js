/** A group call: one service of all devices with some labels, from one form, each with its own outcome. */
import { Problem, may, path } from '../api.js';
import { Bone, Button, Card, Delivered, Empty, Failure, Head, Id, Notice, Outcome, Text } from '../components/basic.js';
import { useGroupCall } from '../components/group_call.js';
import { LabelFilter, labelsOf } from '../components/labels.js';
import { ParamsForm, useParams } from '../components/params.js';
import { SelectField } from '../components/field.js';
import { ReachNotice } from '../components/reach.js';
import { Result } from '../components/result.js';
import { table } from '../components/table.js';
import { plain } from '../form/safe.js';
import { duration, number, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useMemo, useRef, useState } from '../preact.js';
import { useList, useResource } from '../resource.js';
import { setQuery } from '../router.js';
import { useUnsaved } from '../unsaved.js';
import { serviceNames } from './devices.js';

/** @typedef {import('../types.js').Device} Device */
/** @typedef {import('../components/group_call.js').Item} Item */
/** @typedef {import('../components/group_call.js').GroupRun} GroupRun */

/** @type {import('../screens.js').Screen} */
export const group = { paths: ['/group'], title: 'group.title', parent: '/devices', view: Group };

/** The most devices that one call reaches. */
const MAX_DEVICES = 200;

/** @param {{query: URLSearchParams}} props */
function Group({ query }) {
  const labels = labelsOf(query);
  const set = labels.join();
  const list = useList('/v1/devices', 'devices', { services: 'names', label: labels }, MAX_DEVICES);
  useLive(list.reload, ['device']);
  const { run, start, stop } = useGroupCall();
  useUnsaved(run?.state === 'running');
  const devices = labels.length > 0 ? /** @type {Device[] | undefined} */ (list.data?.items) : [];
  const offers = offered(devices ?? []);
  // Devices come and go, and the order of the services changes with them: the form stays with the one it began with.
  const first = useRef({ set, name: '' });
  if (first.current.set !== set) first.current = { set, name: '' };
  first.current.name ||= offers[0]?.name ?? '';
  const name = query.get('service') || first.current.name;
  const tooMany = devices !== undefined && list.data?.more;
  return h('div', { class: 'stack wide' },
    h(Head, { title: t('group.title'), text: t('group.text'), back: { to: '/devices', label: t('devices.title') } }),
    h(ReachNotice, null),
    h(Card, { title: t('group.devices') }, h('div', { class: 'stack' },
      h(LabelFilter, { value: labels }),
      list.error && h(Failure, { error: list.error, retry: list.reload }),
      labels.length > 0 && (devices ? h('p', { class: 'number', role: 'status' }, t('devices.shown', { n: devices.length, online: number(devices.filter((device) => device.online).length) })) : h(Bone, { width: 160 })),
      tooMany && h(Notice, { tone: 'warn' }, t('group.tooMany', { n: MAX_DEVICES })))),
    labels.length === 0 ? h(Card, { flush: true }, h(Empty, { title: t('group.choose'), text: t('group.choose.text') }))
      : devices && !name && h(Card, { flush: true }, h(Empty, { picture: false, title: t('group.noServices') })),
    h('div', { class: 'service-columns' },
      labels.length > 0 && devices && name && h(Form, { key: `${name} ${set}`, labels, offers, name, run, start, disabled: Boolean(tooMany), total: devices.length }),
      (run || (labels.length > 0 && devices && name)) && h(Card, { title: t('group.outcomes'), flush: true }, run ? h(Outcomes, { run, stop }) : h(Empty, { title: t('service.result.none'), text: t('group.outcomes.text') }))));
}

/** The services of some devices, those that most of them offer first. @param {Device[]} devices @returns {{name: string, count: number, device: string}[]} */
export function offered(devices) {
  /** @type {Map<string, {name: string, count: number, device: string}>} */
  const found = new Map();
  for (const device of devices) {
    for (const name of serviceNames(device)) {
      const known = found.get(name);
      if (known) known.count += 1;
      else found.set(name, { name, count: 1, device: device.id });
    }
  }
  return [...found.values()].sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
}

/** @param {{labels: string[], offers: ReturnType<typeof offered>, name: string, run: GroupRun | undefined, start: ReturnType<typeof useGroupCall>['start'], disabled: boolean, total: number}} props */
function Form({ labels, offers, name, run, start, disabled, total }) {
  const service = offers.find((each) => each.name === name);
  // The definition is that of the device which was the first, even if another one comes before it.
  const source = useRef(/** @type {string | undefined} */ (undefined));
  source.current ??= service?.device;
  const resource = useResource(source.current && path`/v1/devices/${source.current}`);
  const definition = /** @type {import('../types.js').Service | undefined} */ (resource.data?.services?.[name]);
  const options = (service ? offers : [{ name, count: 0 }, ...offers]).map((each) => ({ value: each.name, label: t('group.offered', { name: plain(each.name), count: each.count, n: total }) }));
  const errors = run?.service === name && run.error instanceof Problem ? run.error.errors : [];
  return h(Card, { class: 'call-card' }, h('div', { class: 'stack' },
    h(SelectField, { label: t('calls.service'), value: name, onChange: (value) => setQuery({ service: value }), hint: source.current && t('group.schema', { device: plain(source.current) }), options }),
    !service && h(Notice, { tone: 'warn', role: 'status' }, t('group.gone')),
    definition ? h(Fields, { definition, errors, busy: run?.state === 'running', disabled: disabled || !service, total, call: (params) => start({ labels, service: name, params }) })
      : resource.error ? h(Failure, { error: resource.error, retry: resource.reload })
        : source.current && (resource.data ? h(Notice, { tone: 'warn' }, t('group.gone')) : h(Bone, { width: 260 }))));
}

/** @param {{definition: import('../types.js').Service, errors: import('../types.js').Violation[], busy: boolean, disabled: boolean, total: number, call: (params: Record<string, unknown>) => void}} props */
function Fields({ definition, errors, busy, disabled, total, call }) {
  const schemaText = JSON.stringify(definition.parameters ?? null);
  const params = useParams(useMemo(() => JSON.parse(schemaText), [schemaText]));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    params.setTouched(true);
    if (params.reading.faults.length === 0) call(/** @type {Record<string, unknown>} */ (params.reading.value ?? {}));
  };
  return h('form', { class: 'stack', noValidate: true, onSubmit: submit, 'data-call-form': true },
    definition.description && h('p', { class: 'small soft break' }, h(Text, null, definition.description)),
    h(ParamsForm, { params, errors: errors.map((each) => ({ ...each, pointer: each.pointer.replace(/^\/params/, '') })) }),
    may('call') ? h('div', null, h(Button, { kind: 'primary', type: 'submit', icon: 'bolt', busy, disabled }, t('group.call', { n: total })))
      : h(Notice, null, t('service.noScope')));
}

/** @param {{run: GroupRun, stop: () => void}} props */
function Outcomes({ run, stop }) {
  const { items, devices } = run;
  const sums = Object.entries(items.map(outcomeOf).reduce((all, outcome) => ({ ...all, [outcome]: (all[outcome] ?? 0) + 1 }), /** @type {Record<string, number>} */ ({})));
  return h('div', null,
    h('div', { class: 'body stack' },
      h('div', { class: 'row apart' },
        h('span', { class: 'row' }, h('code', { class: 'break' }, h(Text, null, run.service)), h('strong', { role: 'status' }, t('group.progress', { done: number(items.length), n: devices ?? 0 }))),
        run.state === 'running' && h(Button, { small: true, kind: 'danger', icon: 'stop', onClick: stop }, t('service.stop'))),
      h('progress', { class: 'full', 'aria-label': t('group.outcomes'), max: devices, value: devices === undefined && run.state === 'running' ? undefined : items.length }),
      h('div', { class: 'row' }, sums.map(([outcome, count]) => h('span', { class: 'row sum', key: outcome }, h(Outcome, { outcome }), h('strong', { class: 'number' }, number(count))))),
      run.state === 'stopped' && h(Notice, { tone: 'warn' }, t('group.stopped')),
      h(Failure, { error: run.error })),
    items.length > 0 && table({
      label: t('group.outcomes'), items, id: (item) => item.device_id,
      columns: [
        { title: t('calls.device'), width: 90, cell: (item) => h(Id, { id: item.device_id, to: `/devices/${encodeURIComponent(item.device_id)}` }) },
        { title: t('journal.outcome'), width: 90, cell: (item) => h(Outcome, { outcome: outcomeOf(item) }) },
        { title: t('calls.delivered'), width: 80, wide: true, cell: (item) => h('span', { class: 'soft' }, h(Delivered, { delivered: item.delivered })) },
        { title: t('calls.took'), width: 60, number: true, cell: (item) => h('span', { class: 'number nowrap' }, duration(item.elapsed_ms)) },
        { title: t('service.result'), width: 80, cell: (item) => h(Answer, { item }) },
      ],
    }));
}

/** How the call of one device ended; it has no outcome if it was refused before it was sent. @param {Item} item */
const outcomeOf = (item) => item.outcome ?? 'not_sent';

/** What one device answered, or why it did not. @param {{item: Item}} props */
function Answer({ item: { device_id: id, result, result_valid: valid, problem } }) {
  const [open, setOpen] = useState(false);
  if (problem) return h('span', { class: 'small soft break' }, h(Text, null, String(problem.detail ?? problem.title ?? '')));
  if (result === undefined || result === null) return null;
  return h('details', { onToggle: (/** @type {any} */ event) => setOpen(event.currentTarget.open) }, h('summary', { 'aria-label': `${t('service.result')}: ${id}` }, t('service.result')), open && h(Result, { result, valid }));
}
