/**
 * The screens, in the order of the navigation. A screen is one file of `screens/` that exports a
 * `Screen`; its texts are in `text/en/` and `text/zh/`.
 *
 * @typedef {'run' | 'characters' | 'knowledge' | 'connect' | 'manage'} Group
 *
 * @typedef {object} Screen
 * @property {string[]} paths patterns such as `/devices/:id`; the first is the link of the navigation
 * @property {import('./i18n.js').Key} title
 * @property {Group} [group] where the navigation lists it; without it, it is not listed
 * @property {import('./components/icon.js').IconName} [icon]
 * @property {string} [shortcut] the letter after `g`
 * @property {string} [parent] the path of the screen that the navigation marks instead
 * @property {'operator' | 'everyone'} [audience] whose sessions have it; without it, those of organisations
 * @property {(props: {params: Record<string, string>, query: URLSearchParams}) => any} view
 */
import { session } from './api.js';
import { agent } from './screens/agent.js';
import { audit } from './screens/audit.js';
import { book } from './screens/book.js';
import { books } from './screens/books.js';
import { call } from './screens/call.js';
import { calls } from './screens/calls.js';
import { cluster } from './screens/cluster.js';
import { device } from './screens/device.js';
import { devices } from './screens/devices.js';
import { group } from './screens/group.js';
import { keys } from './screens/keys.js';
import { memories } from './screens/memories.js';
import { npc } from './screens/npc.js';
import { npcs } from './screens/npcs.js';
import { organisation } from './screens/organisation.js';
import { overview } from './screens/overview.js';
import { pictures } from './screens/pictures.js';
import { template } from './screens/template.js';
import { templates } from './screens/templates.js';
import { usage } from './screens/usage.js';
import { voices } from './screens/voices.js';
import { webhook } from './screens/webhook.js';
import { webhooks } from './screens/webhooks.js';
import { welcome } from './screens/welcome.js';

/** @type {Group[]} */
export const GROUPS = ['run', 'characters', 'knowledge', 'connect', 'manage'];

/** @type {Screen[]} */
export const SCREENS = [
  overview, devices, device, group, calls, call,
  npcs, npc, templates, template, memories,
  books, book, voices, pictures,
  agent, webhooks, webhook,
  usage, audit, keys, organisation, cluster, welcome,
];

/** Whether the session has a screen. @param {Screen} screen */
export function isOpen({ audience }) {
  const { org_id: org, is_operator: operator } = session.value ?? {};
  if (audience === 'operator') return Boolean(operator);
  return audience === 'everyone' || Boolean(org);
}
