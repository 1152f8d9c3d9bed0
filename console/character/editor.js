/** The settings of a character, section by section: each with where its value comes from. */
import { Button, Card, Text } from '../components/basic.js';
import { Icon } from '../components/icon.js';
import { maybe, number, t } from '../i18n.js';
import { h, useId } from '../preact.js';
import { BookPicker, Flag, JsonBox, Line, Numeral, Paragraph, Paragraphs, PicturePicker, VoicePicker, Words } from './controls.js';
import { same, SECTIONS } from './fields.js';
import { PromptPreview } from './prompt.js';
import { ToolPolicy } from './tools.js';

/** @typedef {import('./fields.js').Flat} Flat */
/** @typedef {import('./fields.js').Setting} Setting */
/**
 * @typedef {object} Origin where values come from that are not the document's own
 * @property {number | null} version of the template in use
 * @property {Flat | undefined} template its values; undefined if they cannot be read
 * @property {(path: string) => boolean} lapsed
 *
 * @typedef {object} EditorProps
 * @property {Flat} own the values of this document
 * @property {Flat} effective the values in force
 * @property {Origin | undefined} origin
 * @property {Record<string, string>} wrong what is wrong, by path
 * @property {(path: string, value: any) => void} set undefined takes the document's own value away
 * @property {string[]} devices
 * @property {boolean} disabled
 */

/** @type {Record<string, (props: any) => any>} */
const CONTROLS = { line: Line, text: Paragraph, texts: Paragraphs, words: Words, number: Numeral, boolean: Flag, picture: PicturePicker, voice: VoicePicker, books: BookPicker, json: JsonBox };
/** These are groups or name themselves: no `label for`. */
const GROUPS = ['texts', 'picture', 'books', 'boolean'];

/** @param {EditorProps} props */
export function Editor(props) {
  return h('div', { class: 'editor' },
    h('nav', { class: 'editor-nav', 'aria-label': t('character.sections') }, SECTIONS.map((section) => h('a', { key: section.name, href: `#${section.name}`, onClick: (/** @type {Event} */ event) => {
      event.preventDefault();
      const card = document.querySelector(`#section-${section.name}`);
      card?.scrollIntoView({ block: 'start' });
      if (card instanceof HTMLElement) card.focus({ preventScroll: true });
    } }, t(`character.section.${section.name}`), section.fields.some((field) => props.wrong[field.path]) && h(Icon, { name: 'warning' })))),
    h('div', { class: 'stack' }, SECTIONS.map((section) => h('div', { id: `section-${section.name}`, class: 'editor-section', tabIndex: -1, key: section.name },
      h(Card, { title: t(`character.section.${section.name}`) },
        h('p', { class: 'soft section-text' }, t(`character.section.${section.name}.text`)),
        section.name === 'tools' ? h(ToolsSetting, props) : section.fields.map((field) => h(OneSetting, { key: field.path, field, ...props })),
        section.name === 'prompt' && h(PromptPreview, { settings: props.effective }))))));
}

/** @param {EditorProps & {field: Setting}} props */
function OneSetting({ field, own, effective, origin, wrong, set, disabled }) {
  const id = useId();
  const label = t(/** @type {any} */ (`character.${field.path}`));
  const hint = maybe(`character.${field.path}.hint`);
  const grouped = GROUPS.includes(field.kind);
  const described = [hint && `${id}-hint`, wrong[field.path] && `${id}-wrong`].filter(Boolean).join(' ') || undefined;
  const attributes = { id, 'aria-describedby': described, 'aria-invalid': wrong[field.path] && !grouped ? 'true' : undefined, 'aria-labelledby': grouped && field.kind !== 'boolean' ? `${id}-label` : undefined };
  return h('div', { class: origin ? 'setting with-origin' : 'setting', 'data-field': field.path },
    h('div', { class: 'field' },
      field.kind !== 'boolean' && (grouped ? h('div', { class: 'label', id: `${id}-label` }, label) : h('label', { for: id }, label)),
      h(/** @type {any} */ (CONTROLS[field.kind]), { field, value: effective[field.path], set: (/** @type {any} */ value) => set(field.path, value), attributes, disabled, name: effective.name ?? '' }),
      hint && h('div', { class: 'hint', id: `${id}-hint` }, hint),
      wrong[field.path] && h('div', { class: 'wrong', id: `${id}-wrong` }, h(Icon, { name: 'warning' }), h('span', null, h(Text, null, wrong[field.path])))),
    origin && h(Provenance, { paths: [field.path], label, own, origin, set, disabled }));
}

/** @param {EditorProps} props */
function ToolsSetting({ own, effective, origin, wrong, set, devices, disabled }) {
  const paths = ['tools.allow', 'tools.deny'];
  return h('div', { class: origin ? 'setting with-origin' : 'setting' },
    h('div', { class: 'field' },
      h(ToolPolicy, { allow: effective['tools.allow'], deny: effective['tools.deny'], fixed: origin?.template?.['tools.allow'] !== undefined, devices, disabled, set }),
      paths.map((path) => wrong[path] && h('div', { class: 'wrong', key: path }, h(Icon, { name: 'warning' }), h('span', null, h(Text, null, wrong[path]))))),
    origin && h(Provenance, { paths, label: t('character.section.tools'), own, origin, set, disabled }));
}

/** Where a value comes from, and the value that it hides. @param {{paths: string[], label: string, own: Flat, origin: Origin, set: (path: string, value: any) => void, disabled: boolean}} props */
function Provenance({ paths, label, own, origin, set, disabled }) {
  const overridden = paths.filter((path) => own[path] !== undefined);
  if (overridden.length === 0) return h('div', { class: 'provenance' }, h('span', { class: 'small faint' }, t('character.from', { version: origin.version ?? '' })));
  const lapsed = overridden.some((path) => origin.lapsed(path));
  return h('div', { class: 'provenance own' },
    h('span', { class: lapsed ? 'state warn small' : 'state small overridden' }, h(Icon, { name: lapsed ? 'warning' : 'check' }), t(lapsed ? 'character.lapsed' : 'character.override')),
    lapsed && overridden.map((path) => h('span', { class: 'small', key: path }, t('character.lapsed.value'), ' ', h(Text, null, brief(own[path])))),
    overridden.map((path) => h('span', { class: 'small soft break', key: path }, origin.template ? [`${t('character.template.value')} `, h(Value, { value: origin.template[path] })] : t('character.template.unknown'))),
    !disabled && h(Button, { small: true, kind: 'plain', icon: 'again', 'aria-label': `${t('character.reset')}: ${label}`, onClick: () => overridden.forEach((path) => set(path, undefined)) }, t('character.reset')));
}

/** A value in a few words. @param {any} value */
export function brief(value) {
  if (value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)) return t('character.nothing');
  if (value === true || value === false) return t(value ? 'character.yes' : 'character.no');
  if (typeof value === 'number') return number(value);
  const text = Array.isArray(value) && value.every((each) => typeof each === 'string') ? value.join(' · ') : typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > 160 ? `${text.slice(0, 160)} …` : text;
}

/** @param {{value: any}} props */
export const Value = ({ value }) => h('span', { class: same(value ?? null, null) ? 'faint' : undefined }, h(Text, null, brief(value)));
