/** The fields of a plan. What is typed is a draft of `form/draft.js`; this file only shows it. */
import { blank, escape } from '../form/draft.js';
import { plain } from '../form/safe.js';
import { t } from '../i18n.js';
import { h, useId } from '../preact.js';
import { Button, Text } from './basic.js';
import { Check, Field, Select } from './field.js';

/** @typedef {import('../form/draft.js').Draft} Draft */
/** @typedef {import('../form/schema.js').Node} Node */
/**
 * @typedef {object} Props
 * @property {Node} node
 * @property {Draft} draft
 * @property {(draft: Draft) => void} change
 * @property {Map<string, string>} faults what is wrong, by pointer
 * @property {string} pointer
 * @property {boolean} required
 * @property {string} name
 */

/** The members of a group, required ones first. @param {Omit<Props, 'node' | 'required' | 'name'> & {node: import('../form/schema.js').GroupNode}} props */
export function Members({ node, draft, change, faults, pointer }) {
  const ordered = [...node.members.filter((member) => member.required), ...node.members.filter((member) => !member.required)];
  return h('div', { class: 'stack' }, ordered.map((member) => h(Entry, {
    key: member.name, node: member.node, name: member.name, required: member.required, faults, pointer: `${pointer}/${escape(member.name)}`,
    draft: draft.members?.[member.name] ?? {},
    change: (inner) => change({ ...draft, added: true, members: { ...draft.members, [member.name]: inner } }),
  })));
}

/** @param {Props} props */
function Entry(props) {
  const { node, draft, change, required } = props;
  if (node.kind === 'group' || node.kind === 'list' || node.kind === 'variants') return h(Nested, props);
  const hint = hintOf(node);
  const wrong = props.faults.get(props.pointer);
  if (node.kind === 'constant') {
    const value = JSON.stringify(node.value);
    return required ? h('div', { class: 'field' }, h('span', { class: 'label' }, h(Text, null, titleOf(props))), h('div', { class: 'hint mono' }, t('form.always', { value: plain(value) })))
      : h(Check, { checked: draft.flag ?? false, onChange: (flag) => change(flag ? { flag } : {}) }, h(Text, null, titleOf(props)), ' ', h('code', null, plain(value)));
  }
  return h(Field, { label: h(Text, null, titleOf(props)), hint, wrong, optional: !required, required, render: (attributes) => h(Control, { ...props, attributes: { ...attributes, 'data-pointer': props.pointer } }) });
}

/** @param {Props & {attributes: Record<string, any>}} props */
function Control({ node, draft, change, required, attributes }) {
  const type = (/** @type {any} */ event) => change({ text: event.target.value });
  const spare = { autocomplete: 'off', spellcheck: false };
  switch (node.kind) {
    case 'text':
      if (node.long) return h('textarea', { ...attributes, class: 'textarea', rows: 3, value: draft.text ?? '', onInput: type, ...spare });
      return h('input', { ...attributes, ...spare, class: 'input', type: 'text', inputMode: { email: 'email', uri: 'url' }[node.format ?? ''], placeholder: node.example ?? { 'date-time': '2026-01-31T09:30:00Z', date: '2026-01-31', time: '09:30:00', uuid: '00000000-0000-0000-0000-000000000000' }[node.format ?? ''], value: draft.text ?? '', onInput: type });
    case 'number':
      return h('input', { ...attributes, ...spare, class: 'input number short', type: 'text', inputMode: node.integer ? 'numeric' : 'decimal', placeholder: node.example, value: draft.text ?? '', onInput: type });
    case 'boolean':
    case 'choice': {
      const options = node.kind === 'boolean' ? [{ value: true, label: t('form.yes') }, { value: false, label: t('form.no') }] : node.options;
      const chosen = node.kind === 'choice' ? draft.chosen : draft.flag === undefined ? undefined : Number(!draft.flag);
      const listed = [...(required && chosen !== undefined ? [] : [{ value: '', label: t(required ? 'form.choose' : 'form.leaveOut') }]), ...options.map((option, index) => ({ value: String(index), label: plain(option.label) })), ...(node.nullable ? [{ value: 'null', label: t('form.null') }] : [])];
      return h(Select, { ...attributes, value: draft.isNull ? 'null' : chosen === undefined ? '' : String(chosen), options: listed, onChange: (value) => change(value === '' ? {} : value === 'null' ? { isNull: true } : node.kind === 'boolean' ? { flag: value === '0' } : { chosen: Number(value) }) });
    }
    default:
      return h('textarea', { ...attributes, ...spare, class: 'textarea mono', rows: 3, placeholder: '{}', value: draft.text ?? '', onInput: type });
  }
}

