// What a person does in the console, in a real browser, against a real `up` with real devices.
//
//     node tests/console/journeys.mjs PROGRAM PACKAGES_FOLDER PICTURES_FOLDER CLIENTS_FOLDER [--pictures]
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';

import { Album } from './album.mjs';
import { Browser } from './browser.mjs';
import { HOSTILE } from './hostile.mjs';
import { APPROVALS } from './journeys/approvals.mjs';
import { CHARACTERS } from './journeys/characters.mjs';
import { CROWD } from './journeys/crowd.mjs';
import { firstMinute } from './journeys/first_minute.mjs';
import { DEVICES } from './journeys/devices.mjs';
import { LABELS } from './journeys/labels.mjs';
import { LIVE } from './journeys/live.mjs';
import { journey as resources } from './journeys/resources.mjs';
import { SCREENS } from './journeys/screens.mjs';
import { SESSIONS } from './journeys/session.mjs';
import { showcase } from './journeys/showcase.mjs';
import { World } from './journeys/world.mjs';
import { System } from './system.mjs';

const [program, packages, pictures, clients, option] = process.argv.slice(2);
if (!program || !packages || !pictures || !clients) throw new Error('usage: node tests/console/journeys.mjs PROGRAM PACKAGES_FOLDER PICTURES_FOLDER CLIENTS_FOLDER [--pictures]');
mkdirSync(pictures, { recursive: true });

const system = await new System(program).start();
const browser = await new Browser(packages).start();
const world = new World(system, browser, pictures, option === '--pictures');
const { origin } = world;
const at = (path) => world.url + path;
const signIn = (page, key) => world.signIn(page, key);
const signedIn = (options) => world.signedIn(options);

/** Journeys of another file, each with a page of its own. */
const onPage = (journeys) => Object.fromEntries(Object.entries(journeys).map(([name, journey]) => [name, async () => {
  const page = await signedIn();
  await journey(page, world);
  await page.context().close();
}]));

