/** What a device offers: choose a service, fill in its form, call it, see what comes back. */
import { Problem, may } from '../api.js';
import { Bone, Button, Card, Empty, Notice, Text } from '../components/basic.js';
import { newKey, useCall } from '../components/call.js';
import { Code, Json, Snippets } from '../components/code.js';
import { Search, segmented, TextField } from '../components/field.js';
import { ParamsForm, useParams } from '../components/params.js';
import { RunView } from '../components/run.js';
import { callSnippets } from '../components/snippets.js';
import { plain } from '../form/safe.js';
import { duration, t } from '../i18n.js';
import { h, useEffect, useMemo, useRef, useState } from '../preact.js';
import { href, route } from '../router.js';
import { ApprovalState } from './device_approvals.js';

/** @typedef {import('../types.js').Service} Service */
/** @typedef {import('../components/journal.js').Repeated} Repeated */
/** @typedef {'sync' | 'async' | 'queued'} Mode */

const SAMPLE = `##START 0x06 …\n${JSON.stringify({ type: 'register', services: { wave: { description: 'Waves', parameters: { type: 'object', properties: { times: { type: 'integer', minimum: 1, maximum: 5 } } } } } }, null, 2)}\n##END`;
/** From this number on, the list can be searched. */
const MANY = 8;

/** @param {{device: import('../types.js').Device | undefined, query: URLSearchParams}} props */
export function Services({ device, query }) {
  const [filter, setFilter] = useState('');
  const repeated = /** @type {Repeated | undefined} */ (route.value.handed);
  if (!device) return h('div', { class: 'services' }, h('div', { class: 'stack' }, [140, 110, 150].map((width) => h(Bone, { key: width, width }))), h(Card, null, h(Bone, { width: 300 })));
  const services = /** @type {Record<string, Service>} */ (device.services);
  const names = Object.keys(services);
  if (names.length === 0) return h(Card, { flush: true }, h(Empty, { title: t('device.noServices'), text: t('device.noServices.text') }, h(Code, { text: SAMPLE })));
  const wanted = query.get('service');
  const name = wanted && Object.hasOwn(services, wanted) ? wanted : /** @type {string} */ (names[0]);
  const shown = names.filter((each) => each.toLowerCase().includes(filter.toLowerCase()));
  const place = `/devices/${encodeURIComponent(device.id)}`;
  return h('div', { class: 'services' },
    h('nav', { class: 'service-list', 'aria-label': t('device.services') },
      names.length >= MANY && h(Search, { label: t('service.filter'), value: filter, onInput: setFilter }),
      h('ul', null, shown.map((each) => h('li', { key: each }, h('a', { href: href(place, { service: each }), 'aria-current': each === name ? 'true' : undefined },
        h('span', { class: 'mono break' }, h(Text, null, each)),
        h('span', { class: 'small soft clip' }, h(Text, null, firstSentence(services[each]?.description)))))))),
    h(ServiceView, { key: name, device, name, service: services[name] ?? {}, repeated: repeated?.service === name ? repeated : undefined }));
}

/** @param {unknown} text */
const firstSentence = (text) => (typeof text === 'string' ? text.slice(0, 160).split(/(?<=[.。])\s/)[0] : '');

