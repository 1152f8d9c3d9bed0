/** Several short names, each with its end; known ones are offered while one types. */
import { t } from '../i18n.js';
import { h, useId, useState } from '../preact.js';
import { Text } from './basic.js';
import { Icon } from './icon.js';

/** @param {{value: string[], set: (value: string[]) => void, offered: string[], placeholder: string, max: number, disabled?: boolean, attributes: Record<string, any>}} props */
export function Picks({ value, set, offered, placeholder, max, disabled, attributes }) {
  const [text, setText] = useState('');
  const list = useId();
  const add = (/** @type {string} */ written) => {
    const name = written.trim();
    if (name && !value.includes(name) && value.length < max) set([...value, name]);
    setText('');
  };
  const rest = offered.filter((name) => !value.includes(name));
  return h('div', { class: 'words' },
    value.map((name) => h('span', { class: 'word mono', key: name }, h(Text, null, name), !disabled && h('button', { type: 'button', 'aria-label': `${t('act.remove')}: ${name}`, onClick: () => set(value.filter((each) => each !== name)) }, h(Icon, { name: 'cross' })))),
    h('input', { ...attributes, type: 'text', list, disabled, readOnly: value.length >= max, autocomplete: 'off', autocapitalize: 'off', spellcheck: false, placeholder, value: text,
      onInput: (/** @type {any} */ event) => (rest.includes(event.target.value) && event.inputType === 'insertReplacementText' ? add(event.target.value) : setText(event.target.value)),
      onBlur: () => add(text),
      onKeyDown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== 'Enter' || event.isComposing) return;
        event.preventDefault();
        add(text);
      } }),
    h('datalist', { id: list }, rest.map((name) => h('option', { key: name, value: name }))));
}
