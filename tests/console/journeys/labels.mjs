// What a person does with labels: gives them, finds devices by them, and calls all that have one.
import assert from 'node:assert/strict';
import { join } from 'node:path';

/** @type {Record<string, (page: import('playwright-core').Page, world: import('./characters.mjs').World) => Promise<void>>} */
export const LABELS = {
  async 'a device gets labels and a note, and is found by them'(page, world) {
    await page.goto(`${world.url}/devices/toy-1`);
    await page.getByText('More', { exact: true }).click();
    await page.getByRole('button', { name: 'Labels and note' }).click();
    const dialog = page.getByRole('dialog');
    const labels = dialog.getByLabel('Labels');
    for (const label of ['room:attic', 'pilot']) {
      await labels.fill(label);
      await labels.press('Enter');
    }
    await labels.fill('no spaces');
    await labels.press('Enter');
    await dialog.getByText('no spaces has other characters').waitFor();
    assert.equal(await dialog.getByRole('button', { name: 'Save' }).isDisabled(), true);
    await dialog.getByRole('button', { name: 'Remove: no spaces' }).click();
    await dialog.getByLabel('Note').fill('Has a loose wheel.');
    await world.audit(page, 'labels');
    await page.screenshot({ path: join(world.pictures, 'labels.png') });
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Has a loose wheel.').waitFor();
    await page.getByRole('link', { name: 'room:attic' }).click();
    await page.locator('tr[data-id="toy-1"]').waitFor();
    assert.equal(await page.locator('tr[data-id]').count(), 1);
    assert.match(page.url(), /label=room/);
    await page.getByRole('button', { name: 'Remove: room:attic' }).click();
    await page.locator('tr[data-id="hostile"], tr[data-id="robot-7"]').first().waitFor();
    await world.api('PATCH', '/v1/devices/toy-1', { labels: [], note: null });
  },

  async 'all devices with a label are called at once, each with its own outcome'(page, world) {
    await world.device('fleet-1');
    await world.device('fleet-2');
    for (const id of ['fleet-1', 'fleet-2']) await world.api('PATCH', `/v1/devices/${id}`, { labels: ['fleet'] });
    await page.goto(`${world.url}/devices?label=fleet`);
    await page.getByRole('link', { name: 'Group call' }).click();
    await page.getByText('2 devices, 2 online').waitFor();
    await page.getByLabel('Service', { exact: true }).selectOption('echo');
    await page.getByLabel('text', { exact: true }).fill('all together');
    await page.getByRole('button', { name: 'Call 2 devices' }).click();
    await page.getByText('2 of 2 have ended').waitFor();
    assert.equal(await page.locator('tbody tr').filter({ hasText: 'Succeeded' }).count(), 2);
    await page.locator('tr[data-id="fleet-1"]').getByText('Result', { exact: true }).click();
    await page.locator('tr[data-id="fleet-1"]').getByText('all together').first().waitFor();
    await world.audit(page, 'group call');
    await page.screenshot({ path: join(world.pictures, 'group.png') });
  },

  async 'the form of a group call stays while devices come and go'(page, world) {
    const beep = { description: 'Beeps', parameters: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] }, command: ['sh', '-c', 'sleep 2; printf done'] };
    const ping = { description: 'Pings', parameters: { type: 'object', properties: {} }, command: ['true'] };
    const label = (/** @type {string} */ id, /** @type {string[]} */ labels) => world.api('PATCH', `/v1/devices/${id}`, { labels });
    await world.device('herd-2', { beep, ping });
    await label('herd-2', ['herd']);
    await page.goto(`${world.url}/group?label=herd`);
    const service = page.getByLabel('Service', { exact: true });
    const text = page.getByLabel('text', { exact: true });
    await text.fill('still here');
    await world.device('herd-1', { ping });
    await label('herd-1', ['herd']);
    await page.getByText('2 devices, 2 online').waitFor();
    assert.deepEqual([await service.inputValue(), await text.inputValue()], ['beep', 'still here']);

    await page.getByRole('button', { name: 'Call 2 devices' }).click();
    await page.getByRole('button', { name: 'Stop' }).waitFor();
    await label('herd-1', []);
    await page.getByText('1 device, 1 online').waitFor();
    await page.getByRole('link', { name: 'Usage' }).click();
    await page.getByRole('dialog', { name: 'Leave without saving?' }).getByRole('button', { name: 'Stay here' }).click();
    await page.locator('tr[data-id="herd-2"]').getByText('Succeeded').waitFor();

    await label('herd-1', ['herd']);
    await label('herd-2', []);
    await page.getByText('None of these devices offers this service now.').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Call 1 device' }).isDisabled(), true);
    assert.deepEqual([await service.inputValue(), await text.inputValue()], ['beep', 'still here']);
    await world.audit(page, 'a service that is gone');
  },
};
