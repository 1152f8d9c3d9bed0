/** Which NPC speaks through a device: its own, or the default one; and a choice of another. */
import { useAct } from '../act.js';
import { may, path, request } from '../api.js';
import { Avatar } from '../character/controls.js';
import { Bone, Button, Card, Empty, Failure, Text, toast } from '../components/basic.js';
import { SelectField } from '../components/field.js';
import { plain } from '../form/safe.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';
import { useLoad, useResource } from '../resource.js';
import { href } from '../router.js';
import { setDefault } from './npcs.js';

/** @typedef {import('../types.js').Schemas['Npc']} Npc */

/** The NPC of a device alone, and the default one. @param {string} device @param {AbortSignal} signal */
async function serving(device, signal) {
  const [linked, org] = await Promise.all([request('GET', '/v1/npcs', { query: { device_id: device, limit: 1 }, signal }), request('GET', '/v1/org', { signal })]);
  const own = /** @type {Npc | undefined} */ (linked.data.npcs[0]);
  const id = org.data.default_npc_id;
  const fallback = id ? (own?.id === id ? own : /** @type {Npc} */ ((await request('GET', path`/v1/npcs/${id}`, { signal })).data)) : undefined;
  return { own, fallback };
}

/** Adds a device to an NPC, or takes it away. @param {string} npc @param {(devices: string[]) => string[]} change */
async function relink(npc, change) {
  const { data, etag } = await request('GET', path`/v1/npcs/${npc}`);
  await request('PATCH', path`/v1/npcs/${npc}`, { etag, body: { device_ids: change(data.device_ids ?? []) }, contentType: 'application/merge-patch+json' });
}

/** Links a device with another NPC, or with none. @param {string} device @param {string | undefined} from @param {string} to */
async function move(device, from, to) {
  // A device has one NPC: it is taken from the former one first, and given back if the next one cannot have it.
  if (from) await relink(from, (devices) => devices.filter((each) => each !== device));
  try {
    if (to) await relink(to, (devices) => [...devices, device]);
  } catch (error) {
    if (from) await relink(from, (devices) => [...devices, device]).catch(() => {});
    throw error;
  }
}

/** @param {{device: string}} props */
export function DeviceNpc({ device }) {
  const resource = useLoad((signal) => serving(device, signal), [device]);
  useLive(resource.reload, ['npc', 'org', `device:${device}`]);
  if (!resource.data) return h(Card, null, resource.error ? h(Failure, { error: resource.error, retry: resource.reload }) : h(Bone, { width: 260 }));
  const { own, fallback } = resource.data;
  const npc = own ?? fallback;
  return h('div', { class: 'columns two' },
    npc ? h(Card, { title: t('device.npc.speaks') }, h('div', { class: 'stack' },
      h('div', { class: 'row apart' },
        h('span', { class: 'who' }, h(Avatar, { id: npc.effective.avatar, name: npc.effective.name, large: true }),
          h('span', { class: 'two-lines' }, h('a', { class: 'main', href: href(`/npcs/${npc.id}`) }, h(Text, null, npc.effective.name)), npc.effective.persona?.role && h('span', { class: 'small soft' }, h(Text, null, npc.effective.persona.role)))),
        h(Button, { icon: 'voice', href: href(`/npcs/${npc.id}`, { talk: '1' }) }, t('talk.title'))),
      h('p', { class: 'soft' }, own ? t('device.npc.own') : t('device.npc.fallback'))))
      : h(Card, { flush: true }, h(Empty, { title: t('device.npc.none'), text: t('device.npc.none.text'), action: h(Button, { href: href('/npcs') }, t('npcs.title')) })),
    may('admin') && h(Choice, { key: device, device, own, fallback, reload: resource.reload }));
}

/** @param {{device: string, own: Npc | undefined, fallback: Npc | undefined, reload: () => void}} props */
function Choice({ device, own, fallback, reload }) {
  const npcs = useResource('/v1/npcs', { limit: 200 });
  // Undefined until the person chooses: what is shown then follows changes made elsewhere.
  const [choice, setChoice] = useState(/** @type {{own?: string, fallback?: string}} */ ({}));
  const chosen = choice.own ?? own?.id ?? '';
  const standard = choice.fallback ?? fallback?.id ?? '';
  const { busy, error, run } = useAct(async () => {
    try {
      if (chosen !== (own?.id ?? '')) {
        await move(device, own?.id, chosen);
        toast(t('device.npc.changed'));
      }
      if (standard !== (fallback?.id ?? '')) await setDefault(standard || null);
      setChoice({});
    } finally {
      reload();
    }
  });
  /** @type {{value: string, label: string}[]} */
  const options = (npcs.data?.npcs ?? []).map((/** @type {Npc} */ npc) => ({ value: npc.id, label: plain(npc.effective.name) }));
  for (const npc of [own, fallback]) if (npc && !options.some((each) => each.value === npc.id)) options.push({ value: npc.id, label: plain(npc.effective.name) });
  return h(Card, { title: t('device.npc.choose') }, h('form', { class: 'stack', onSubmit: run },
    h(SelectField, { label: t('device.npc.ofDevice'), value: chosen, onChange: (id) => setChoice({ ...choice, own: id }), options: [{ value: '', label: t('device.npc.useDefault') }, ...options] }),
    h(SelectField, { label: t('org.npc'), hint: t('org.npc.hint'), value: standard, onChange: (id) => setChoice({ ...choice, fallback: id }), options: [{ value: '', label: t('org.npc.none') }, ...options] }),
    h(Failure, { error }),
    h('div', null, h(Button, { kind: 'primary', type: 'submit', busy, disabled: chosen === (own?.id ?? '') && standard === (fallback?.id ?? '') }, t('act.save')))));
}
