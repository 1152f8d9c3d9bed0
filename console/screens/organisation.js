/** The organisation: its name, language, default NPC and recordings. Operators see all organisations. */
import { Problem, may, request, session } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Head, Id, Notice, Text, Time, toast } from '../components/basic.js';
import { Check, SelectField, TextField } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { table } from '../components/table.js';
import { plain } from '../form/safe.js';
import { exact, number, t } from '../i18n.js';
import { h, useState } from '../preact.js';
import { useList, useLoad, useResource } from '../resource.js';
import { useUnsaved } from '../unsaved.js';
import { language, LOCALES } from './books.js';

/** @typedef {import('../types.js').Org} Org */
/** @typedef {import('../types.js').OrgSummary} OrgSummary */

/** @type {import('../screens.js').Screen} */
export const organisation = { paths: ['/organisation'], title: 'org.title', group: 'manage', icon: 'org', audience: 'everyone', view: Organisation };

function Organisation() {
  const value = session.value;
  return h('div', { class: 'stack wide' },
    h(Head, { title: t('org.title'), text: value?.org_id ? h(Id, { id: value.org_id }) : t('org.operator') }),
    value?.org_id && h(Own, null),
    value?.is_operator && h(All, null));
}

/** What a person may change. @param {Org} org */
const editable = (org) => ({
  name: org.name, locale: org.locale ?? '', default_npc_id: org.default_npc_id ?? '', record_speech: org.record_speech ?? false, recording_retention_days: String(org.recording_retention_days ?? 30), journal_params: org.journal_params ?? false, model_approval: org.model_approval ?? 'off',
});

function Own() {
  const resource = useLoad((signal) => request('GET', '/v1/org', { signal }), []);
  /** @type {Org | undefined} */
  const org = resource.data?.data;
  if (!org) return resource.error ? h(Failure, { error: resource.error, retry: resource.reload }) : h(Card, { title: t('org.general') }, h('div', { class: 'stack' }, h(Bone, { width: 300 }), h(Bone, { width: 260 }), h(Bone, { width: 320 })));
  return h(Form, { org, etag: resource.data?.etag, reload: resource.reload, saved: (answer) => resource.change(() => answer) });
}