/** A group, list or choice of variants within the form. @param {Props} props */
function Nested(props) {
  const { node, draft, change, required, faults, pointer } = props;
  const id = useId();
  const wrong = faults.get(pointer);
  const there = required || draft.added || draft.chosen !== undefined || draft.isNull;
  return h('fieldset', { class: 'nested', 'aria-describedby': wrong ? `${id}-wrong` : undefined },
    h('legend', null, h(Text, null, titleOf(props)), !required && h('span', { class: 'required' }, ' ', t('optional'))),
    node.description && h('div', { class: 'field' }, h('div', { class: 'hint' }, h(Text, null, node.description))),
    wrong && h('div', { class: 'field' }, h('div', { class: 'wrong', id: `${id}-wrong` }, wrong)),
    !there && h(Button, { small: true, icon: 'plus', onClick: () => change(blank(node, true)), 'data-pointer': pointer }, t('form.addGroup')),
    there && !draft.isNull && h(Inside, { ...props, id }),
    there && (!required || node.nullable) && h('div', { class: 'row' },
      node.nullable && h(Check, { checked: draft.isNull ?? false, onChange: (isNull) => change(isNull ? { isNull } : blank(node, true)) }, t('form.null')),
      !required && h(Button, { small: true, kind: 'plain', icon: 'cross', onClick: () => change({}) }, t('form.leaveOut'))));
}

/** @param {Props & {id: string}} props */
function Inside({ node, draft, change, faults, pointer, id }) {
  if (node.kind === 'group') return h(Members, { node, draft, change, faults, pointer });
  if (node.kind === 'variants') {
    const chosen = draft.chosen ?? 0;
    const variant = node.variants[chosen];
    return h('div', { class: 'stack' },
      h(Select, { 'aria-label': t('form.variant'), value: String(chosen), options: node.variants.map((each, index) => ({ value: String(index), label: plain(each.label) })), onChange: (value) => change({ chosen: Number(value), inner: blank(/** @type {any} */ (node.variants[Number(value)]).node, true) }) }),
      variant && (variant.node.kind === 'group'
        ? h(Members, { key: chosen, node: variant.node, draft: draft.inner ?? {}, faults, pointer, change: (inner) => change({ ...draft, chosen, inner }) })
        : h(Entry, { key: chosen, node: { ...variant.node, title: variant.label }, name: variant.label, required: true, draft: draft.inner ?? {}, faults, pointer, change: (inner) => change({ ...draft, chosen, inner }) })));
  }
  if (node.kind !== 'list') return null;
  const items = draft.items ?? [];
  const replace = (/** @type {Draft[]} */ next) => change({ ...draft, added: true, items: next });
  return h('div', { class: 'stack' },
    items.map((item, index) => h('div', { class: 'input-group', key: `${id}-${index}` },
      h(Entry, { node: { ...node.items, title: t('form.item', { n: index + 1 }) }, name: String(index), required: true, draft: item, faults, pointer: `${pointer}/${index}`, change: (inner) => replace(items.map((each, at) => (at === index ? inner : each))) }),
      h(Button, { small: true, kind: 'plain', icon: 'trash', label: `${t('act.remove')}: ${t('form.item', { n: index + 1 })}`, onClick: () => replace(items.filter((_, at) => at !== index)) }))),
    h('div', null, h(Button, { small: true, icon: 'plus', disabled: node.maxItems !== undefined && items.length >= node.maxItems, onClick: () => replace([...items, blank(node.items, true)]) }, t('form.addItem'))));
}

/** @param {{node: Node, name: string}} props */
const titleOf = ({ node, name }) => node.title ?? name;

/** What a field expects, in words. @param {Node} node */
function hintOf(node) {
  const range = node.kind === 'number' ? rangeOf(node) : undefined;
  const fallback = node.fallback === undefined ? undefined : t('form.default', { value: JSON.stringify(node.fallback) });
  const json = node.kind === 'json' ? t(node.reason === 'any' ? 'form.any' : 'form.unknown') : undefined;
  const texts = [node.description, range, json, fallback].filter(Boolean);
  return texts.length > 0 ? h(Text, null, texts.join(' · ')) : undefined;
}

/** @param {import('../form/schema.js').NumberNode} node */
function rangeOf({ minimum, maximum, above, below }) {
  const from = minimum ?? above;
  const to = maximum ?? below;
  if (from !== undefined && to !== undefined) return t('form.range', { from, to });
  if (from !== undefined) return t('form.from', { from });
  return to === undefined ? undefined : t('form.to', { to });
}
