/** A labelled control, with its hint and what is wrong with it. */
import { t } from '../i18n.js';
import { h, useEffect, useId, useState } from '../preact.js';
import { setQuery } from '../router.js';
import { Icon } from './icon.js';

/**
 * @param {{label: any, hint?: any, wrong?: any, optional?: boolean, required?: boolean, render: (attributes: Record<string, any>) => any}} props
 * `render` gets what ties the control to its label, hint and error
 */
export function Field({ label, hint, wrong, optional, required, render }) {
  const id = useId();
  const described = [hint && `${id}-hint`, wrong && `${id}-wrong`].filter(Boolean).join(' ') || undefined;
  return h('div', { class: 'field' },
    h('label', { for: id }, label, optional && h('span', { class: 'required' }, ' ', t('optional'))),
    render({ id, 'aria-describedby': described, 'aria-invalid': wrong ? 'true' : undefined, 'aria-required': required ? 'true' : undefined }),
    hint && h('div', { class: 'hint', id: `${id}-hint` }, hint),
    wrong && h('div', { class: 'wrong', id: `${id}-wrong` }, h(Icon, { name: 'warning' }), h('span', null, wrong)));
}

/** @param {{label: any, value: string, onInput: (value: string) => void, hint?: any, wrong?: any, optional?: boolean, mono?: boolean, [more: string]: any}} props */
export function TextField({ label, value, onInput, hint, wrong, optional, mono, ...rest }) {
  return h(Field, { label, hint, wrong, optional, required: rest.required, render: (attributes) => h('input', { ...attributes, type: 'text', class: mono ? 'input mono' : 'input', value, onInput: (/** @type {any} */ event) => onInput(event.target.value), ...rest, required: undefined }) });
}

/** @param {{label: any, value: string, onChange: (value: string) => void, options: {value: string, label: string}[], hint?: any, [more: string]: any}} props */
export function SelectField({ label, value, onChange, options, hint, ...rest }) {
  return h(Field, { label, hint, render: (attributes) => h(Select, { ...attributes, ...rest, value, onChange, options }) });
}

/** @param {{value: string, onChange: (value: string) => void, options: {value: string, label: string}[], [more: string]: any}} props */
export function Select({ value, onChange, options, ...rest }) {
  return h('select', { class: 'select', ...rest, value, onChange: (/** @type {any} */ event) => onChange(event.target.value) },
    options.map((option) => h('option', { key: option.value, value: option.value, selected: option.value === value }, option.label)));
}

/** @param {{checked: boolean, onChange: (checked: boolean) => void, children?: any, hint?: any, [more: string]: any}} props */
export function Check({ checked, onChange, children, hint, ...rest }) {
  return h('label', { class: 'check' },
    h('input', { type: 'checkbox', checked, onChange: (/** @type {any} */ event) => onChange(event.target.checked), ...rest }),
    h('span', null, children, hint && h('span', { class: 'small soft block' }, hint)));
}

/** One of a few. A function, so that the type of its values is inferred. @template {string} V @param {{label: string, value: V, onChange: (value: V) => void, options: {value: V, label: any}[]}} props */
export function segmented({ label, value, onChange, options }) {
  return h('div', { class: 'segmented', role: 'group', 'aria-label': label },
    options.map((option) => h('button', { type: 'button', key: option.value, 'aria-pressed': String(option.value === value), onClick: () => onChange(option.value) }, option.label)));
}

/** The box that searches a list as one types. @param {{label: string, value: string, onInput: (value: string) => void}} props */
export function Search({ label, value, onInput }) {
  return h('div', { class: 'search' }, h(Icon, { name: 'search' }),
    h('input', { class: 'input', type: 'search', 'aria-label': label, placeholder: label, spellcheck: false, autocapitalize: 'off', autocomplete: 'off', value, onInput: (/** @type {any} */ event) => onInput(event.target.value) }));
}

/** How long typing pauses before what was typed is sent. */
const TYPING_MS = 300;

/** A search box whose text is a member of the address, set when the typing pauses. @param {{label: string, name: string, value: string}} props */
export function Filter({ label, name, value }) {
  const [text, setText] = useState(value);
  useEffect(() => {
    if (text.trim() !== value) setText(value);
  }, [value]);
  useEffect(() => {
    if (text.trim() === value) return undefined;
    const timer = setTimeout(() => setQuery({ [name]: text.trim() }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return h(Search, { label, value: text, onInput: setText });
}

/** The tabs of a page: each is a place of its own. @param {{label: string, tabs: {to: string, label: string, count?: number, current: boolean}[]}} props */
export function Tabs({ label, tabs }) {
  return h('nav', { class: 'tabs', 'aria-label': label }, tabs.map((tab) => h('a', { key: tab.to, href: tab.to, 'aria-current': tab.current ? 'page' : undefined }, tab.label, tab.count !== undefined && h('span', { class: 'count' }, tab.count))));
}
