/** A place for files: dropped, or chosen. */
import { h, useId, useState } from '../preact.js';
import { Icon } from './icon.js';

/** @param {{label: string, hint?: any, accept: string, multiple?: boolean, disabled?: boolean, slim?: boolean, onFiles: (files: File[]) => void}} props */
export function Drop({ label, hint, accept, multiple, disabled, slim, onFiles }) {
  const id = useId();
  const [over, setOver] = useState(false);
  const take = (/** @type {FileList | null | undefined} */ list) => {
    const files = [...(list ?? [])];
    if (files.length > 0 && !disabled) onFiles(multiple ? files : files.slice(0, 1));
  };
  return h('div', {
    class: ['drop', over && 'over', slim && 'slim', disabled && 'off'].filter(Boolean).join(' '),
    onDragOver: (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      setOver(!disabled);
    },
    onDragLeave: () => setOver(false),
    onDrop: (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      setOver(false);
      take(event.dataTransfer?.files);
    },
  },
  h('input', { id, type: 'file', class: 'drop-input', accept, multiple, disabled, 'aria-describedby': hint ? `${id}-hint` : undefined, onChange: (/** @type {any} */ event) => {
    take(event.target.files);
    event.target.value = '';
  } }),
  h('label', { for: id }, h(Icon, { name: 'upload' }), h('span', null, label)),
  hint && h('p', { id: `${id}-hint`, class: 'small soft' }, hint));
}
