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
    const other = await world.signedIn();
    await other.locator('.connection.live').waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('.connection.paused').waitFor();
    await world.device('latecomer');
    const online = { name: 'latecomer: Online' };
    await other.getByRole('link', online).waitFor();
    assert.equal(await page.getByRole('link', online).count(), 0);
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('link', online).waitFor();
    await page.locator('.connection.live').waitFor();
    await other.context().close();
  },

  async 'what happens while the stream is broken is shown, and after a gap as well'(page, world) {
    await page.goto(`${world.url}/devices`);
    await page.locator('.connection.live').waitFor();
    // The server is away: pause and resume end the stream and ask for another one.
    await page.route('**/v1/events', (route) => route.abort());
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.locator('.connection.reconnecting').waitFor();
    const broken = await world.device('unseen-1');
    await page.locator('tr[data-id="unseen-1"]').getByText('Online').waitFor();
    // A position that the server no longer has: it sends a gap, and everything is read again.
    await page.unroute('**/v1/events');
    /** @type {Promise<unknown> | undefined} */
    let reading;
    await page.route('**/v1/events', (route) => {
      reading = page.waitForRequest((request) => request.url().includes('/v1/devices?'), { timeout: 3_000 });
      return route.continue({ headers: { ...route.request().headers(), 'last-event-id': '1-1' } });
    });
    await page.locator('.connection.live').waitFor();
    await reading;
    await page.unroute('**/v1/events');
    // While the stream is live, the list is polled once a minute: the events show these.
    await world.device('unseen-2');
    await page.locator('tr[data-id="unseen-2"]').getByText('Online').waitFor();
    broken.kill('SIGTERM');
    await page.locator('tr[data-id="unseen-1"]').getByText('Offline').waitFor();
  },

  async 'the page of a device has its events'(page, world) {
    await page.goto(`${world.url}/devices/toy-1/events`);
    await page.locator('.connection.live').waitFor();
    const events = page.locator('section.card').filter({ has: page.getByRole('heading', { name: 'Last events' }) });
    for (const device of ['newcomer', 'toy-1']) await world.api('POST', `/v1/devices/${device}/calls`, { service: 'echo', params: { text: 'hi' } });
    await events.getByText('echo').waitFor();
    assert.equal(await events.getByRole('link', { name: 'newcomer' }).count(), 0);
    await world.audit(page, 'events of a device');
  },

  async 'the log has every call, with its params if the organisation wants that'(page, world) {
    const rows = page.locator('tbody tr[data-id]');
    /** Calls echo, and returns once its row is there. @param {string} text */
    const call = async (text) => {
      await page.waitForFunction(() => document.querySelector('main tbody, main .empty') && !document.querySelector('main [aria-busy]'));
      const before = await rows.count();
      await world.api('POST', '/v1/devices/toy-1/calls', { service: 'echo', params: { text } });
      await page.waitForFunction((count) => document.querySelectorAll('tbody tr[data-id]').length > count, before);
    };
    await page.goto(`${world.url}/devices/toy-1/journal`);
    await call('unseen');
    await rows.first().getByRole('button', { name: 'echo' }).click();
    const details = page.getByRole('dialog');
    await details.getByText('Params and results are not stored').waitFor();
    assert.equal(await details.getByText('unseen').count(), 0);
    await page.keyboard.press('Escape');
    await page.goto(`${world.url}/organisation`);
    await page.getByLabel('Store params and results of calls').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Saved', { exact: true }).waitFor();
    await page.goto(`${world.url}/calls/recent?device=toy-1&service=echo`);
    await call('seen');
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
