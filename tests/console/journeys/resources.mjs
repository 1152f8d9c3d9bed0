// Books, voices, pictures, webhooks, usage, the audit log, the cluster and the organisation.
import assert from 'node:assert/strict';

import { drop } from './files.mjs';

/** Tones of 16 bits at 16 kHz. @param {number} seconds */
function tone(seconds) {
  const samples = 16_000 * seconds;
  const bytes = Buffer.alloc(44 + samples * 2);
  bytes.write('RIFF', 0);
  bytes.writeUInt32LE(36 + samples * 2, 4);
  bytes.write('WAVEfmt ', 8);
  for (const [at, value] of [[16, 16], [24, 16_000], [28, 32_000], [40, samples * 2]]) bytes.writeUInt32LE(value, at);
  for (const [at, value] of [[20, 1], [22, 1], [32, 2], [34, 16]]) bytes.writeUInt16LE(value, at);
  bytes.write('data', 36);
  for (let index = 0; index < samples; index += 1) bytes.writeInt16LE(Math.round(9_000 * Math.sin(index / 6)), 44 + index * 2);
  return bytes;
}
const PIXEL = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
const MANUAL = Buffer.from('# Manual\n\n## Care\n\nTo replace the battery, open the lid with a coin.\n\n## Play\n\nPress the red button to wave.\n');
const PART_BYTES = 8 * 1024 * 1024;

/** @typedef {import('./world.mjs').World} World */
/** @typedef {import('playwright-core').Page} Page */
/** @typedef {(path: string) => Promise<unknown>} Go */
/** @typedef {(page: Page, name: string) => Promise<void>} Audit */

/** @param {Page} page signed in @param {World} world */
export async function journey(page, world) {
  const api = (/** @type {Parameters<World['api']>} */ ...request) => world.api(...request);
  const audit = (/** @type {Page} */ shown, /** @type {string} */ name) => world.audit(shown, name);
  const go = (/** @type {string} */ path) => page.goto(world.url + path);
  await empty(page, go, audit);
  await books(page, go, audit);
  await interrupted(page, go, audit);
  await voices(page, go, audit);
  await recorded(page, world.origin, go, api, audit);
  await pictures(page, go, api, audit);
  await webhooks(page, go, audit);
  await usage(page, go, audit);
  await auditLog(page, go, audit);
  await organisation(page, go, api, audit);
}

/** @param {Page} page @param {Go} go @param {Audit} audit */
async function empty(page, go, audit) {
  for (const [path, title] of [['/books', 'No books yet'], ['/voices', 'No voices yet'], ['/pictures', 'No pictures yet'], ['/webhooks', 'No webhooks yet']]) {
    await go(path);
    await page.getByRole('heading', { name: title }).waitFor();
    await audit(page, `empty ${path}`);
  }
  // Only an operator sees nodes.
  assert.equal(await page.getByRole('link', { name: 'Cluster' }).count(), 0);
}

/** @param {Page} page @param {Go} go @param {Audit} audit */
async function books(page, go, audit) {
  await go('/books');
  const choose = page.getByLabel('Drop documents here');
  await choose.setInputFiles({ name: 'photo.png', mimeType: 'image/png', buffer: PIXEL });
  await page.getByText('photo.png: only text').waitFor();
  await drop(page.locator('.drop'), [{ name: 'manual.md', mimeType: 'text/markdown', buffer: MANUAL }, { name: 'latin.txt', mimeType: 'text/plain', buffer: Buffer.from([99, 97, 102, 233]) }]);
  await page.getByRole('row').filter({ hasText: 'manual.md' }).getByText('Ready').waitFor();
  await page.getByText('The text is not UTF-8').waitFor();
  await audit(page, 'books');
  await page.getByRole('link', { name: 'manual.md' }).click();
  await page.getByLabel('A question, or a few words').fill('battery');
  await page.keyboard.press('Enter');
  await page.getByText('open the lid with a coin').first().waitFor();
  await audit(page, 'book');
}

