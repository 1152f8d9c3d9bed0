// What a person does on the page of a device beyond calls: its token as a picture, its NPC, its MCP endpoint; and leaving a form.
import assert from 'node:assert/strict';
import { join } from 'node:path';

/** @type {Record<string, (page: import('playwright-core').Page, world: import('./characters.mjs').World) => Promise<void>>} */
export const DEVICES = {
  async 'a page with changes is not left unasked'(page, world) {
    await page.goto(`${world.url}/devices`);
    await page.getByRole('link', { name: 'Organisation' }).click();
    const name = page.getByLabel('Name', { exact: true });
    await name.fill('Something else');
    await page.getByRole('link', { name: 'Usage' }).click();
    const asked = page.getByRole('dialog', { name: 'Leave without saving?' });
    await asked.waitFor();
    await world.audit(page, 'leave');
    await page.screenshot({ path: join(world.pictures, 'leave.png') });
    await asked.getByRole('button', { name: 'Stay here' }).click();
    assert.equal(await name.inputValue(), 'Something else');
    await page.goBack();
    await asked.waitFor();
    await page.keyboard.press('Escape');
    assert.match(page.url(), /\/organisation$/);
    assert.equal(await name.inputValue(), 'Something else');
    await page.goBack();
    await asked.getByRole('button', { name: 'Leave' }).click();
    await page.getByRole('heading', { level: 1, name: 'Devices' }).waitFor();
    assert.match(page.url(), /\/devices$/);
    await page.goForward();
    await name.waitFor();
    assert.notEqual(await name.inputValue(), 'Something else');
  },

  async 'what was typed survives a change that was made elsewhere'(page, world) {
    const before = await world.api('GET', '/v1/org');
    await page.goto(`${world.url}/organisation`);
    await page.getByLabel('Name', { exact: true }).fill('Typed here');
    await world.change('/v1/org', { journal_params: true });
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('What you have changed is kept.').waitFor();
    assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'Typed here');
    assert.equal(await page.getByLabel('Store params and results of calls').isChecked(), true);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved', { exact: true }).waitFor();
    const { name, journal_params: stored } = await world.api('GET', '/v1/org');
    assert.deepEqual([name, stored], ['Typed here', true]);
    await world.change('/v1/org', { name: before.name, journal_params: false });
  },

  async 'a token is shown once, as text and as a picture that is the text'(page, world) {
    await page.goto(`${world.url}/devices/toy-1`);
    await page.getByRole('button', { name: 'New token' }).click();
    await page.getByRole('button', { name: 'Issue' }).click();
    const code = page.getByRole('img', { name: 'QR code with the token of toy-1' });
    await code.waitFor();
    await world.audit(page, 'token');
    await page.screenshot({ path: join(world.pictures, 'token.png') });
    const size = Number((await code.getAttribute('viewBox')).split(' ')[2]);
    assert.ok(size > 60 && (size - 8 - 17) % 4 === 0, `${size} modules`);
    await page.getByRole('button', { name: 'I have stored it' }).click();
    assert.equal(await code.count(), 0);
  },

  async 'a device is linked with an NPC, and unlinked'(page, world) {
    const npc = await world.api('POST', '/v1/npcs', { overrides: { name: 'Pilot' } });
    await page.goto(`${world.url}/devices/toy-1/npc`);
    await page.getByText('No NPC speaks through this device').waitFor();
    await page.getByLabel('NPC of this device').selectOption('Pilot');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('This NPC is linked with the device.').waitFor();
    await world.audit(page, 'device npc');
    await page.screenshot({ path: join(world.pictures, 'device-npc.png') });
    assert.deepEqual((await world.api('GET', `/v1/npcs/${npc.id}`)).device_ids, ['toy-1']);
    const other = await world.api('POST', '/v1/npcs', { overrides: { name: 'Navigator' } });
    await page.reload();
    await page.getByText('This NPC is linked with the device.').waitFor();
    await page.getByLabel('NPC of this device').selectOption('Navigator');
    await page.route(`**/v1/npcs/${other.id}`, (route) => (route.request().method() === 'PATCH' ? route.fulfill({ status: 409, contentType: 'application/problem+json', body: JSON.stringify({ type: '/problems/device_taken', title: 'Device taken', status: 409, detail: 'Another NPC has it.' }) }) : route.continue()));
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Another NPC has it.').waitFor();
    assert.deepEqual((await world.api('GET', `/v1/npcs/${npc.id}`)).device_ids, ['toy-1']);
    await page.unroute(`**/v1/npcs/${other.id}`);
    await page.getByLabel('NPC of this device').selectOption('');
    await page.getByLabel('Default NPC').selectOption('Pilot');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('The default NPC answers, because the device has none of its own.').waitFor();
    await page.getByLabel('Default NPC').selectOption('');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('No NPC speaks through this device').waitFor();
  },

  async 'the list of devices leads to a call, and has the MCP configuration of each'(page, world) {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: world.origin });
    await page.goto(`${world.url}/devices`);
    await page.getByRole('button', { name: 'Copy the MCP configuration of toy-1' }).click();
    await page.getByText('Copied').waitFor();
    const { mcpServers } = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    assert.equal(mcpServers.switchboard.url, `${world.origin}/mcp/devices/toy-1`);
    await page.getByRole('link', { name: 'Call a service of toy-1' }).click();
    await page.getByRole('button', { name: 'Call', exact: true }).waitFor();
  },

  async 'the list of devices names the NPC of each, and is narrowed to those of one'(page, world) {
    const npc = await world.api('POST', '/v1/npcs', { overrides: { name: 'Captain of a very long name that no narrow screen has room for' }, device_ids: ['toy-1', 'never-seen'] });
    await page.goto(`${world.url}/devices`);
    const link = page.getByRole('row').filter({ hasText: 'toy-1' }).getByRole('link', { name: /^Captain/ });
    await link.waitFor();
    const option = await page.getByRole('option', { name: /^Captain.*\(never-seen \+1\)$/ }).getAttribute('value');
    assert.equal(option, npc.id);
    await page.screenshot({ path: join(world.pictures, 'device-npcs.png') });
    await page.getByLabel('NPC', { exact: true }).selectOption(option);
    await page.waitForFunction(() => [...document.querySelectorAll('tr[data-id]')].map((row) => row.dataset.id).join() === 'toy-1');
    assert.match(page.url(), new RegExp(`npc=${npc.id}`));
    await page.setViewportSize({ width: 320, height: 800 });
    await world.audit(page, 'devices of an NPC, narrow');
    await page.screenshot({ path: join(world.pictures, 'device-npcs-narrow.png') });
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.getByRole('button', { name: 'Offline' }).click();
    await page.getByRole('button', { name: 'Clear filters' }).click();
    await page.locator('tr[data-id="hostile"]').waitFor();
    await link.click();
    await page.getByRole('heading', { level: 1, name: /^Captain/ }).waitFor();
    await world.change(`/v1/npcs/${npc.id}`, { device_ids: [] });
  },

  async 'the overview shows the 95th percentile once there are enough calls'(page, world) {
    const { items: before } = await world.api('GET', '/v1/calls/recent?limit=20');
    const stat = (/** @type {RegExp} */ name) => page.locator('.stats > div').filter({ has: page.getByText(name) }).getByRole('link');
    await page.goto(`${world.url}/`);
    if (before.length < 20) assert.equal(await stat(/^p95, from 20 calls$/).innerText(), '–');
    for (let call = 0; call < 20; call += 1) await world.api('POST', '/v1/devices/toy-1/calls', { service: 'get_current_time', params: {} });
    const shown = stat(/^p95, last \d+ calls$/);
    await shown.waitFor();
    await page.screenshot({ path: join(world.pictures, 'p95.png') });
    assert.match(await shown.innerText(), /^[\d.,]+ (ms|s|min)$/);
    await shown.click();
    await page.waitForURL(/\/calls\/recent$/);
  },

  async 'the MCP endpoint of a device is configured on its page'(page, world) {
    await page.goto(`${world.url}/devices/toy-1/mcp`);
    await page.getByText('/mcp/devices/toy-1').first().waitFor();
    await page.getByRole('button', { name: 'Make a key for Claude Code' }).click();
    await page.getByText('The key is in the configuration').waitFor();
    await page.getByRole('button', { name: 'Test', exact: true }).click();
    await page.getByText('It works: 3 tools').waitFor();
    await world.audit(page, 'device mcp');
    await page.screenshot({ path: join(world.pictures, 'device-mcp.png') });
  },
};
