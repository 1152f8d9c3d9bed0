/** API keys and access tokens: what each may do, when it was used, and an end to it. */
import { useAct } from '../act.js';
import { may, path, post, remove, session } from '../api.js';
import { Button, Card, Empty, Failure, Head, Id, Notice, Text, Time } from '../components/basic.js';
import { Confirm, Dialog, Secret } from '../components/dialog.js';
import { Check, segmented, SelectField, TextField } from '../components/field.js';
import { table } from '../components/table.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList } from '../resource.js';
import { setQuery } from '../router.js';

/** @typedef {import('../types.js').ApiKey} ApiKey */
/** @typedef {import('../types.js').Token} Token */
/** @typedef {import('../types.js').Scope} Scope */

/** @type {import('../screens.js').Screen} */
export const keys = { paths: ['/keys'], title: 'keyring.title', group: 'manage', icon: 'keys', shortcut: 'k', view: Keys };

/** @type {Scope[]} */
const SCOPES = ['read', 'call', 'admin', 'device', 'provision'];
const LIFETIMES = /** @type {const} */ (['never', 'month', 'year']);
const DAYS = { never: 0, month: 30, year: 365 };

/** @param {{query: URLSearchParams}} props */
function Keys({ query }) {
  const view = query.get('view') === 'tokens' ? 'tokens' : 'keys';
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState(/** @type {import('../types.js').CreatedKey | undefined} */ (undefined));
  const list = useList('/v1/api-keys', 'api_keys', {}, 100);
  // The use of a key has no event.
  useLive(list.reload);
  useLive(list.reload, ['key']);
  return h('div', null,
    h(Head, { title: t('keyring.title'), text: t(`keyring.text.${view}`) },
      segmented({ label: t('keyring.title'), value: view, onChange: (value) => setQuery({ view: value === 'tokens' ? 'tokens' : undefined }), options: [{ value: 'keys', label: t('keyring.keys') }, { value: 'tokens', label: t('keyring.tokens') }] }),
      view === 'keys' && h(Button, { kind: 'primary', icon: 'plus', disabled: !may('admin'), onClick: () => setCreating(true) }, t('keyring.create'))),
    view === 'keys' ? h(KeyList, { list }) : h(TokenList, { query }),
    creating && h(CreateKey, { onClose: () => setCreating(false), created: (key) => {
      setCreating(false);
      setMade(key);
      list.reload();
    } }),
    made && h(Secret, { title: made.name, secret: made.api_key, onClose: () => setMade(undefined) }));
}

/** @param {{list: ReturnType<typeof useList<ApiKey>>}} props */
function KeyList({ list }) {
  const [revoking, setRevoking] = useState(/** @type {ApiKey | undefined} */ (undefined));
  const own = session.value?.actor.id;
  return h('div', null,
    h(Card, { flush: true }, table({
      label: t('keyring.keys'), items: list.data?.items, id: (key) => key.api_key_id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: h(Empty, { title: t('keyring.none'), text: t('keyring.text.keys') }),
      columns: [
        { title: t('keyring.name'), width: 130, cell: (key) => h('span', { class: 'two-lines' }, h('strong', null, h(Text, null, key.name), key.api_key_id === own && h('span', { class: 'tag accent' }, t('keyring.own'))), h('code', { class: 'faint' }, `${key.prefix}…`)) },
        { title: t('keyring.state'), width: 70, cell: (key) => h(KeyState, { ends: key.expires_at ?? null, revoked: key.revoked_at ?? null }) },
        { title: t('keyring.scopes'), width: 150, cell: (key) => h('span', { class: 'row' }, h(Scopes, { scopes: key.scopes }), h(Limits, { apiKey: key })) },
        { title: t('keyring.used'), width: 90, wide: true, cell: (key) => h('span', { class: 'soft' }, h(Time, { at: key.last_used_at })) },
        { title: t('keyring.made'), width: 90, wide: true, cell: (key) => h('span', { class: 'soft' }, h(Time, { at: key.created_at })) },
        { title: t('keyring.acts'), width: 60, number: true, cell: (key) => !key.revoked_at && may('admin') && h(Button, { small: true, kind: 'plain', onClick: () => setRevoking(key) }, t('keyring.revoke')) },
      ],
    })),
    revoking && h(Confirm, { title: `${t('keyring.revoke')}: ${revoking.name}`, text: t(revoking.api_key_id === own ? 'keyring.revoke.own' : 'keyring.revoke.text'), act: t('keyring.revoke'), word: revoking.name, onClose: () => setRevoking(undefined), run: async () => {
      await remove(path`/v1/api-keys/${revoking.api_key_id}`);
      list.reload();
    } }));
}

/** @param {{scopes: Scope[]}} props */
const Scopes = ({ scopes }) => scopes.map((scope) => h('span', { class: 'tag', key: scope, title: t(`scope.${scope}`) }, scope));

/** What narrows a key. @param {{apiKey: ApiKey}} props */
function Limits({ apiKey }) {
  const limits = [apiKey.device_prefix && `${apiKey.device_prefix}*`, apiKey.device_label && t('keyring.labelled', { label: apiKey.device_label }), ...(apiKey.services ?? [])].filter(Boolean);
  return limits.map((limit) => h('span', { class: 'tag accent mono', key: limit }, h(Text, null, String(limit))));
}

