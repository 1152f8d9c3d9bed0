// What a person does before models may use the services of a device: reads, approves, and reads again what changed.
import assert from 'node:assert/strict';
import { once } from 'node:events';
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

  async 'what has changed since its approval is shown, and approved for all devices'(page, world) {
    const service = (description) => ({ wave: { description, parameters: { type: 'object', properties: {} }, command: ['true'] } });
    const describe = async (process, description) => {
      const gone = process && once(process, 'exit');
      process?.kill('SIGTERM');
      await gone;
      return world.device('changer', service(description));
    };
    await world.change('/v1/org', { model_approval: 'required' });
    let process = await describe(undefined, 'Waves once');
    await page.goto(`${world.url}/devices/changer/approvals`);
    const wave = page.getByRole('region', { name: 'wave' });
    await wave.getByRole('button', { name: 'Approve', exact: true }).click();
    await wave.getByText('Approved', { exact: true }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'H2');

    // The definition that a person reads stays, and is the only one that they could approve.
    process = await describe(process, 'Waves twice');
    await wave.getByText('Changed while you read it').waitFor();
    await wave.getByText('Waves once', { exact: true }).waitFor();
    assert.equal(await wave.getByRole('button', { name: 'Approve', exact: true }).isDisabled(), true);
    await world.audit(page, 'approval of an outdated definition');
    await wave.getByRole('button', { name: 'Show the new one' }).click();
    await wave.getByText('Changed since').waitFor();
    const description = wave.getByRole('group', { name: 'Description' });
    await description.locator('del').filter({ hasText: 'Waves once' }).waitFor();
    await description.locator('ins').filter({ hasText: 'Waves twice' }).waitFor();
    await world.audit(page, 'changed service');
    await page.screenshot({ path: join(world.pictures, 'changed.png') });
    await wave.getByRole('button', { name: 'For all devices' }).click();
    await wave.getByText('Approved for all devices with this definition by').waitFor();
    await world.device('changer-2', service('Waves twice'));
    const states = async () => Object.fromEntries(await Promise.all(['changer', 'changer-2'].map(async (id) => [id, (await world.api('GET', `/v1/devices/${id}/approvals`)).items[0].state])));
    assert.deepEqual(await states(), { changer: 'approved', 'changer-2': 'approved' });

    await wave.getByRole('button', { name: 'Revoke' }).click();
    const asked = page.getByRole('dialog');
    await asked.getByText('The approval is for all devices with this definition.').waitFor();
    await world.audit(page, 'revocation for all devices');
    await asked.getByRole('button', { name: 'Revoke' }).click();
    await asked.waitFor({ state: 'detached' });
    await wave.getByText('Approved', { exact: true }).waitFor({ state: 'detached' });
    assert.equal((await states())['changer-2'], 'unapproved');
    process.kill('SIGTERM');
    await world.change('/v1/org', { model_approval: 'off' });
  },
};
