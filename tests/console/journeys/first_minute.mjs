// The first minute of a new user: from the printed link to an agent that uses a device. Each step is a picture.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { card, drop, portrait } from './files.mjs';

/** @typedef {import('./world.mjs').World} World */
/** @typedef {import('playwright-core').Page} Page */

export const DEVICE = 'rabbit-1';

/** @param {World} world whose system is new @param {import('../album.mjs').Album} album @param {string} clients the folder of MCP clients */
export async function firstMinute(world, album, clients) {
  const page = await world.browser.page(world.origin, { width: 1280, height: 800 });
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: world.origin });
  await page.goto(world.system.ready.console_url);
  await page.getByRole('heading', { name: 'No device has dialled in yet' }).waitFor();
  await album.take(page, 'start');
  await connect(page, world, album);
  await connectByToken(page, world);
  await call(page);
  await talk(page, album);
  await agent(page, world, album, clients);
  return page;
}

/** What the copy button beside a text puts on the clipboard. @param {Page} page @param {import('playwright-core').Locator} code */
async function copied(page, code) {
  await page.evaluate(() => navigator.clipboard.writeText(''));
  await code.getByRole('button', { name: 'Copy' }).click();
  await page.waitForFunction(async () => (await navigator.clipboard.readText()) !== '');
  return page.evaluate(() => navigator.clipboard.readText());
}

/** Runs the snippet as it stands, where `switchboard` is found. @param {Page} page @param {World} world @param {import('../album.mjs').Album} album */
async function connect(page, { system }, album) {
  await page.getByRole('link', { name: 'Connect a device' }).first().click();
  await page.getByLabel('Id of the device').fill(DEVICE);
  await page.getByText(`Waiting for ${DEVICE}`).waitFor();
  const snippet = await copied(page, page.locator('.code').first());
  assert.equal(snippet, `switchboard device --id ${DEVICE}`);
  await system.shell(snippet);
  await page.getByText(`${DEVICE} has dialled in with 3 services`).waitFor();
  await album.take(page, 'connect');
}

/** The snippet with a token is for another computer: it has the address and the credential. @param {Page} page @param {World} world */
async function connectByToken(page, { system }) {
  const id = 'rabbit-2';
  await page.getByLabel('Id of the device').fill(id);
  await page.getByText(`Waiting for ${id}`).waitFor();
  await page.getByRole('button', { name: 'Issue a token' }).click();
  await page.locator('.code').first().filter({ hasText: '--token' }).waitFor();
  const snippet = await copied(page, page.locator('.code').first());
  assert.match(snippet, /--addr 127\.0\.0\.1:\d+/);
  await system.shell(snippet);
  await page.getByText(`${id} has dialled in with 3 services`).waitFor();
  // The pictures show one device.
  await system.forget(id);
  await page.getByLabel('Id of the device').fill(DEVICE);
  await page.getByText(`${DEVICE} has dialled in with 3 services`).waitFor();
}

/** @param {Page} page */
async function call(page) {
  await page.getByRole('button', { name: 'Next' }).click();
  await page.getByLabel('Service').selectOption('create_file');
  await page.getByLabel('filename').fill('hello.txt');
  await page.getByLabel('content').fill('from the console');
  await page.getByRole('button', { name: 'Call', exact: true }).click();
  await page.getByText('Succeeded').waitFor();
}

