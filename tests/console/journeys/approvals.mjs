// What a person does before models may use the services of a device: reads, approves, and reads again what changed.
import assert from 'node:assert/strict';
import { join } from 'node:path';

/** @type {Record<string, (page: import('playwright-core').Page, world: import('./characters.mjs').World) => Promise<void>>} */
export const APPROVALS = {
  async 'models use what a person has approved'(page, world) {
    await page.goto(`${world.url}/organisation`);
    await page.getByLabel('Models use only services that a person has approved').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved', { exact: true }).waitFor();
    await page.goto(`${world.url}/devices/toy-1/approvals`);
    const echo = page.getByRole('region', { name: 'echo' });
    await echo.getByText('Not approved').waitFor();
    await world.audit(page, 'approvals');
    await page.screenshot({ path: join(world.pictures, 'approvals.png') });
    await echo.getByRole('button', { name: 'Approve' }).click();
    await echo.getByText('Approved', { exact: true }).waitFor();
    const { items } = await world.api('GET', '/v1/devices/toy-1/approvals');
    assert.deepEqual(items.filter(({ state }) => state === 'approved').map(({ service }) => service), ['echo']);
    await page.goto(`${world.url}/devices/toy-1?service=echo`);
    await page.locator('.service').getByRole('link', { name: 'Approved' }).click();
    await echo.getByRole('button', { name: 'Revoke' }).click();
    await echo.getByText('Not approved').waitFor();
    await world.change('/v1/org', { model_approval: 'off' });
  },
};
