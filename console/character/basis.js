/** What an NPC is built on: its template and version, and the devices it speaks through. */
import { Button, Card } from '../components/basic.js';
import { Field, SelectField } from '../components/field.js';
import { Picks } from '../components/picks.js';
import { t } from '../i18n.js';
import { h } from '../preact.js';
import { useResource } from '../resource.js';
import { href } from '../router.js';

/** @param {{value: string[], set: (value: string[]) => void, disabled: boolean, wrong?: string}} props */
export function DeviceChoice({ value, set, disabled, wrong }) {
  const known = useResource('/v1/devices', { limit: 200, services: 'names' });
  const offered = (known.data?.devices ?? []).map((/** @type {{id: string}} */ device) => device.id);
  return h(Field, { label: t('npc.devices'), hint: t('npc.devices.hint'), wrong, render: (attributes) => h(Picks, { value, set, offered, placeholder: t('npc.devices.add'), max: 100, disabled, attributes }) });
}

/**
 * @param {object} props
 * @param {import('./fields.js').Flat} props.values
 * @param {number | null} props.version of the template in use
 * @param {any[]} props.templates
 * @param {(path: string, value: any) => void} props.set
 * @param {boolean} props.disabled
 * @param {string} [props.wrong]
 */
export function Basis({ values, version, templates, set, disabled, wrong }) {
  const id = values.template_id ?? '';
  const pinned = values.template_version !== undefined;
  const known = templates.some((each) => each.id === id);
  const newest = templates.find((each) => each.id === id)?.version;
  return h(Card, { title: t('npc.basis') },
    h('div', { class: 'basis' },
      h('div', { class: 'stack tight' },
        h(SelectField, { label: t('npcs.template'), value: id, disabled, onChange: (value) => {
          set('template_id', value === '' ? undefined : value);
          set('template_version', undefined);
        }, options: [{ value: '', label: t('npc.own') }, ...(id && !known ? [{ value: id, label: id }] : []), ...templates.map((each) => ({ value: each.id, label: each.name }))] }),
        id && h('a', { class: 'small', href: href(`/templates/${id}`) }, t('npc.template.open'))),
      id && h('div', { class: 'field' }, h('div', { class: 'label' }, t('npc.version')),
        h('div', { class: 'row' }, h('span', null, t(pinned ? 'npc.pinned' : 'npc.follows', { version: values.template_version ?? newest ?? version ?? '' })),
          !disabled && h(Button, { small: true, kind: 'plain', onClick: () => set('template_version', pinned ? undefined : newest ?? version ?? undefined) }, t(pinned ? 'npc.follow' : 'npc.pin'))),
        h('div', { class: 'hint' }, t('npc.version.hint'))),
      h(DeviceChoice, { value: values.device_ids ?? [], set: (devices) => set('device_ids', devices), disabled, wrong })));
}