/** @param {{org: Org, etag: string | undefined, reload: () => void, saved: (answer: import('../api.js').Answer<Org>) => void}} props */
function Form({ org, etag, reload, saved }) {
  const npcs = useResource('/v1/npcs', { limit: 200 });
  // What was edited is kept apart from the version below it: it applies to a newer one as well.
  const [edits, setEdits] = useState(/** @type {Partial<ReturnType<typeof editable>>} */ ({}));
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const [busy, setBusy] = useState(false);
  const before = editable(org);
  const draft = { ...before, ...edits };
  const changes = Object.fromEntries(Object.entries(draft).filter(([name, value]) => value !== /** @type {any} */ (before)[name]));
  const dirty = Object.keys(changes).length > 0;
  useUnsaved(dirty);
  const edit = (/** @type {Partial<typeof draft>} */ change) => setEdits({ ...edits, ...change });
  const days = Number(draft.recording_retention_days);
  const wrongDays = !(Number.isInteger(days) && days >= 1 && days <= 365);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const body = { ...changes, ...('locale' in changes && { locale: draft.locale || null }), ...('default_npc_id' in changes && { default_npc_id: draft.default_npc_id || null }), ...('recording_retention_days' in changes && { recording_retention_days: days }) };
      const answer = await request('PATCH', '/v1/org', { etag, body, contentType: 'application/merge-patch+json' });
      saved(answer);
      setEdits({});
      toast(t('org.saved'));
      if ('name' in changes && session.value) session.value = { ...session.value, org_name: draft.name };
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
    setBusy(false);
    reload();
  };
  const locked = !may('admin');
  const options = (npcs.data?.npcs ?? []).map((/** @type {any} */ npc) => ({ value: npc.id, label: plain(npc.name ?? npc.id) }));
  if (draft.default_npc_id && !options.some((/** @type {any} */ each) => each.value === draft.default_npc_id)) options.push({ value: draft.default_npc_id, label: draft.default_npc_id });
  const locales = draft.locale && !LOCALES.includes(draft.locale) ? [draft.locale, ...LOCALES] : LOCALES;
  return h('form', { class: 'stack narrow', onSubmit: submit },
    locked && h(Notice, { icon: 'lock' }, t('scope.missing', { scope: 'admin' })),
    h(Card, { title: t('org.general') }, h('div', { class: 'stack' },
      h(TextField, { label: t('org.name'), value: draft.name, onInput: (name) => edit({ name }), maxLength: 100, disabled: locked, required: true }),
      h(SelectField, { label: t('org.locale'), hint: t('org.locale.hint'), value: draft.locale, disabled: locked, onChange: (locale) => edit({ locale }), options: [{ value: '', label: t('org.locale.none') }, ...locales.map((value) => ({ value, label: language(value) }))] }),
      h(SelectField, { label: t('org.npc'), hint: t('org.npc.hint'), value: draft.default_npc_id, disabled: locked, onChange: (id) => edit({ default_npc_id: id }), options: [{ value: '', label: t('org.npc.none') }, ...options] }))),
    h(Card, { title: t('org.recordings') }, h('div', { class: 'stack' },
      h(Check, { checked: draft.record_speech, disabled: locked, hint: t('org.record.hint'), onChange: (checked) => edit({ record_speech: checked }) }, t('org.record')),
      h(TextField, { label: t('org.retention'), hint: t('org.retention.hint'), wrong: wrongDays && t('org.retention.wrong'), value: draft.recording_retention_days, disabled: locked, inputMode: 'numeric', class: 'input short', onInput: (value) => edit({ recording_retention_days: value.trim() }) }))),
    h(Card, { title: t('approval.title') }, h(Check, { checked: draft.model_approval === 'required', disabled: locked, hint: t('org.approval.hint'), onChange: (checked) => edit({ model_approval: checked ? 'required' : 'off' }) }, t('org.approval'))),
    h(Card, { title: t('journal.title') }, h(Check, { checked: draft.journal_params, disabled: locked, hint: t('org.journal.hint'), onChange: (checked) => edit({ journal_params: checked }) }, t('org.journal'))),
    h(Failure, { error }),
    error instanceof Problem && error.status === 412 && dirty && h('p', { class: 'small soft' }, t('org.conflict')),
    h('div', { class: 'row apart' },
      h('span', { class: 'small soft' }, t('org.version', { version: org.version, time: exact(org.updated_at) })),
      h('span', { class: 'row' }, h(Button, { disabled: !dirty, onClick: () => setEdits({}) }, t('org.revert')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: locked || !dirty || wrongDays || draft.name.trim() === '' }, t('act.save')))));
}

function All() {
  const list = useList('/v1/orgs', 'orgs', {});
  return h(Card, { title: t('org.all'), flush: true }, table({
    label: t('org.all'), items: /** @type {OrgSummary[] | undefined} */ (list.data?.items), id: (org) => org.org_id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
    empty: h(Empty, { title: t('org.all.none') }),
    columns: [
      { title: t('org.name'), width: 130, cell: (org) => h('strong', { class: 'break' }, h(Text, null, org.name)) },
      { title: t('org.state'), width: 80, cell: (org) => (org.suspended ? h('span', { class: 'state bad' }, h(Icon, { name: 'slash' }), t('org.suspended')) : h('span', { class: 'state good' }, h(Icon, { name: 'check' }), t('org.active'))) },
      { title: t('org.id'), width: 150, cell: (org) => h(Id, { id: org.org_id }) },
      { title: t('org.quotas'), width: 120, wide: true, cell: (org) => h('span', { class: 'row' }, Object.entries(org.quotas).map(([name, limit]) => h('span', { class: 'tag', key: name }, `${name} ${number(limit)}`))) },
      { title: t('org.made'), width: 80, wide: true, cell: (org) => h('span', { class: 'soft' }, h(Time, { at: org.created_at })) },
    ],
  }));
}