/** An upload that a reload cuts continues, and sends nothing twice. @param {Page} page @param {Go} go @param {Audit} audit */
async function interrupted(page, go, audit) {
  const buffer = Buffer.alloc(PART_BYTES * 2 + 100, 'the battery is behind the lid \n');
  /** @type {string[]} */
  const sent = [];
  await page.route('**/parts/2', (route) => route.abort());
  page.on('requestfinished', (request) => { if (/\/parts\/\d+$/.test(request.url())) sent.push(request.url().split('/').at(-1) ?? ''); });
  await go('/books');
  await page.getByLabel('Drop documents here').setInputFiles({ name: 'long.txt', mimeType: 'text/plain', buffer });
  await page.getByText('2 of 3 parts').waitFor();
  await page.getByText('Waiting for the server').waitFor();
  await audit(page, 'upload');
  await page.unroute('**/parts/2');
  await page.reload();
  const row = page.getByRole('row').filter({ hasText: 'long.txt' });
  await row.getByText(/Reading|Indexing|Ready/).waitFor();
  assert.deepEqual(sent.toSorted(), ['1', '2', '3']);
  await row.getByRole('link').click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('heading', { name: 'Skills books' }).waitFor();
  await row.waitFor({ state: 'detached' });
}

/** @param {Page} page @param {Go} go @param {Audit} audit */
async function voices(page, go, audit) {
  await go('/voices');
  await page.getByRole('button', { name: 'New voice' }).first().click();
  await page.getByLabel('Drop a sample here').setInputFiles({ name: 'Anna.wav', mimeType: 'audio/wav', buffer: tone(2) });
  assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'Anna');
  const add = page.getByRole('button', { name: 'Add', exact: true });
  assert.equal(await add.isDisabled(), true);
  await page.getByLabel('Who speaks').fill('Anna Example');
  await page.getByLabel('What they agreed to').fill('The toy may speak with my voice.');
  await page.getByLabel('This person has agreed').check();
  await audit(page, 'new voice');
  await add.click();
  await page.getByText('Consent of').waitFor();
  await page.getByText('Ready').last().waitFor();
  await page.getByRole('button', { name: 'Play the sample of Anna' }).click();
  await page.locator('audio[src^="blob:"]').waitFor();
  await audit(page, 'voices');
}

/** A voice that is recorded in the page; its microphone is released, also when the dialog closes early. @param {Page} page @param {string} origin @param {Go} go @param {World['api']} api @param {Audit} audit */
async function recorded(page, origin, go, api, audit) {
  await page.addInitScript(() => {
    window.tracks = [];
    const devices = navigator.mediaDevices;
    const getUserMedia = devices.getUserMedia.bind(devices);
    devices.getUserMedia = async (wanted) => {
      const stream = await getUserMedia(wanted);
      window.tracks.push(...stream.getTracks());
      return stream;
    };
  });
  await go('/voices');
  const released = () => page.waitForFunction(() => window.tracks.length > 0 && window.tracks.every((track) => track.readyState === 'ended') && window.tracks.splice(0));
  const start = page.getByRole('button', { name: 'Record here' });
  const stop = page.getByRole('button', { name: 'Stop' });
  const open = () => page.getByRole('button', { name: 'New voice' }).first().click();
  await open();
  await page.context().grantPermissions([], { origin });
  await start.click();
  await page.getByRole('alert').filter({ hasText: 'allows no microphone' }).waitFor();
  await page.context().grantPermissions(['microphone'], { origin });
  await start.click();
  await stop.waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await released();
  await open();
  await start.click();
  await stop.click();
  await page.getByRole('alert').filter({ hasText: 'one second at least' }).waitFor();
  await released();
  await start.press('Enter');
  await page.getByRole('timer').filter({ hasText: '2 s / 3 min' }).waitFor();
  await audit(page, 'recording');
  await page.keyboard.press('Enter');
  const player = page.getByLabel('Sample', { exact: true });
  await player.waitFor();
  await released();
  await page.waitForFunction(() => document.activeElement?.matches('audio'));
  assert.ok(await player.evaluate((audio) => new Promise((ended) => {
    audio.onended = () => ended(true);
    audio.onerror = () => ended(false);
    audio.play();
  })));
  await page.getByRole('button', { name: 'Discard the recording' }).click();
  await page.waitForFunction(() => document.activeElement?.matches('input[type=file]'));
  await start.click();
  await page.getByRole('timer').filter({ hasText: '2 s / 3 min' }).waitFor();
  await stop.click();
  await page.getByLabel('Name', { exact: true }).fill('Berta');
  await page.getByLabel('Who speaks').fill('Berta Example');
  await page.getByLabel('What they agreed to').fill('The toy may speak with my voice.');
  await page.getByLabel('This person has agreed').check();
  await audit(page, 'recorded voice');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  await page.getByRole('heading', { name: 'Berta' }).waitFor();
  const { voices: all } = await api('GET', '/v1/voices');
  const voice = all.find((/** @type {any} */ each) => each.name === 'Berta');
  assert.ok(voice.duration_ms >= 1_500 && voice.duration_ms < 10_000, `${voice.duration_ms} ms`);
  assert.equal(voice.size_bytes, 44 + voice.duration_ms * 48, 'a WAV file of 24 kHz');
}