/** A card becomes a character, which speaks through the device. @param {Page} page @param {import('../album.mjs').Album} album */
async function talk(page, album) {
  await page.getByRole('link', { name: 'NPCs' }).click();
  await page.getByRole('heading', { name: 'Give your devices a character' }).waitFor();
  const character = { name: 'Bello', description: 'A watchdog who knows the house.', personality: 'Loyal, brave, and a little clumsy.', scenario: 'Bello lives in the hall and greets everyone.', first_mes: 'Woof! Who is there?', tags: ['dog', 'home'] };
  await drop(page.locator('.card-drop'), [{ name: 'bello.png', mimeType: 'image/png', buffer: card(await portrait(page, 170), character) }]);
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Devices it speaks through').fill(DEVICE);
  await dialog.getByLabel('Devices it speaks through').press('Enter');
  await dialog.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { level: 1, name: 'Bello' }).waitFor();
  await page.getByRole('link', { name: 'Talk' }).or(page.getByRole('button', { name: 'Talk' })).first().click();
  const drawer = page.getByRole('dialog', { name: 'Bello' });
  await drawer.getByText('Woof! Who is there?').waitFor();
  for (const [question, answer] of [['What can you do?', /\w/], ['What time is it?', /It is \d{4}-/]]) {
    await drawer.getByRole('textbox', { name: 'Message' }).fill(question);
    await page.keyboard.press('Enter');
    await drawer.locator('.turn').filter({ hasText: question }).locator('.bubble:not(.mine)').filter({ hasText: answer }).first().waitFor();
    await drawer.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
  }
  await album.take(page, 'talk');
  await page.keyboard.press('Escape');
}

/** The configuration goes into the file of a client as it was copied. @param {Page} page @param {World} world @param {import('../album.mjs').Album} album @param {string} clients */
async function agent(page, { system }, album, clients) {
  await page.getByRole('link', { name: 'Connect an agent' }).click();
  await page.getByRole('button', { name: 'One device' }).click();
  await page.getByLabel('One device').or(page.getByLabel('Device', { exact: true })).last().selectOption(DEVICE);
  await page.getByRole('button', { name: 'Cursor' }).click();
  await page.getByLabel('API key', { exact: true }).fill(system.ready.api_key);
  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await page.getByText('It works: 3 tools').waitFor();
  await album.take(page, 'agent');
  await page.getByRole('button', { name: 'Make a key for Cursor' }).click();
  await page.getByText('The key is in the configuration').waitFor();
  const wanted = ['get_current_time', 'create_file', 'echo'].toSorted();
  const code = page.locator('.code').first();
  await page.getByRole('button', { name: 'Test', exact: true }).click();
  await page.getByText('It works: 3 tools').waitFor();
  assert.match(await copied(page, code), new RegExp(`"url": "${system.ready.http_url}/mcp/devices/${DEVICE}"`));
  await page.getByRole('button', { name: 'stdio' }).click();
  assert.deepEqual(await inspect(system, clients, await copied(page, code)), wanted);
  await page.getByRole('button', { name: 'TypeScript' }).click();
  assert.deepEqual((await program(system, clients, await copied(page, code))).toSorted(), wanted);
  await page.getByRole('button', { name: 'curl' }).click();
  assert.match(await system.output(await copied(page, code)), /get_current_time/);
}

/** The tools that the Inspector of the MCP project finds with a configuration. @param {World['system']} system @param {string} clients @param {string} configuration */
async function inspect(system, clients, configuration) {
  const file = join(system.folder, 'mcp.json');
  writeFileSync(file, configuration);
  const inspector = join(clients, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');
  const list = ['--cli', '--config', file, '--server', 'switchboard', '--method', 'tools/list'];
  const { stdout } = await promisify(execFile)(process.execPath, [inspector, ...list], { env: system.environment(), timeout: 60_000 });
  return JSON.parse(stdout).tools.map((tool) => tool.name).toSorted();
}

/** What the TypeScript of the page prints, run as JavaScript. @param {World['system']} system @param {string} clients @param {string} text */
async function program(system, clients, text) {
  const folder = join(system.folder, 'agent');
  mkdirSync(folder, { recursive: true });
  symlinkSync(join(clients, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'agent.mts'), `${text}\nawait client.close();\n`);
  const { stdout } = await promisify(execFile)(process.execPath, ['--experimental-strip-types', join(folder, 'agent.mts')], { timeout: 60_000 });
  return [...stdout.matchAll(/name: '(\w+)'/g)].map(([, name]) => name);
}
