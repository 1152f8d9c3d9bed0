// Every screen and every dialog: rules of accessibility in both themes and languages, and reflow.
import assert from 'node:assert/strict';

import { en } from '../../../console/text/en.js';
import { zh } from '../../../console/text/zh.js';
import { makeNpc } from './characters.mjs';

/** @typedef {import('./world.mjs').World} World */
/** @typedef {import('playwright-core').Page} Page */

const TEXTS = { en, zh };
const WIDE = 1440;
const NARROW = 320;

/** @type {Record<string, (page: Page, world: World) => Promise<void>>} */
export const SCREENS = {
  async 'every screen and dialog is accessible, in both themes and languages, wide and narrow'(_, world) {
    const places = await findPlaces(world);
    const lanes = [['en', 'zh'], ['zh', 'en']].map(async ([first, second]) => {
      await tour(world, places, { language: first, width: WIDE });
      await tour(world, places, { language: second, width: NARROW });
    });
    for (const lane of await Promise.allSettled(lanes)) if (lane.status === 'rejected') throw lane.reason;
  },

  async 'what only an operator sees is accessible as well'(_, world) {
    for (const language of /** @type {const} */ (['en', 'zh'])) {
      const page = await world.signedIn({ key: world.operatorKey, language });
      assert.equal(new URL(page.url()).pathname, '/console/organisation');
      for (const path of ['/cluster', '/organisation']) {
        await open(page, path);
        await world.audit(page, `${path} of an operator, ${language}`, { bothThemes: true });
      }
      await page.context().close();
    }
  },
};

/** The places of the screens, and the dialogs: a place, and the texts of what is pressed there. @param {World} world */
async function findPlaces(world) {
  const api = (/** @type {string} */ path) => world.api('GET', path);
  const { npc, template } = await makeNpc(world, 'Watcher');
  await world.api('POST', `/v1/npcs/${npc.id}/memories`, { text: 'Anna is afraid of thunder.', subject: 'user:anna', kind: 'fact' });
  (await world.device('gone-1')).kill('SIGTERM');
  const { skills_books: [book] } = await api('/v1/skills-books');
  const { webhooks: [webhook] } = await api('/v1/webhooks');
  const { calls: [call] } = await api('/v1/calls');
  const { pictures: [picture] } = await api('/v1/pictures');
  const screens = ['/', '/welcome', '/welcome?step=2&id=toy-1', '/welcome?step=3&id=toy-1', '/devices', '/devices?prefix=none', '/devices/toy-1?service=echo', '/devices/toy-1/calls', '/devices/toy-1/journal', '/devices/toy-1/events', '/devices/toy-1/approvals', '/devices/toy-1/npc', '/devices/toy-1/mcp', '/devices/toy-1/raw', '/group', '/calls', '/calls/recent', `/calls/${call.call_id}`, '/npcs', `/npcs/${npc.id}`, '/templates', `/templates/${template.id}`, `/memories?of=${npc.id}`, '/books', `/books/${book.id}`, '/voices', '/pictures', '/agent', '/agent?device=toy-1&client=codex', '/webhooks', `/webhooks/${webhook.id}`, '/usage', '/audit', '/keys', '/keys?view=tokens', '/organisation', '/no/such/page'];
  /** @type {[string, string[]][]} */
  const dialogs = [
    ['/', ['app.find']], ['/', ['app.account', 'app.keys.help']], ['/', ['app.account']],
    ['/devices/toy-1', ['device.token']], ['/devices/toy-1', ['device.more', 'device.disconnect']], ['/devices/gone-1', ['device.more', 'device.forget']],
    ['/npcs', ['npcs.create']], [`/npcs/${npc.id}`, ['character.picture.choose']], [`/npcs/${npc.id}`, ['device.more', 'act.delete']], [`/npcs/${npc.id}?talk=1`, []],
    ['/templates', ['templates.create']], [`/templates/${template.id}`, ['device.more', 'act.delete']],
    [`/memories?of=${npc.id}`, ['memories.add']], [`/memories?of=${npc.id}`, ['memories.edit']], [`/memories?of=${npc.id}`, ['act.delete']],
    [`/books/${book.id}`, ['act.delete']], ['/voices', ['voices.add']], ['/pictures', ['pictures.open']],
    ['/webhooks', ['webhooks.add']], ...['webhook.edit', 'webhook.rotate', 'act.delete'].map((key) => /** @type {[string, string[]]} */ ([`/webhooks/${webhook.id}`, [key]])),
    ['/keys', ['keyring.create']], ['/keys', ['keyring.revoke']], ['/keys?view=tokens', ['keyring.revoke']],
  ];
  return { screens, dialogs, pictureName: picture.name };
}

/** @param {World} world @param {Awaited<ReturnType<typeof findPlaces>>} places @param {{language: 'en' | 'zh', width: number}} form */
async function tour(world, { screens, dialogs, pictureName }, { language, width }) {
  const entry = await world.browser.page(world.origin, { language, width });
  await entry.goto(world.url + '/');
  await entry.locator('[data-sign-in]').waitFor();
  await world.audit(entry, `sign-in ${language} ${width}`, { bothThemes: width === WIDE });
  await entry.context().close();
  const page = await world.signedIn({ language, width });
  for (const path of screens) {
    await open(page, path);
    await world.audit(page, `${path} ${language} ${width}`, { bothThemes: width === WIDE });
    await world.shoot(page, `${path} ${language} ${width}`);
  }
  for (const [path, keys] of dialogs) {
    await open(page, path);
    for (const key of keys) await press(page, TEXTS[language][key].replace('{name}', pictureName));
    if (keys.at(-1) !== 'app.account') await page.getByRole('dialog').waitFor();
    await world.audit(page, `${path} ${keys.join(' ')} ${language} ${width}`, { bothThemes: width === WIDE });
    await world.shoot(page, `${path} ${keys.join(' ')} ${language} ${width}`);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  }
  await page.context().close();
}

/** Goes to a place without a new page, as a link does. @param {Page} page @param {string} path */
async function open(page, path) {
  await page.evaluate(async (to) => {
    history.pushState(null, '', `/console${to}`);
    dispatchEvent(new PopStateEvent('popstate'));
    for (let frame = 0; frame < 3; frame += 1) await new Promise((drawn) => requestAnimationFrame(drawn));
  }, path);
  await page.locator('main h1, main h2').first().waitFor();
  await page.waitForFunction(() => !document.querySelector('[aria-busy="true"], .bone'));
}

/** Presses what has a text or a name, whether a button, a link, or the head of a menu. @param {Page} page @param {string} text */
async function press(page, text) {
  const named = page.getByRole('button', { name: text, exact: true });
  const summary = page.locator('summary').filter({ hasText: new RegExp(`^${text}$`) }).or(page.locator(`summary[aria-label^="${text}"]`));
  await named.or(summary).filter({ visible: true }).first().click();
}
