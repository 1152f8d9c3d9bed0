/** Which templates and NPCs use a picture, a book or a voice: why it cannot be deleted. */
import { get } from '../api.js';
import { t } from '../i18n.js';
import { h } from '../preact.js';
import { useLoad } from '../resource.js';
import { href } from '../router.js';
import { Text } from './basic.js';

/** @typedef {{to: string, name: string}} Use */

/** The users among the first 200 templates and the first 200 NPCs. @param {string} id */
export function useUses(id) {
  return useLoad(async (stop) => {
    const [templates, npcs] = await Promise.all([get('/v1/templates', { limit: 200 }, stop), get('/v1/npcs', { limit: 200 }, stop)]);
    const users = (/** @type {any[]} */ list, /** @type {string} */ place) => list.filter((each) => JSON.stringify(each).includes(`"${id}"`)).map((each) => ({ to: `/${place}/${each.id}`, name: String(each.name ?? each.id) }));
    return /** @type {Use[]} */ ([...users(templates.templates, 'templates'), ...users(npcs.npcs, 'npcs')]);
  }, [id]);
}

/** @param {{id: string}} props */
export function Uses({ id }) {
  const uses = useUses(id);
  if (!uses.data) return uses.error ? null : h('span', { class: 'soft' }, t('list.loading'));
  if (uses.data.length === 0) return h('span', { class: 'soft' }, t('uses.none'));
  return h('span', { class: 'row' }, uses.data.map((use) => h('a', { key: use.to, class: 'tag accent', href: href(use.to) }, h(Text, null, use.name))));
}