const JOURNEYS = {
  async 'a new user comes from the printed link to an agent that uses a device'() {
    const first = await new System(program).start();
    try {
      const album = new Album();
      const beginning = new World(first, browser, pictures, false);
      const page = await firstMinute(beginning, album, clients);
      await showcase(page, beginning, album);
      await page.context().close();
      if (option === '--pictures') album.write();
      album.check();
    } finally {
      await first.stop();
    }
  },

  async 'a wrong key is refused, and a right one opens the first steps'() {
    const page = await browser.page(origin);
    await page.goto(at('/'));
    await signIn(page, 'sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG');
    await page.getByText('This key was refused').waitFor();
    await signIn(page);
    await page.getByRole('heading', { name: 'No device has dialled in yet' }).waitFor();
    assert.equal(await page.evaluate(() => Object.values(localStorage).join().includes('sb_')), false);
    await page.context().close();
  },

  async 'the printed link signs in once'() {
    const page = await browser.page(origin);
    await page.goto(system.ready.console_url);
    await page.locator('nav.nav').waitFor();
    assert.equal(new URL(page.url()).hash, '');
    await page.context().close();
    const again = await browser.page(origin);
    await again.goto(system.ready.console_url);
    await again.getByRole('heading', { name: 'Sign in' }).waitFor();
    await again.context().close();
  },

  async 'books, voices, pictures and webhooks are added; usage and the audit log are read'() {
    const page = await signedIn();
    await resources(page, world);
    await page.context().close();
  },

  async 'a device dials in, is called, and an agent is shown the way'() {
    const page = await signedIn();
    await page.getByRole('link', { name: 'Connect a device' }).click();
    await page.getByText('Waiting for toy-1').waitFor();
    await system.device('toy-1');
    await page.getByText('toy-1 has dialled in with 3 services').waitFor();
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByLabel('Service').selectOption('echo');
    await page.getByLabel('text', { exact: true }).fill('hello');
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.getByText('Succeeded').waitFor();
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByRole('link', { name: 'Choose a client' }).click();
    await page.getByText('/mcp/devices/toy-1').first().waitFor();
    await page.context().close();
  },

  async 'a form keeps to its schema, goes to JSON and back, and shows the outcome'() {
    const page = await signedIn();
    await page.goto(at('/devices/toy-1?service=create_file'));
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.getByText('A value is needed here.').first().waitFor();
    await page.waitForFunction(() => document.activeElement?.getAttribute('aria-invalid') === 'true');
    await page.getByLabel('filename').fill('a.txt');
    await page.getByRole('group', { name: 'Params' }).getByRole('button', { name: 'JSON' }).click();
    await page.getByRole('textbox', { name: 'JSON' }).fill('{"filename":"b.txt","content":"x"}');
    await page.getByRole('group', { name: 'Params' }).getByRole('button', { name: 'Form' }).click();
    assert.equal(await page.getByLabel('filename').inputValue(), 'b.txt');
    await page.keyboard.press('Escape');
    await page.getByLabel('content').press('Control+Enter');
    await page.getByText('Succeeded').waitFor();
    await page.getByText('Delivered').first().waitFor();
    await page.getByRole('group', { name: 'The same call elsewhere', exact: true }).getByRole('button', { name: 'Python' }).click();
    await page.getByText('urllib.request').first().waitFor();
    await page.context().close();
  },

  async 'a queued call is seen, opened and cancelled'() {
    const page = await signedIn();
    await system.api('POST', '/v1/devices/sleeper/calls', { service: 'wave', mode: 'queued', params: {} });
    await system.api('POST', '/v1/devices/toy-1/calls', { service: 'get_current_time', mode: 'async', params: {} });
    await page.goto(at('/devices/toy-1/calls'));
    await page.getByRole('link', { name: 'get_current_time' }).waitFor();
    await page.goto(at('/calls?state=queued'));
    await page.getByRole('link', { name: 'wave' }).click();
    await page.getByRole('button', { name: 'Cancel the call' }).click();
    await page.getByText('Cancelled', { exact: true }).waitFor();
    await page.context().close();
  },

  async 'a hostile device is text'() {
    await system.device('hostile', HOSTILE);
    const page = await signedIn();
    for (const name of Object.keys(HOSTILE)) {
      await page.goto(at(`/devices/hostile?service=${encodeURIComponent(name)}`));
      await page.locator('[data-call-form]').waitFor();
    }
    await page.getByText('⟨U+202E⟩').first().waitFor();
    assert.equal(await page.locator('main img, main iframe, main script, main object').count(), 0);
    await browser.audit(page, 'hostile device');
    await page.context().close();
  },

  async 'a key is made, shown once, tried as an agent, and revoked by name'() {
    const page = await signedIn();
    await page.goto(at('/keys'));
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByLabel('Name', { exact: true }).fill('robot');
    await page.getByRole('button', { name: 'Create' }).click();
    const secret = await page.locator('dialog .code').innerText();
    assert.match(secret, /^sb_/);
    await page.getByRole('button', { name: 'I have stored it' }).click();
    assert.equal((await page.content()).includes(secret), false);
    await page.goto(at('/agent?device=toy-1'));
    await page.getByLabel('API key', { exact: true }).fill(secret);
    await page.getByRole('button', { name: 'Test', exact: true }).click();
    await page.getByText('It works: 3 tools').waitFor();
    await page.goto(at('/keys'));
    await page.getByRole('row').filter({ hasText: 'robot' }).getByRole('button', { name: 'Revoke' }).click();
    assert.equal(await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).isDisabled(), true);
    await page.getByLabel('Type robot to confirm').fill('robot');
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('row').filter({ hasText: 'robot' }).getByText('Revoked').waitFor();
    await page.context().close();
  },

  async 'a session that ends is renewed over the page, and nothing typed is lost'() {
    const page = await signedIn();
    await page.goto(at('/devices/toy-1?service=echo'));
    await page.getByLabel('text', { exact: true }).fill('still here');
    await page.context().clearCookies();
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.getByRole('dialog').getByText('Your session has ended').waitFor();
    await signIn(page);
    await page.getByText('Succeeded').waitFor();
    assert.equal(await page.getByLabel('text', { exact: true }).inputValue(), 'still here');
    await page.context().close();
  },

  async 'the keyboard is enough'() {
    const page = await browser.page(origin);
    await page.goto(at('/'));
    await page.locator('[data-sign-in]').waitFor();
    while (!(await page.evaluate(() => document.activeElement?.matches('input[type=password]')))) await page.keyboard.press('Tab');
    await page.keyboard.type(system.ready.api_key);
    await page.keyboard.press('Enter');
    await page.locator('nav.nav').waitFor();
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.keyboard.press('g');
    await page.keyboard.press('d');
    await page.getByRole('heading', { name: 'Devices' }).waitFor();
    await page.locator('tr[data-id="toy-1"]').waitFor();
    while (!(await page.locator('tr[data-id="toy-1"][data-current]').count())) await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'toy-1' }).waitFor();
    const chosen = page.locator('.service-list a[aria-current]');
    while (!(await page.evaluate(() => document.activeElement?.matches('.service-list a') && document.activeElement.textContent?.startsWith('echo')))) await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await chosen.filter({ hasText: 'echo' }).waitFor();
    await page.keyboard.press('c');
    await page.waitForFunction(() => document.activeElement?.matches('[data-call-form] textarea, [data-call-form] input'));
    await page.keyboard.type('typed');
    await page.keyboard.press('Control+Enter');
    await page.getByText('Succeeded').waitFor();
    await page.keyboard.press('Escape');
    await page.evaluate(() => { if (document.activeElement instanceof HTMLElement) document.activeElement.blur(); });
    await page.keyboard.press('/');
    await page.getByRole('combobox').fill('hos');
    await page.getByRole('option', { name: /hostile/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'hostile' }).waitFor();
    await page.context().close();
  },

  ...onPage(SESSIONS),
  ...onPage(CHARACTERS),

  ...onPage(DEVICES),

  ...onPage(LIVE),

  ...onPage(LABELS),

  ...onPage(APPROVALS),

  ...onPage(SCREENS),
  ...onPage(CROWD),
};

let passed = 0;
let failed = 0;
try {
  const wanted = new RegExp(process.env.SWITCHBOARD_CONSOLE_JOURNEYS ?? '');
  for (const [name, journey] of Object.entries(JOURNEYS).filter(([name]) => wanted.test(name))) {
    const began = Date.now();
    try {
      await journey();
      browser.assertClean();
      passed += 1;
      console.log(`ok: ${name} (${Date.now() - began} ms)`);
    } catch (error) {
      failed += 1;
      browser.faults.length = 0;
      console.error(`FAILED: ${name}\n${error.stack}`);
      await browser.abandon(pictures);
    }
  }
} finally {
  await browser.stop();
  await system.stop();
}
console.log(`journeys: ${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
