/** The audit log: who changed which setting, and when. */
import { get, may } from '../api.js';
import { Button, Card, Empty, Head, Id, Text, toast } from '../components/basic.js';
import { Filter, Select } from '../components/field.js';
import { Icon } from '../components/icon.js';
import { table } from '../components/table.js';
import { exact, maybe, relative, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useList, useLoad } from '../resource.js';
import { setQuery } from '../router.js';
import { csv, download } from '../upload/csv.js';

/** @typedef {import('../types.js').AuditEntry} AuditEntry */

/** @type {import('../screens.js').Screen} */
export const audit = { paths: ['/audit'], title: 'audit.title', group: 'manage', icon: 'audit', shortcut: 'l', view: Audit };

const ACTIONS = ['created', 'changed', 'removed', 'revoked'];
/** @type {AuditEntry['resource'][]} */
const RESOURCES = ['org', 'api_key', 'token', 'template', 'npc', 'memory', 'picture', 'skills_book', 'voice', 'webhook', 'recording', 'device'];
const MAX_CSV_ROWS = 20_000;

/** Where a resource is shown. @param {AuditEntry} entry */
function placeOf({ resource, resource_id: id, action }) {
  if (resource === 'org') return '/organisation';
  if (resource === 'api_key') return '/keys';
  if (resource === 'token') return '/keys?view=tokens';
  if (action === 'removed') return undefined;
  if (resource === 'picture') return `/pictures?id=${encodeURIComponent(id)}`;
  if (resource === 'voice') return '/voices';
  if (resource === 'device') return `/devices/${encodeURIComponent(id)}`;
  const place = /** @type {Record<string, string>} */ ({ template: 'templates', npc: 'npcs', skills_book: 'books', webhook: 'webhooks' })[resource];
  return place && `/${place}/${encodeURIComponent(id)}`;
}

/** @param {string} day a date @param {number} days */
const midnight = (day, days = 0) => {
  const time = Date.parse(`${day}T00:00:00Z`);
  return Number.isNaN(time) ? '' : new Date(time + days * 86_400_000).toISOString();
};

