/** The texts in English, one file for each area. A text is one line, or one for each plural of `n`. */
import { agent } from './en/agent.js';
import { audit } from './en/audit.js';
import { calls } from './en/calls.js';
import { characters } from './en/characters.js';
import { common } from './en/common.js';
import { devices } from './en/devices.js';
import { form } from './en/form.js';
import { installation } from './en/installation.js';
import { keys } from './en/keys.js';
import { library } from './en/library.js';
import { memories } from './en/memories.js';
import { overview } from './en/overview.js';
import { problems } from './en/problems.js';
import { usage } from './en/usage.js';
import { webhooks } from './en/webhooks.js';
import { welcome } from './en/welcome.js';

export const en = {
  ...common, ...form, ...problems, ...welcome, ...overview, ...devices, ...calls, ...agent, ...keys,
  ...characters, ...memories, ...library, ...webhooks, ...usage, ...audit, ...installation,
};
