/** Connecting an agent: the endpoint, a key for this client, the configuration to paste, a test. */
import { useAct } from '../act.js';
import { may, post } from '../api.js';
import { Button, Card, Failure, Head, Notice, Text } from '../components/basic.js';
import { CLIENTS, configuration } from '../components/clients.js';
import { Code } from '../components/code.js';
import { Select, segmented, TextField } from '../components/field.js';
import { connect } from '../components/mcp_test.js';
import { plain } from '../form/safe.js';
import { t } from '../i18n.js';
import { h, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { setQuery } from '../router.js';

/** @type {import('../screens.js').Screen} */
export const agent = { paths: ['/agent'], title: 'agent.title', group: 'connect', icon: 'agent', shortcut: 'a', view: Agent };

/** @param {{query: URLSearchParams}} props */
function Agent({ query }) {
  const scope = query.get('npc') ? 'npc' : query.get('device') ? 'device' : 'all';
  const subject = query.get('npc') ?? query.get('device') ?? '';
  return h('div', null,
    h(Head, { title: t('agent.title'), text: t('agent.text') }),
    h(Connect, { query, scope, subject }, h(Reach, { scope, subject })));
}

/** The configuration of the client that the address names, a key for it, a test. @param {{query: URLSearchParams, scope: 'all' | 'device' | 'npc', subject: string, children?: any}} props */
export function Connect({ query, scope, subject, children }) {
  const client = CLIENTS.find((each) => each.id === query.get('client')) ?? /** @type {typeof CLIENTS[number]} */ (CLIENTS[0]);
  const wantsStdio = client.transports.length > 1 ? query.get('by') === 'stdio' : client.transports[0] === 'stdio';
  const [key, setKey] = useState(/** @type {string | undefined} */ (undefined));
  const endpoint = scope === 'all' ? '/mcp' : `/mcp/${scope}s/${encodeURIComponent(subject)}`;
  const text = configuration(client.id, { origin: location.origin, endpoint, scope, subject, key, stdio: wantsStdio });
  return h('div', { class: 'columns two' },
    h('div', { class: 'stack' },
      h(Card, { title: t('agent.client') },
        h('div', { class: 'stack' },
          h('div', { class: 'choices', role: 'group', 'aria-label': t('agent.client') }, CLIENTS.map((each) => h('button', { key: each.id, type: 'button', 'aria-pressed': String(each === client), onClick: () => setQuery({ client: each.id }) }, each.name))),
          client.transports.length > 1 && h('div', { class: 'row' }, h('span', { class: 'label' }, t('agent.by')), segmented({ label: t('agent.by'), value: wantsStdio ? 'stdio' : 'http', onChange: (by) => setQuery({ by }), options: [{ value: 'http', label: 'HTTP' }, { value: 'stdio', label: 'stdio' }] })),
          client.file && h('p', { class: 'small soft' }, t('agent.file'), ' ', h('code', { class: 'break' }, client.file)),
          h(Code, { text, label: client.name }),
          !key && h('p', { class: 'small soft' }, t('agent.placeholder'))))),
    h('div', { class: 'stack' },
      children,
      h(ClientKey, { name: client.name, made: key !== undefined, setKey }),
      h(Test, { endpoint, secret: key })));
}

/** What the agent may reach: all devices, one, or an NPC. @param {{scope: 'all' | 'device' | 'npc', subject: string}} props */
function Reach({ scope, subject }) {
  const [wanted, setWanted] = useState(scope);
  const devices = useResource(wanted === 'device' ? '/v1/devices' : undefined, { services: 'none', limit: 200 });
  const npcs = useResource(wanted === 'npc' ? '/v1/npcs' : undefined, { limit: 200 });
  const options = wanted === 'device' ? (devices.data?.devices ?? []).map((/** @type {any} */ each) => ({ value: each.id, label: plain(each.id) })) : (npcs.data?.npcs ?? []).map((/** @type {any} */ each) => ({ value: each.id, label: plain(each.effective.name) }));
  const choose = (/** @type {'all' | 'device' | 'npc'} */ value) => {
    setWanted(value);
    if (value === 'all') setQuery({ device: undefined, npc: undefined });
  };
  return h(Card, { title: t('agent.reach') },
    h('div', { class: 'stack' },
      segmented({ label: t('agent.reach'), value: wanted, onChange: choose, options: [{ value: 'all', label: t('agent.reach.all') }, { value: 'device', label: t('agent.reach.device') }, { value: 'npc', label: 'NPC' }] }),
      wanted !== 'all' && h(Select, { 'aria-label': t(wanted === 'device' ? 'agent.reach.device' : 'agent.reach.npc'), value: subject, onChange: (value) => setQuery(wanted === 'device' ? { device: value, npc: undefined } : { npc: value, device: undefined }), options: [{ value: '', label: t('form.choose') }, ...(subject && !options.some((/** @type {any} */ each) => each.value === subject) ? [{ value: subject, label: plain(subject) }] : []), ...options] }),
      h('p', { class: 'small soft' }, t(`agent.reach.${wanted}.text`))));
}

/** @param {{name: string, made: boolean, setKey: (key: string) => void}} props */
function ClientKey({ name, made, setKey }) {
  const { busy, error, run } = useAct(async () => {
    setKey((await post('/v1/api-keys', { name: name, scopes: ['call', 'read'] })).api_key);
  });
  if (made) return h(Notice, { tone: 'good', title: t('agent.key.made') }, t('agent.key.made.text'));
  return h(Card, { title: t('agent.key') }, h('div', { class: 'stack' },
    h('p', { class: 'soft' }, t('agent.key.text')),
    h(Failure, { error }),
    h('div', null, h(Button, { icon: 'keys', busy, disabled: !may('admin'), onClick: () => run() }, t('agent.key.make', { name }))),
    !may('admin') && h('p', { class: 'small soft' }, t('scope.missing', { scope: 'admin' }))));
}

/** Does what a client does first: initialize, then the list of tools. @param {{endpoint: string, secret: string | undefined}} props */
function Test({ endpoint, secret }) {
  const [typed, setTyped] = useState('');
  const [state, setState] = useState(/** @type {{busy?: boolean, error?: Error, tools?: string[], server?: string}} */ ({}));
  const used = secret ?? typed.trim();
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      setState(await connect(endpoint, used));
    } catch (error) {
      setState({ error: /** @type {Error} */ (error) });
    }
  };
  return h(Card, { title: t('agent.test') }, h('form', { class: 'stack', onSubmit: run },
    h('p', { class: 'soft' }, t('agent.test.text')),
    !secret && h(TextField, { label: t('signIn.key'), hint: t('agent.test.key'), type: 'password', autocomplete: 'off', mono: true, placeholder: 'sb_…', value: typed, onInput: setTyped }),
    h('div', null, h(Button, { type: 'submit', icon: 'bolt', busy: state.busy, disabled: used === '' }, t('agent.test.act'))),
    h(Failure, { error: state.error }),
    state.tools && h(Notice, { tone: 'good', role: 'status', title: t('agent.test.ok', { n: state.tools.length }) }, h('span', null, h(Text, null, state.server)), h('span', { class: 'mono small break' }, h(Text, null, state.tools.slice(0, 12).join(', ') + (state.tools.length > 12 ? ' …' : ''))))));
}