/** @param {{query: URLSearchParams}} props */
function Audit({ query }) {
  const value = (/** @type {string} */ name) => query.get(name) ?? '';
  const filter = { order: 'desc', actor: value('actor'), action: value('action'), resource: value('resource'), resource_id: value('resource_id'), since: midnight(value('from')), until: midnight(value('to'), 1) };
  const filtered = ['actor', 'action', 'resource', 'resource_id', 'from', 'to'].some((name) => value(name));
  const list = useList('/v1/audit-log', 'entries', filter);
  const names = useLoad(async (stop) => {
    const page = may('admin') ? await get('/v1/api-keys', { limit: 200 }, stop) : { api_keys: [] };
    return new Map(/** @type {[string, string][]} */ (page.api_keys.map((/** @type {any} */ key) => [key.api_key_id, key.name])));
  }, []);
  const [saving, setSaving] = useState(false);
  useLive(list.reload);
  const save = async () => {
    setSaving(true);
    try {
      /** @type {AuditEntry[]} */
      const rows = [];
      let cursor;
      do {
        /** @type {any} */
        const page = await get('/v1/audit-log', { ...filter, limit: 200, cursor });
        rows.push(...page.entries);
        cursor = page.next_cursor;
      } while (cursor && rows.length < MAX_CSV_ROWS);
      download('audit-log.csv', csv(['at', 'actor', 'actor_name', 'action', 'resource', 'resource_id', 'changed', 'id'], rows.map((each) => [each.at, each.actor, names.data?.get(each.actor) ?? '', each.action, each.resource, each.resource_id, each.changed.join(' '), each.id])));
      if (cursor) toast(t('audit.csv.cut', { n: rows.length }), 'info');
    } catch (error) {
      toast(/** @type {Error} */ (error).message, 'warning');
    }
    setSaving(false);
  };
  const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {{value: string, label: string}[]} */ options) => h('div', null, h(Select, { 'aria-label': label, value: value(name), onChange: (chosen) => setQuery({ [name]: chosen }), options: [{ value: '', label }, ...options] }));
  const date = (/** @type {string} */ name, /** @type {string} */ label) => h('label', { class: 'inline-label' }, label, h('input', { type: 'date', class: 'input date', value: value(name), onChange: (/** @type {any} */ event) => setQuery({ [name]: event.target.value }) }));
  return h('div', null,
    h(Head, { title: t('audit.title'), text: t('audit.text') }, h(Button, { icon: 'download', busy: saving, disabled: !list.data || list.data.items.length === 0, onClick: save }, 'CSV')),
    h('div', { class: 'toolbar' },
      h(Filter, { label: t('audit.actor.id'), name: 'actor', value: filter.actor }),
      choice('action', t('audit.action.all'), ACTIONS.map((action) => ({ value: action, label: maybe(`audit.action.${action}`) ?? action }))),
      choice('resource', t('audit.resource.all'), RESOURCES.map((resource) => ({ value: resource, label: maybe(`audit.resource.${resource}`) ?? resource }))),
      date('from', t('audit.from')), date('to', t('audit.to')),
      value('resource_id') && h('span', { class: 'tag accent mono' }, value('resource_id')),
      filtered && h(Button, { small: true, kind: 'plain', icon: 'cross', onClick: () => setQuery({ actor: '', action: '', resource: '', resource_id: '', from: '', to: '' }) }, t('list.clear'))),
    h(Card, { flush: true }, table({
      label: t('audit.title'), items: /** @type {AuditEntry[] | undefined} */ (list.data?.items), id: (entry) => entry.id, error: list.error, reload: list.reload, loading: list.loading, more: list.data?.more && list.more,
      empty: filtered ? h(Empty, { picture: false, title: t('list.nothing'), text: t('list.nothing.text') }) : h(Empty, { title: t('audit.none'), text: t('audit.text') }),
      columns: [
        { title: t('audit.at'), width: 100, cell: (entry) => h('span', { class: 'two-lines' }, h('time', { dateTime: entry.at, class: 'number' }, exact(entry.at)), h('span', { class: 'small faint' }, relative(entry.at))) },
        { title: t('audit.actor'), width: 100, cell: (entry) => h(Actor, { actor: entry.actor, name: names.data?.get(entry.actor) }) },
        { title: t('audit.action'), width: 70, cell: (entry) => h(Action, { action: entry.action }) },
        { title: t('audit.resource'), width: 130, cell: (entry) => h('span', { class: 'two-lines half' }, h('span', null, maybe(`audit.resource.${entry.resource}`) ?? entry.resource), h(Id, { id: entry.resource_id, to: placeOf(entry) })) },
        { title: t('audit.changed'), width: 120, cell: (entry) => entry.changed.length > 0 && h('span', { class: 'row' }, entry.changed.map((field) => h('code', { class: 'tag', key: field }, h(Text, null, field)))) },
      ],
    })));
}

/** Who acted: a key by its name. @param {{actor: string, name: string | undefined}} props */
function Actor({ actor, name }) {
  const own = maybe(`audit.actor.${actor}`);
  return h('button', { type: 'button', class: 'actor', title: t('audit.actor.only', { actor }), onClick: () => setQuery({ actor }) },
    h('span', null, h(Text, null, own ?? name ?? actor)), name && h('code', { class: 'small faint clip' }, actor));
}

/** @type {Record<string, ['good' | 'bad' | 'warn' | 'calm', import('../components/icon.js').IconName]>} */
const LOOKS = { created: ['good', 'plus'], changed: ['calm', 'again'], removed: ['bad', 'trash'], revoked: ['warn', 'slash'] };

/** @param {{action: string}} props */
function Action({ action }) {
  const [tone, icon] = LOOKS[action] ?? ['calm', 'info'];
  return h('span', { class: `state ${tone}` }, h(Icon, { name: icon }), maybe(`audit.action.${action}`) ?? action);
}

