/** The texts in Chinese: exactly the keys of the English ones. */
import { agent } from './zh/agent.js';
import { audit } from './zh/audit.js';
import { calls } from './zh/calls.js';
import { characters } from './zh/characters.js';
import { common } from './zh/common.js';
import { devices } from './zh/devices.js';
import { form } from './zh/form.js';
import { installation } from './zh/installation.js';
import { keys } from './zh/keys.js';
import { library } from './zh/library.js';
import { memories } from './zh/memories.js';
import { overview } from './zh/overview.js';
import { problems } from './zh/problems.js';
import { usage } from './zh/usage.js';
import { webhooks } from './zh/webhooks.js';
import { welcome } from './zh/welcome.js';

/** @type {Record<keyof typeof import("./en.js").en, import("../i18n.js").Entry>} */
export const zh = {
  ...common, ...form, ...problems, ...welcome, ...overview, ...devices, ...calls, ...agent, ...keys,
  ...characters, ...memories, ...library, ...webhooks, ...usage, ...audit, ...installation,
};
