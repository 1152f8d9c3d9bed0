/** The labels of devices: as chips, as a filter, and edited with the note. */
import { useAct } from '../act.js';
import { patch, path } from '../api.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { href, setQuery } from '../router.js';
import { Button, Failure, Text } from './basic.js';
import { Dialog } from './dialog.js';
import { Field, Select } from './field.js';
import { Icon } from './icon.js';
import { Picks } from './picks.js';

const MAX_LABELS = 16;
const MAX_NOTE_CHARS = 2_000;
const LABEL = /^[A-Za-z0-9._:/=-]{1,63}$/;

/** The labels in an address, which has them separated by commas. @param {URLSearchParams} query */
export const labelsOf = (query) => (query.get('label') ?? '').split(',').filter(Boolean);

/** The labels that devices have, with how many have each. @returns {import('../types.js').LabelCount[]} */
export function useLabels() {
  const known = useResource('/v1/labels', { limit: 200 });
  useLive(known.reload, ['device.changed']);
  return known.data?.items ?? [];
}

/** Labels that lead to the devices that have them. @param {{labels: string[] | undefined}} props */
export function Labels({ labels = [] }) {
  return labels.map((label) => h('a', { class: 'tag label', key: label, href: href('/devices', { label }), title: t('labels.filter', { label }) }, h(Text, null, label)));
}

/** The labels that a list is narrowed to. @param {{value: string[]}} props */
export function LabelFilter({ value }) {
  const known = useLabels();
  const set = (/** @type {string[]} */ labels) => setQuery({ label: labels.join(',') || undefined });
  const rest = known.filter(({ label }) => !value.includes(label));
  return h('span', { class: 'row' },
    value.map((label) => h('span', { class: 'word', key: label }, h(Text, null, label), h('button', { type: 'button', 'aria-label': `${t('act.remove')}: ${label}`, onClick: () => set(value.filter((each) => each !== label)) }, h(Icon, { name: 'cross' })))),
    rest.length > 0 && h(Select, { 'aria-label': t('labels.add'), class: 'select short', value: '', onChange: (label) => set([...value, label]), options: [{ value: '', label: t(value.length > 0 ? 'labels.add' : 'labels.any') }, ...rest.map(({ label, devices }) => ({ value: label, label: `${label} (${devices})` }))] }));
}

/** Changes the labels and the note of a device. @param {{device: import('../types.js').Device, onClose: () => void, saved: () => void}} props */
export function EditLabels({ device, onClose, saved }) {
  // Only what the person changes is sent: the rest may have changed elsewhere since.
  const [before] = useState({ labels: device.labels ?? [], note: device.note ?? '' });
  const [labels, setLabels] = useState(before.labels);
  const [note, setNote] = useState(before.note);
  const known = useLabels();
  const wrong = labels.find((label) => !LABEL.test(label));
  const { busy, error, run } = useAct(async () => {
    const change = { ...(labels.join() !== before.labels.join() && { labels }), ...(note.trim() !== before.note && { note: note.trim() || null }) };
    if (Object.keys(change).length > 0) await patch(path`/v1/devices/${device.id}`, change);
    saved();
    onClose();
  });
  return h(Dialog, { title: `${t('labels.edit')}: ${device.id}`, onClose }, h('form', { class: 'stack', onSubmit: run },
    h(Field, { label: t('labels.title'), hint: t('labels.hint'), wrong: wrong && t('labels.wrong', { label: wrong }), render: (attributes) => h(Picks, { value: labels, set: setLabels, offered: known.map(({ label }) => label), placeholder: t('labels.placeholder'), max: MAX_LABELS, attributes }) }),
    h(Field, { label: t('labels.note'), hint: t('labels.note.hint'), optional: true, render: (attributes) => h('textarea', { ...attributes, class: 'textarea', rows: 4, maxLength: MAX_NOTE_CHARS, value: note, onInput: (/** @type {any} */ event) => setNote(event.target.value) }) }),
    h(Failure, { error }),
    h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: wrong !== undefined }, t('act.save')))));
}
