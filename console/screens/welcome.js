/** The first steps: connect a device, call it, connect an agent. Where one is lives in the URL. */
import { Problem, may, path, post, session } from '../api.js';
import { Button, Card, Failure, Head, Presence, Text } from '../components/basic.js';
import { useCall, newKey } from '../components/call.js';
import { Snippets } from '../components/code.js';
import { Select, TextField } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { ParamsForm, useParams } from '../components/params.js';
import { RunView } from '../components/run.js';
import { shell } from '../components/snippets.js';
import { plain } from '../form/safe.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useMemo, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { href, setQuery } from '../router.js';

/** @typedef {import('../types.js').Device} Device */

/** @type {import('../screens.js').Screen} */
export const welcome = { paths: ['/welcome'], title: 'welcome.title', parent: '/', view: Welcome };

const DEVICE_ID = /^[A-Za-z0-9._:-]{1,64}$/;

/** @param {{query: URLSearchParams}} props */
function Welcome({ query }) {
  const step = Math.min(3, Math.max(1, Number(query.get('step')) || 1));
  const id = query.get('id') ?? 'toy-1';
  const valid = DEVICE_ID.test(id);
  const resource = useResource(valid ? path`/v1/devices/${id}` : undefined);
  const device = /** @type {Device | undefined} */ (resource.error instanceof Problem && resource.error.status === 404 ? undefined : resource.data);
  useLive(resource.reload, [`device:${id}`]);
  const names = /** @type {const} */ (['device', 'call', 'agent']);
  return h('div', { class: 'narrow' },
    h(Head, { title: t('welcome.title'), text: t('welcome.text') }, h(Button, { kind: 'plain', href: href('/') }, t('act.skip'))),
    h('ol', { class: 'timeline steps' }, names.map((name, index) => h('li', { key: name, class: index + 1 <= step ? 'done' : '', 'aria-current': index + 1 === step ? 'step' : undefined }, h('i', { 'aria-hidden': 'true' }), h('strong', null, t(`welcome.${name}`))))),
    step === 1 && h(ConnectDevice, { id, valid, device }),
    step === 2 && h(CallIt, { device, id }),
    step === 3 && h(Card, { title: t('welcome.agent') }, h('div', { class: 'stack' }, h('p', { class: 'soft' }, t('welcome.agent.text')), h('div', { class: 'row' }, h(Button, { kind: 'primary', icon: 'agent', href: href('/agent', { device: id }) }, t('welcome.agent.act')), h(Button, { href: href('/') }, t('welcome.finish'))))));
}

/** @param {{id: string, valid: boolean, device: Device | undefined}} props */
function ConnectDevice({ id, valid, device }) {
  const [token, setToken] = useState(/** @type {string | undefined} */ (undefined));
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const issue = async () => {
    setError(undefined);
    try {
      setToken((await post('/v1/tokens', { subject: `device:${id}`, scopes: ['device'], ttl_s: 86_400 })).access_token);
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
  };
  const count = device ? Object.keys(device.services ?? {}).length : 0;
  return h(Card, { title: t('welcome.device') }, h('div', { class: 'stack wide' },
    h('p', { class: 'soft' }, t('welcome.device.text')),
    h(TextField, { label: t('welcome.device.id'), hint: t('welcome.device.id.hint'), wrong: valid ? undefined : t('welcome.device.id.hint'), mono: true, value: id, onInput: (/** @type {string} */ value) => {
      setToken(undefined);
      setQuery({ id: value });
    }, maxLength: 64, autocomplete: 'off', spellcheck: false, autocapitalize: 'off' }),
    h(Snippets, { label: t('welcome.device'), tabs: deviceSnippets(valid ? id : 'toy-1', token) }),
    may('admin') && !token && h('div', { class: 'stack tight' }, h('p', { class: 'small soft' }, t('welcome.device.token.text')), h('div', null, h(Button, { icon: 'lock', disabled: !valid, onClick: issue }, t('welcome.device.token')))),
    h(Failure, { error }),
    h('div', { class: `waiting ${device?.online ? 'there' : ''}`, role: 'status' },
      device?.online ? h(Icon, { name: 'check' }) : h('i', { class: 'pulse', 'aria-hidden': 'true' }),
      h('span', { class: 'grow break' }, device?.online ? t('welcome.device.there', { id: plain(id), n: count }) : t('welcome.device.waiting', { id: plain(id) })),
      device?.online && h(Button, { kind: 'primary', onClick: () => setQuery({ step: '2' }) }, t('act.next')))));
}

/** How a device with this id connects. @param {string} id @param {string | undefined} token */
function deviceSnippets(id, token) {
  return [
    { name: 'Demo', text: token ? `switchboard device \\\n  --addr ${location.hostname}:${session.value?.device_port ?? 7700} \\\n  --token ${token}` : `switchboard device --id ${shell(id)}` },
    { name: 'Services', text: `# services.json: every command becomes a service\n{"services": {"say": {"description": "Says a text",\n  "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},\n  "command": ["espeak-ng", "--stdin"]}}}\n\nswitchboard device --id ${shell(id)} --services services.json` },
    ...(token ? [{ name: 'Token', text: token }] : []),
  ];
}

/** @param {{device: Device | undefined, id: string}} props */
function CallIt({ device, id }) {
  const services = /** @type {Record<string, import('../types.js').Service>} */ (device?.services ?? {});
  const names = Object.keys(services);
  const [chosen, setChosen] = useState('');
  const name = names.includes(chosen) ? chosen : names[0] ?? '';
  return h(Card, { title: t('welcome.call'), actions: device && h(Presence, { online: device.online }) }, h('div', { class: 'stack' },
    h('p', { class: 'soft' }, t('welcome.call.text')),
    names.length > 0 && h(Select, { 'aria-label': t('calls.service'), value: name, onChange: setChosen, options: names.map((each) => ({ value: each, label: plain(each) })) }),
    name && h(OneCall, { key: name, id, name, service: /** @type {any} */ (services[name]) }),
    h('div', { class: 'row apart' }, h(Button, { onClick: () => setQuery({ step: '1' }) }, t('act.back')), h(Button, { onClick: () => setQuery({ step: '3' }) }, t('act.next')))));
}

/** @param {{id: string, name: string, service: import('../types.js').Service}} props */
function OneCall({ id, name, service }) {
  const schemaText = JSON.stringify(service.parameters ?? null);
  const params = useParams(useMemo(() => JSON.parse(schemaText), [schemaText]));
  const { run, start, stop } = useCall(id);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    params.setTouched(true);
    if (params.reading.faults.length === 0) start({ service: name, params: params.reading.value, mode: 'sync' }, newKey());
  };
  return h('form', { class: 'stack', noValidate: true, onSubmit: submit, 'data-call-form': true },
    service.description && h('p', { class: 'small soft' }, h(Text, null, service.description)),
    h(ParamsForm, { params, errors: run?.error instanceof Problem ? run.error.errors : [] }),
    h('div', null, h(Button, { kind: 'primary', type: 'submit', icon: 'bolt', busy: run?.state === 'running' }, t('service.call'))),
    run && h(RunView, { run, stop, again: () => {} }));
}