/** @param {{ends: string | null, revoked: string | null}} props */
function KeyState({ ends, revoked }) {
  if (revoked) return h('span', { class: 'state calm', title: revoked }, t('keyring.revoked'));
  if (ends && new Date(ends) < new Date()) return h('span', { class: 'state calm' }, t('keyring.expired'));
  return h('span', { class: 'two-lines' }, h('span', { class: 'state good' }, t('keyring.valid')), ends && h('span', { class: 'small soft' }, t('keyring.ends'), ' ', h(Time, { at: ends })));
}

/** @param {{onClose: () => void, created: (key: import('../types.js').CreatedKey) => void}} props */
function CreateKey({ onClose, created }) {
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState(/** @type {Scope[]} */ (['read', 'call']));
  const [prefix, setPrefix] = useState('');
  const [label, setLabel] = useState('');
  const [services, setServices] = useState('');
  const [lifetime, setLifetime] = useState(/** @type {typeof LIFETIMES[number]} */ ('never'));
  const { busy, error, run } = useAct(async () => {
    const named = services.split(/[\s,]+/).filter(Boolean);
    const days = DAYS[lifetime];
    created(await post('/v1/api-keys', {
      name: name.trim(), scopes,
      ...(days > 0 && { expires_at: new Date(Date.now() + days * 86_400_000).toISOString() }),
      ...(prefix.trim() && { device_prefix: prefix.trim() }), ...(label.trim() && { device_label: label.trim() }), ...(named.length > 0 && { services: named }),
    }));
  });
  return h(Dialog, { title: t('keyring.create'), onClose },
    h('form', { class: 'stack', onSubmit: run },
      h(TextField, { label: t('keyring.name'), hint: t('keyring.name.hint'), value: name, onInput: setName, maxLength: 100, autocomplete: 'off', required: true }),
      h('fieldset', { class: 'stack tight' }, h('legend', { class: 'label' }, t('keyring.scopes')),
        SCOPES.map((scope) => h(Check, { key: scope, checked: scopes.includes(scope), disabled: !may(scope), hint: t(`scope.${scope}`), onChange: (checked) => setScopes(SCOPES.filter((each) => (each === scope ? checked : scopes.includes(each)))) }, h('code', null, scope)))),
      h(SelectField, { label: t('keyring.lifetime'), value: lifetime, onChange: (value) => setLifetime(/** @type {any} */ (value)), options: LIFETIMES.map((value) => ({ value, label: t(`keyring.lifetime.${value}`) })) }),
      h('details', null, h('summary', { class: 'soft' }, t('keyring.limits')), h('div', { class: 'stack inset' },
        h(TextField, { label: t('keyring.prefix'), hint: t('keyring.prefix.hint'), optional: true, mono: true, value: prefix, onInput: setPrefix, placeholder: 'toy-' }),
        h(TextField, { label: t('keyring.label'), hint: t('keyring.label.hint'), optional: true, mono: true, value: label, onInput: setLabel, maxLength: 63, placeholder: 'room:kitchen' }),
        h(TextField, { label: t('keyring.services'), hint: t('keyring.services.hint'), optional: true, mono: true, value: services, onInput: setServices, placeholder: 'wave led.*' }))),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: name.trim() === '' || scopes.length === 0 }, t('keyring.create.act')))));
}

/** @param {{query: URLSearchParams}} props */
function TokenList({ query }) {
  const subject = query.get('subject') ?? '';
  const list = useList('/v1/tokens', 'tokens', { subject });
  const [revoking, setRevoking] = useState(/** @type {Token | undefined} */ (undefined));
  return h('div', { class: 'stack' },
    h(Notice, null, t('keyring.tokens.text')),
    h(Card, { flush: true }, table({
      label: t('keyring.tokens'), items: /** @type {Token[] | undefined} */ (list.data?.items), id: (token) => token.token_id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: h(Empty, { title: t('keyring.tokens.none'), text: t('keyring.tokens.text') }),
      columns: [
        { title: t('keyring.subject'), width: 130, cell: (token) => h('span', { class: 'mono break' }, h(Text, null, token.subject)) },
        { title: t('keyring.state'), width: 70, cell: (token) => h(KeyState, { ends: token.expires_at ?? null, revoked: token.revoked_at ?? null }) },
        { title: t('keyring.scopes'), width: 80, cell: (token) => h('span', { class: 'row' }, h(Scopes, { scopes: token.scopes })) },
        { title: t('keyring.id'), width: 120, wide: true, cell: (token) => h(Id, { id: token.token_id }) },
        { title: t('keyring.made'), width: 90, wide: true, cell: (token) => h('span', { class: 'soft' }, h(Time, { at: token.created_at })) },
        { title: t('keyring.acts'), width: 60, number: true, cell: (token) => !token.revoked_at && may('admin') && h(Button, { small: true, kind: 'plain', onClick: () => setRevoking(token) }, t('keyring.revoke')) },
      ],
    })),
    revoking && h(Confirm, { title: t('keyring.revoke'), text: t('keyring.revoke.token', { subject: revoking.subject }), act: t('keyring.revoke'), onClose: () => setRevoking(undefined), run: async () => {
      await remove(path`/v1/tokens/${revoking.token_id}`);
      list.reload();
    } }));
}
