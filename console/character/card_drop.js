/** Character cards as files: dropped or chosen, imported as templates; and exported. */
import { may, request, send } from '../api.js';
import { Failure, toast } from '../components/basic.js';
import { Icon } from '../components/icon.js';
import { t } from '../i18n.js';
import { h, useState } from '../preact.js';

const MAX_BYTES = 10 * 1024 * 1024;

/** @param {{imported: (template: any) => void}} props */
export function CardDrop({ imported }) {
  const [over, setOver] = useState(false);
  const [busy, setBusy] = useState('');
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  if (!may('admin')) return null;
  const take = async (/** @type {File | undefined | null} */ file) => {
    if (!file) return;
    setError(undefined);
    if (file.size > MAX_BYTES) {
      toast(t('card.large'), 'warning');
      return;
    }
    setBusy(file.name);
    try {
      const png = file.type === 'image/png' || file.name.toLowerCase().endsWith('.png');
      const { data } = await request('POST', '/v1/templates/import', { body: file, contentType: png ? 'image/png' : 'application/json' });
      toast(t('card.imported', { name: data.name }));
      imported(data);
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
    setBusy('');
  };
  return h('div', { class: 'stack tight' },
    h('label', {
      class: over ? 'card-drop over' : 'card-drop', 'aria-busy': busy ? 'true' : undefined,
      onDragOver: (/** @type {DragEvent} */ event) => {
        event.preventDefault();
        setOver(true);
      },
      onDragLeave: () => setOver(false),
      onDrop: (/** @type {DragEvent} */ event) => {
        event.preventDefault();
        setOver(false);
        take(event.dataTransfer?.files[0]);
      },
    },
    h(Icon, { name: 'template' }),
    h('span', null, h('strong', null, busy ? t('card.importing', { name: busy }) : t('card.drop')), h('span', { class: 'small soft block' }, t('card.formats'))),
    h('input', { type: 'file', class: 'hidden', accept: '.png,.json,image/png,application/json', disabled: busy !== '', onChange: (/** @type {any} */ event) => {
      take(event.target.files?.[0]);
      event.target.value = '';
    } })),
    h(Failure, { error }));
}

/** Saves a template as a card. @param {{id: string, name: string}} template @param {'json' | 'png'} form */
export async function exportCard(template, form) {
  const response = await send('GET', `/v1/templates/${encodeURIComponent(template.id)}/export`, { query: { format: 'card_v2' }, accept: form === 'png' ? 'image/png' : 'application/json' });
  const address = URL.createObjectURL(await response.blob());
  const link = document.createElement('a');
  link.href = address;
  link.download = `${template.name.replace(/[^\p{L}\p{N}_-]+/gu, '-').slice(0, 60) || 'card'}.${form}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
