/** The NPCs of devices: which one each device has, and the devices of one. */
import { get, path } from '../api.js';
import { plain } from '../form/safe.js';
import { compare, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h } from '../preact.js';
import { useLoad } from '../resource.js';
import { href, setQuery } from '../router.js';
import { Bone, Text } from './basic.js';
import { Select } from './field.js';

/** @typedef {import('../types.js').Device} Device */
/** @typedef {import('../types.js').Schemas['Npc']} Npc */
/** @typedef {{id: string, name: string, devices: string[]}} Named */
/** `more`: there are NPCs beyond those that were read. @typedef {{all: Named[], of: Map<string, Named>, more: boolean}} DeviceNpcs */

const PAGE_LIMIT = 200;
const MAX_NPC_PAGES = 5;
/** The requests that are at most begun for the devices of one NPC. */
const MAX_PREFIXES = 8;
/** Pages of devices that are read for one prefix. */
const MAX_DEVICE_PAGES = 50;

/** @param {AbortSignal} stop @returns {Promise<DeviceNpcs>} */
async function readNpcs(stop) {
  /** @type {Named[]} */
  const all = [];
  let cursor;
  for (let page = 0; page < MAX_NPC_PAGES && cursor !== null; page += 1) {
    /** @type {{npcs: Npc[], next_cursor: string | null}} */
    const read = await get('/v1/npcs', { limit: PAGE_LIMIT, cursor }, stop);
    all.push(...read.npcs.map((npc) => ({ id: npc.id, name: npc.effective.name, devices: npc.device_ids ?? [] })));
    cursor = read.next_cursor ?? null;
  }
  return { all, of: new Map(all.flatMap((npc) => npc.devices.map((device) => [device, npc]))), more: cursor !== null };
}

/** The NPCs of all devices, in as many requests as there are pages of NPCs. */
export function useDeviceNpcs() {
  const npcs = useLoad(readNpcs, []);
  useLive(npcs.reload, ['npc']);
  return npcs;
}

/** The NPC of a device; nothing if it has none of its own. @param {{device: string, npcs: import('../resource.js').Resource<DeviceNpcs>}} props */
export function NpcOf({ device, npcs: { data, error } }) {
  const npc = data?.of.get(device);
  if (npc) return h('a', { class: 'clip npc-of', href: href(`/npcs/${npc.id}`), title: plain(npc.name) }, h(Text, null, npc.name));
  if (data?.more) return h('span', { class: 'faint', title: t('devices.npc.more', { n: data.all.length }) }, '?');
  return data || error ? null : h(Bone, { width: 70 });
}

/** Narrows a list of devices to those of one NPC. @param {{value: string, npcs: DeviceNpcs | undefined}} props */
export function NpcFilter({ value, npcs }) {
  const linked = (npcs?.all ?? []).filter((npc) => npc.devices.length > 0 || npc.id === value);
  if (value === '' && linked.length === 0) return null;
  // Many NPCs have the name of their template: their devices tell them apart.
  const options = linked.map(({ id, name, devices: [first, ...rest] }) => ({ value: id, label: plain(name) + (first ? ` (${first}${rest.length > 0 ? ` +${rest.length}` : ''})` : '') }));
  if (value && !linked.some((npc) => npc.id === value)) options.push({ value, label: value });
  options.sort((a, b) => compare(a.label, b.label));
  return h(Select, { 'aria-label': t('device.npc'), class: 'select short', value, onChange: (npc) => setQuery({ npc: npc || undefined }), options: [{ value: '', label: t('devices.npc.any') }, ...options] });
}

/**
 * A few prefixes that all of the ids have, each with its ids in order: neighbours that have most in common share one.
 * @param {string[]} ids @param {number} [most]
 */
export function prefixesOf(ids, most = MAX_PREFIXES) {
  const groups = [...ids].sort().map((id) => ({ prefix: id, ids: [id] }));
  while (groups.length > most) {
    let closest = { at: 0, prefix: '' };
    for (let at = 0; at + 1 < groups.length; at += 1) {
      const prefix = common(groups[at]?.prefix ?? '', groups[at + 1]?.prefix ?? '');
      if (prefix.length > closest.prefix.length) closest = { at, prefix };
    }
    const merged = groups.slice(closest.at, closest.at + 2).flatMap((group) => group.ids);
    groups.splice(closest.at, 2, { prefix: closest.prefix, ids: merged });
  }
  return groups;
}

/** How two texts begin alike. @param {string} a @param {string} b */
function common(a, b) {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length += 1;
  return a.slice(0, length);
}

/** @typedef {import('../api.js').Options['query'] & {prefix: string}} Filter */

/** The devices of an NPC that a filter lets through. @param {string} npc @param {Filter} filter @param {AbortSignal} stop @returns {Promise<{items: Device[], more: boolean}>} */
export async function devicesOf(npc, filter, stop) {
  /** @type {Npc} */
  const document = await get(path`/v1/npcs/${npc}`, {}, stop);
  const ids = (document.device_ids ?? []).filter((id) => id.startsWith(filter.prefix));
  const found = await Promise.all(prefixesOf(ids).map((group) => find(group, filter, stop)));
  return { items: found.flatMap((each) => each.items), more: found.some((each) => each.more) };
}

/** @param {{prefix: string, ids: string[]}} group @param {Filter} filter @param {AbortSignal} stop */
async function find({ prefix, ids }, filter, stop) {
  const last = ids.at(-1) ?? '';
  /** @type {Device[]} */
  const items = [];
  let cursor;
  for (let page = 0; page < MAX_DEVICE_PAGES; page += 1) {
    /** @type {{devices: Device[], next_cursor: string | null}} */
    const read = await get('/v1/devices', { ...filter, prefix, cursor, limit: ids.length === 1 ? 1 : PAGE_LIMIT }, stop);
    items.push(...read.devices.filter((device) => ids.includes(device.id)));
    cursor = read.next_cursor;
    // Devices are in the order of their ids.
    if (!cursor || (read.devices.at(-1)?.id ?? '') >= last) return { items, more: false };
  }
  return { items, more: true };
}
