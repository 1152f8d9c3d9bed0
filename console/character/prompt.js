/** What an agent reads when it asks for a template as a prompt: its messages, with their arguments filled in. */
import { Text } from '../components/basic.js';
import { t } from '../i18n.js';
import { h, useState } from '../preact.js';

/** @param {{settings: import('./fields.js').Flat}} props */
export function PromptPreview({ settings }) {
  const [values, setValues] = useState(/** @type {Record<string, string>} */ ({}));
  const prompt = settings.prompt;
  if (!prompt || !Array.isArray(prompt.messages)) return h('p', { class: 'soft small' }, t('prompt.derived'));
  /** @type {{name: string, title?: string, values?: string[]}[]} */
  const named = Array.isArray(prompt.arguments) ? prompt.arguments : [];
  return h('div', { class: 'stack prompt-preview' },
    h('h3', null, t('prompt.preview')),
    named.map((each) => h('label', { class: 'field', key: each.name }, h('span', { class: 'label' }, h(Text, null, each.title ?? each.name)), h('input', { class: 'input', type: 'text', value: values[each.name] ?? '', placeholder: each.values?.[0], onInput: (/** @type {any} */ event) => setValues({ ...values, [each.name]: event.target.value }) }))),
    h('ul', { class: 'bubbles' }, prompt.messages.map((/** @type {any} */ message, /** @type {number} */ index) => h('li', { key: index, class: message?.role === 'user' ? 'bubble mine' : 'bubble' }, h(Text, null, filled(message?.content, values))))));
}

/** One content with its arguments; inserted values are not expanded again. @param {any} content @param {Record<string, string>} values */
export function filled(content, values) {
  if (!content || typeof content !== 'object') return '';
  const text = String(content.text ?? content.uri ?? content.picture_id ?? '');
  return text.replace(/\{\{([A-Za-z0-9_.-]{1,64})\}\}/g, (whole, name) => (Object.hasOwn(values, name) && values[name] !== '' ? String(values[name]) : whole));
}
