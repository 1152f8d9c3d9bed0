/** What a device answered: its content blocks, and the result as JSON. */
import { link, plain, shownAs } from '../form/safe.js';
import { t } from '../i18n.js';
import { h, useEffect, useState } from '../preact.js';
import { Button, Notice, Text } from './basic.js';
import { Code, Json } from './code.js';

/** @param {{result: Record<string, any>, valid?: boolean}} props */
export function Result({ result, valid }) {
  const blocks = Array.isArray(result.content) ? result.content : [];
  return h('div', { class: 'stack' },
    valid === false && h(Notice, { tone: 'warn', title: t('result.mismatch') }, t('result.mismatch.text')),
    result.success === false && h(Notice, { tone: 'bad', title: t('result.error') }, h(Text, null, typeof result.error === 'string' ? result.error : JSON.stringify(result.error ?? ''))),
    blocks.map((block, index) => h(Block, { key: index, block })),
    result.data !== undefined && (typeof result.data === 'string' ? h(Code, { text: result.data, wrap: true, label: t('result.data') }) : h(Json, { value: result.data, label: t('result.data') })),
    h('details', null, h('summary', { class: 'small soft' }, t('result.raw')), h(Json, { value: result, label: t('result.raw') })));
}

/** One block of MCP content. @param {{block: any}} props */
function Block({ block }) {
  if (block?.type === 'text' && typeof block.text === 'string') return h(Code, { text: block.text, wrap: true });
  if (block?.type === 'image' || block?.type === 'audio') return h(Media, { data: block.data, type: block.mimeType });
  if (block?.type === 'resource_link') return h(Notice, { icon: 'external', title: h(Text, null, block.title ?? block.name ?? block.uri) }, h(OutsideLink, { uri: block.uri }));
  if (block?.type === 'resource' && typeof block.resource?.text === 'string') return h('div', null, h('div', { class: 'small soft break' }, h(Text, null, block.resource.uri)), h(Code, { text: block.resource.text, wrap: true }));
  if (block?.type === 'resource' && block.resource?.blob) return h(Media, { data: block.resource.blob, type: block.resource.mimeType });
  return h(Json, { value: block });
}

/** An address of a device: text, and after a click, if it is https, a link. @param {{uri: unknown}} props */
function OutsideLink({ uri }) {
  const [asked, setAsked] = useState(false);
  const safe = link(uri);
  return h('div', { class: 'row' },
    h('code', { class: 'break' }, h(Text, null, String(uri))),
    safe && !asked && h(Button, { small: true, onClick: () => setAsked(true) }, t('result.link')),
    safe && asked && h('a', { href: safe, target: '_blank', rel: 'noreferrer noopener' }, t('result.link.open', { host: new URL(safe).host })));
}

/** A picture or sound from base64, of an allowed type. @param {{data: unknown, type: unknown}} props */
function Media({ data, type }) {
  const kind = shownAs(type);
  const [source, setSource] = useState(/** @type {string | undefined} */ (undefined));
  useEffect(() => {
    if (!kind || typeof data !== 'string') return undefined;
    let made;
    try {
      const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      made = URL.createObjectURL(new Blob([bytes], { type: /** @type {string} */ (type) }));
    } catch {
      return undefined;
    }
    setSource(made);
    return () => URL.revokeObjectURL(made);
  }, [data, type]);
  if (!kind) return h(Notice, { tone: 'warn' }, t('result.unshown', { type: plain(String(type)) }));
  if (!source) return null;
  return kind === 'image' ? h('img', { class: 'result-image', src: source, alt: t('result.image') }) : h('audio', { controls: true, src: source });
}
