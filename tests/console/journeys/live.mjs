// What a person sees as it happens: presence, events, and the log of calls.
import assert from 'node:assert/strict';
import { join } from 'node:path';

/** @type {Record<string, (page: import('playwright-core').Page, world: import('./characters.mjs').World) => Promise<void>>} */
export const LIVE = {
  async 'what happens elsewhere is shown at once'(page, world) {
    await page.goto(`${world.url}/`);
    await page.locator('.connection.live').waitFor();
    await world.device('newcomer');
    const events = page.locator('section.card').filter({ has: page.getByRole('heading', { name: 'Last events' }) });
    await events.getByRole('link', { name: 'newcomer' }).first().waitFor();
    await page.getByRole('link', { name: 'newcomer: Online' }).waitFor();
    await world.api('POST', '/v1/devices/newcomer/calls', { service: 'echo', params: { text: 'hi' } });
    await events.getByText('echo').waitFor();
    await world.audit(page, 'overview with events');
    await page.screenshot({ path: join(world.pictures, 'events.png') });
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('.connection.paused').waitFor();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.locator('.connection.live').waitFor();
  },

  async 'the log has every call, with its params if the organisation wants that'(page, world) {
    await page.goto(`${world.url}/devices/toy-1/journal`);
    await world.api('POST', '/v1/devices/toy-1/calls', { service: 'echo', params: { text: 'unseen' } });
    await page.getByRole('button', { name: 'echo' }).first().click();
    const details = page.getByRole('dialog');
    await details.getByText('Params and results are not stored').waitFor();
    assert.equal(await details.getByText('unseen').count(), 0);
    await page.keyboard.press('Escape');
    await page.goto(`${world.url}/organisation`);
    await page.getByLabel('Store params and results of calls').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved', { exact: true }).waitFor();
    await page.goto(`${world.url}/calls/recent?device=toy-1&service=echo`);
    const rows = page.locator('tbody tr[data-id]');
    await rows.first().waitFor();
    const before = await rows.count();
    await world.api('POST', '/v1/devices/toy-1/calls', { service: 'echo', params: { text: 'seen' } });
    await page.waitForFunction((count) => document.querySelectorAll('tbody tr[data-id]').length > count, before);
    await rows.first().getByRole('button', { name: 'echo' }).click();
    await details.getByText('"seen"').first().waitFor();
    await world.audit(page, 'entry');
    await page.screenshot({ path: join(world.pictures, 'entry.png') });
    await details.getByRole('link', { name: 'Edit and call again' }).click();
    await page.getByLabel('text', { exact: true }).waitFor();
    assert.equal(await page.getByLabel('text', { exact: true }).inputValue(), 'seen');
    assert.equal(new URL(page.url()).search, '?service=echo');
    await world.change('/v1/org', { journal_params: false });
  },
};