/** @param {Page} page @param {Go} go @param {World['api']} api @param {Audit} audit */
async function pictures(page, go, api, audit) {
  await go('/pictures');
  await page.getByLabel('Drop pictures here').setInputFiles([{ name: 'Bello.png', mimeType: 'image/png', buffer: PIXEL }, { name: 'broken.png', mimeType: 'image/png', buffer: Buffer.from('no picture') }]);
  await page.getByRole('alert').filter({ hasText: 'broken.png' }).waitFor();
  await page.getByRole('button', { name: 'Show Bello' }).locator('img[src^="blob:"]').waitFor();
  await audit(page, 'pictures');
  const { pictures: [picture] } = await api('GET', '/v1/pictures');
  const template = await api('POST', '/v1/templates', { name: 'Dog', prompt_name: 'dog', avatar: picture.id }).catch(() => undefined);
  await page.getByRole('button', { name: 'Show Bello' }).click();
  await page.getByRole('img', { name: 'Bello' }).waitFor();
  await audit(page, 'picture');
  if (template) await page.getByRole('dialog').getByRole('link', { name: 'Dog' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
}

/** @param {Page} page @param {Go} go @param {Audit} audit */
async function webhooks(page, go, audit) {
  await go('/webhooks');
  await page.getByRole('button', { name: 'New webhook' }).first().click();
  await page.getByLabel('URL').fill('ftp://nowhere');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('dialog').getByRole('alert').waitFor();
  await page.getByLabel('URL').fill('https://nowhere.invalid/hook');
  await page.getByRole('button', { name: 'Create' }).click();
  const shown = page.locator('dialog .code');
  await shown.waitFor();
  const first = await shown.innerText();
  assert.match(first, /^whsec_/);
  await page.getByRole('button', { name: 'I have stored it' }).click();
  await page.getByRole('button', { name: 'Send a test' }).click();
  await page.getByText('webhook.test').waitFor();
  await page.getByText('The host name is unknown.').waitFor();
  await page.getByRole('button', { name: 'Rotate secret' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Rotate secret' }).click();
  await page.getByText('The former secret also signs').waitFor();
  assert.notEqual(await shown.innerText(), first);
  await page.getByRole('button', { name: 'I have stored it' }).click();
  assert.equal((await page.content()).includes(first), false);
  await audit(page, 'webhook');
}

/** @param {Page} page @param {Go} go @param {Audit} audit */
async function usage(page, go, audit) {
  await go('/usage?range=today');
  await page.getByRole('heading', { name: 'Quotas' }).waitFor();
  await page.getByText('Connected devices').waitFor();
  await audit(page, 'usage');
}

/** @param {Page} page @param {Go} go @param {Audit} audit */
async function auditLog(page, go, audit) {
  await go('/audit');
  const rows = page.locator('tbody tr[data-id]');
  await rows.first().waitFor();
  const times = await rows.locator('time').evaluateAll((all) => all.map((each) => each.getAttribute('datetime') ?? ''));
  assert.deepEqual(times, times.toSorted().reverse());
  await page.getByLabel('All resources').selectOption('webhook');
  await page.waitForFunction(() => [...document.querySelectorAll('tbody tr[data-id]')].every((row) => row.textContent?.includes('Webhook')));
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()]);
  assert.equal(file.suggestedFilename(), 'audit-log.csv');
  await audit(page, 'audit log');
}

/** @param {Page} page @param {Go} go @param {World['api']} api @param {Audit} audit */
async function organisation(page, go, api, audit) {
  await go('/organisation');
  await page.getByLabel('Name', { exact: true }).fill('Toys & more');
  await page.getByLabel('Days that a recording is kept').fill('400');
  await page.getByText('A whole number from 1 to 365.').waitFor();
  await audit(page, 'organisation');
  await page.getByLabel('Days that a recording is kept').fill('7');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved').waitFor();
  const org = await api('GET', '/v1/org');
  assert.equal(org.name, 'Toys & more');
  assert.equal(org.recording_retention_days, 7);
}