/** @param {string | undefined} text */
function parsed(text) {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {{device: import('../types.js').Device, name: string, service: Service, repeated: Repeated | undefined}} props */
function ServiceView({ device, name, service, repeated }) {
  const approval = device.approvals?.[name];
  // A registration that comes again with the same schema does not disturb the form.
  const schemaText = JSON.stringify(service.parameters ?? null);
  const schema = useMemo(() => JSON.parse(schemaText), [schemaText]);
  const params = useParams(schema, useMemo(() => parsed(repeated?.isCut ? undefined : repeated?.params), [repeated]));
  const [mode, setMode] = useState(/** @type {Mode} */ ('sync'));
  const [timeout, setTimeout] = useState('');
  const [minutes, setMinutes] = useState('60');
  const [key, setKey] = useState(newKey);
  const { run, start, stop } = useCall(device.id);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const timeoutMs = /^[1-9]\d{0,5}$/.test(timeout.trim()) ? Number(timeout) : undefined;
  const expires = /^[1-9]\d{0,4}$/.test(minutes.trim()) ? Number(minutes) * 60_000 : undefined;
  const errors = run?.error instanceof Problem ? run.error.errors : [];
  const body = { service: name, params: params.reading.value ?? {}, ...(timeoutMs && { timeout_ms: timeoutMs }), ...(mode !== 'sync' && { mode }), ...(mode === 'queued' && expires && { expires_in_ms: expires }) };

  // After the faults are shown: the first of them, or the first field, gets the focus.
  const [focus, setFocus] = useState(0);
  const focusFirst = () => setFocus((times) => times + 1);
  useEffect(() => {
    if (focus === 0) return;
    const wrong = form.current?.querySelector('[aria-invalid="true"]') ?? form.current?.querySelector('input, select, textarea');
    if (wrong instanceof HTMLElement) wrong.focus();
  }, [focus]);
  // The server's own violations, too.
  useEffect(() => { if (errors.length > 0) focusFirst(); }, [run?.error]);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    params.setTouched(true);
    if (params.reading.faults.length > 0 || (timeout.trim() !== '' && !timeoutMs)) return focusFirst();
    const used = key;
    setKey(newKey());
    await start({ ...body, mode }, used);
    return undefined;
  };
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.isComposing) {
      event.preventDefault();
      form.current?.requestSubmit();
    }
  };
  return h('div', { class: 'service' },
    h('header', null, h('h2', { class: 'mono break' }, h(Text, null, name)),
      approval && h('p', { class: 'row small' }, h('span', { class: 'soft' }, t('approval.forModels')), h('a', { href: href(`/devices/${encodeURIComponent(device.id)}/approvals`) }, h(ApprovalState, { state: approval }))),
      h('p', { class: 'soft break' }, service.description ? h(Text, null, service.description) : t('service.description.none')),
      h(Claims, { service })),
    h('div', { class: 'service-columns' },
      h(Card, { class: 'call-card' }, h('form', { ref: form, class: 'stack', noValidate: true, onSubmit: submit, onKeyDown: keys, 'data-call-form': true },
        repeated?.isCut && h(Notice, { tone: 'warn' }, t('service.cut')),
        h(ParamsForm, { params, errors }),
        h('div', { class: 'stack tight' }, h('div', { class: 'row' }, h('span', { class: 'label' }, t('service.mode')), segmented({ label: t('service.mode'), value: mode, onChange: setMode, options: [{ value: 'sync', label: t('service.mode.sync') }, { value: 'async', label: t('service.mode.async') }, { value: 'queued', label: t('service.mode.queued') }] })),
          h('p', { class: 'small soft' }, t(`service.mode.${mode}.text`))),
        mode === 'queued' && h(TextField, { label: t('service.expires'), value: minutes, onInput: setMinutes, inputMode: 'numeric', class: 'input short' }),
        h('details', null, h('summary', { class: 'small soft' }, t('service.options')),
          h('div', { class: 'stack inset' },
            h(TextField, { label: t('service.timeoutMs'), hint: t('service.timeoutMs.hint'), wrong: timeout.trim() !== '' && !timeoutMs ? t('form.integer') : undefined, value: timeout, onInput: setTimeout, inputMode: 'numeric', class: 'input short' }),
            h(TextField, { label: t('service.key'), hint: t('service.key.hint'), value: key, onInput: setKey, mono: true, maxLength: 255 }))),
        !device.online && mode === 'sync' && h(Notice, { tone: 'warn' }, t('service.offline')),
        may('call') ? h('div', { class: 'row' }, h(Button, { kind: 'primary', type: 'submit', icon: 'bolt', busy: run?.state === 'running' }, t('service.call')), h('span', { class: 'small faint' }, h('kbd', null, 'Ctrl'), ' ', h('kbd', null, 'Enter')))
          : h(Notice, null, t('service.noScope')))),
      h(Card, { title: t('service.result'), class: 'result-card' }, h(RunView, { run, stop, again: focusFirst }))),
    h(Card, { title: t('service.snippets') }, h(Snippets, { label: t('service.snippets'), tabs: callSnippets({ origin: location.origin, device: device.id, body }) })),
    h('div', { class: 'stack tight' }, h(Schema, { title: t('service.schema'), value: service.parameters }), h(Schema, { title: t('service.output'), value: service.output })));
}

/** @param {{title: string, value: unknown}} props */
function Schema({ title, value }) {
  if (value === undefined) return null;
  return h('details', null, h('summary', { class: 'soft' }, title), h(Json, { value, label: title }));
}

/** What the device states about a service, marked as its claim. @param {{service: Service}} props */
function Claims({ service }) {
  const claims = Object.entries(service.annotations ?? {}).filter(([, value]) => value === true || typeof value === 'string');
  return h('div', { class: 'row' },
    typeof service.timeout_ms === 'number' && h('span', { class: 'tag' }, t('service.timeout', { time: duration(service.timeout_ms) })),
    claims.length > 0 && h('span', { class: 'small faint' }, t('service.claims')),
    claims.map(([claim, value]) => h('span', { class: 'tag', key: claim }, plain(value === true ? claim : `${claim}: ${String(value)}`))));
}
