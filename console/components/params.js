/** The params of a call: the form from the schema and the JSON beside it, both ways. */
import { blank, read, write } from '../form/draft.js';
import { plan } from '../form/schema.js';
import { t } from '../i18n.js';
import { h, useMemo, useState } from '../preact.js';
import { Notice } from './basic.js';
import { Field, segmented } from './field.js';
import { Members } from './schema_form.js';

/** @typedef {import('../form/draft.js').Draft} Draft */
/** @typedef {import('../form/draft.js').Fault} Fault */

/** The state of the params of one service. @param {unknown} schema @param {unknown} [initial] params to begin with */
export function useParams(schema, initial) {
  const node = useMemo(() => plan(schema), [schema]);
  const begin = () => {
    const draft = initial === undefined ? blank(node, true) : write(node, initial);
    return { draft: draft ?? blank(node, true), text: initial !== undefined && !draft ? JSON.stringify(initial, null, 2) : undefined };
  };
  /** The draft of the fields, and the text of the JSON if that is what counts. */
  const [state, setState] = useState(/** @type {{draft: Draft, text: string | undefined}} */ (begin()));
  const reading = useMemo(() => (state.text === undefined ? read(node, state.draft, true) : readText(state.text)), [node, state]);
  const [touched, setTouched] = useState(false);
  return {
    node, reading, touched, setTouched,
    /** Whether the JSON is shown. */
    asText: state.text !== undefined, state,
    change: (/** @type {Draft} */ draft) => setState({ draft, text: undefined }),
    type: (/** @type {string} */ text) => setState({ ...state, text }),
    toText: () => setState({ ...state, text: JSON.stringify(reading.value, null, 2) }),
    /** Shows the fields, if they can show the JSON. */
    toFields: () => {
      const draft = reading.faults.length === 0 ? write(node, reading.value) : undefined;
      if (draft) setState({ draft, text: undefined });
      return draft !== undefined;
    },
  };
}

/** @param {string} text @returns {{value: unknown, faults: Fault[]}} */
function readText(text) {
  try {
    const value = JSON.parse(text.trim() || '{}');
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { value, faults: [] };
    return { value: undefined, faults: [{ pointer: '', key: 'form.json.object' }] };
  } catch {
    return { value: undefined, faults: [{ pointer: '', key: 'form.json' }] };
  }
}

/** @param {{params: ReturnType<typeof useParams>, errors: import('../types.js').Violation[]}} props */
export function ParamsForm({ params, errors }) {
  const { node, state, asText, reading, touched } = params;
  const [stuck, setStuck] = useState(false);
  const faults = new Map(errors.map((each) => [each.pointer, each.detail]));
  if (touched) for (const fault of reading.faults) faults.set(fault.pointer, t(fault.key, fault.values));
  const empty = node.kind === 'group' && node.members.length === 0;
  return h('div', { class: 'stack' },
    h('div', { class: 'row apart' }, h('h3', null, t('service.params')),
      segmented({ label: t('service.params'), value: asText ? 'json' : 'fields', options: [{ value: 'fields', label: t('form.fields') }, { value: 'json', label: t('form.asJson') }], onChange: (value) => {
        if (value === 'json') params.toText();
        else setStuck(!params.toFields());
      } })),
    asText
      ? h('div', { class: 'stack' },
        stuck && h(Notice, { tone: 'warn' }, t(reading.faults.length > 0 ? 'form.json' : 'form.json.noFields')),
        h(Field, { label: t('form.asJson'), wrong: faults.get('') ?? [...faults].map(([pointer, text]) => `${pointer}: ${text}`).join(' · '), render: (attributes) => h('textarea', { ...attributes, class: 'textarea mono tall', rows: 10, spellcheck: false, value: state.text, onInput: (/** @type {any} */ event) => {
          setStuck(false);
          params.type(event.target.value);
        } }) }))
      : node.kind === 'group' ? (empty ? h('p', { class: 'soft' }, t('form.noParams')) : h(Members, { node, draft: state.draft, change: params.change, faults, pointer: '' }))
        : h(Members, { node: { kind: 'group', open: true, members: [{ name: 'params', node, required: true }] }, draft: { members: { params: state.draft } }, faults: new Map([...faults].map(([pointer, text]) => [`/params${pointer}`, text])), pointer: '', change: (draft) => params.change(draft.members?.params ?? {}) }));
}
