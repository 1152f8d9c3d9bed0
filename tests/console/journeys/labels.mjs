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
    for (const label of ['room:kitchen', 'pilot']) {
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
    await page.getByRole('link', { name: 'room:kitchen' }).click();
    await page.locator('tr[data-id="toy-1"]').waitFor();
    assert.equal(await page.locator('tr[data-id]').count(), 1);
    assert.match(page.url(), /label=room/);
    await page.getByRole('button', { name: 'Remove: room:kitchen' }).click();
    await page.locator('tr[data-id="hostile"], tr[data-id="robot-7"]').first().waitFor();
    await world.api('PATCH', '/v1/devices/toy-1', { labels: [], note: null });
  },
};
