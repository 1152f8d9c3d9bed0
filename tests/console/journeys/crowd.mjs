// Ten thousand devices: the list is there at once, and a change touches its row alone.
import assert from 'node:assert/strict';

const DEVICES = 10_000;
const SERVER_TIME_MS = 1_000;
const STRANGER = 'crowd-00007';

/** @typedef {import('./world.mjs').World} World */
/** @typedef {import('playwright-core').Page} Page */

/** @type {Record<string, (page: Page, world: World) => Promise<void>>} */
export const CROWD = {
  async 'ten thousand devices are listed at once, and filtered'(page, world) {
    await fill(world);
    await page.goto(world.url + '/devices');
    await page.locator('tr[data-id]').nth(49).waitFor();
    const times = await page.evaluate(() => performance.getEntriesByType('resource').filter((each) => each.name.includes('/v1/')).map((each) => [each.name, each.responseEnd - each.requestStart]));
    assert.ok(times.some(([name]) => name.includes('/v1/devices')), 'the list was read');
    const sum = times.reduce((all, [, time]) => all + time, 0);
    assert.ok(sum < SERVER_TIME_MS, `the server took ${sum} ms: ${JSON.stringify(times)}`);
    await page.getByLabel('Id begins with').fill('crowd-0999');
    await page.waitForFunction(() => document.querySelectorAll('tr[data-id]').length === 10);
    assert.match(page.url(), /prefix=crowd-0999/);
    await page.getByLabel('Id begins with').fill('');
    await page.getByRole('button', { name: 'Offline' }).click();
    await page.locator('tr[data-id]').nth(49).waitFor();
    const npc = await world.api('POST', '/v1/npcs', { overrides: { name: 'Shepherd' }, device_ids: [1, 17, 250, 4_000, 4_001, 9_999].map((number) => `crowd-${String(number).padStart(5, '0')}`) });
    const requests = [];
    page.on('request', (request) => requests.push(request.url()));
    await page.goto(`${world.url}/devices?npc=${npc.id}`);
    await page.waitForFunction(() => document.querySelectorAll('tr[data-id]').length === 6);
    assert.equal(await page.locator('tbody').getByRole('link', { name: 'Shepherd' }).count(), 6);
    const read = requests.filter((url) => url.includes('/v1/devices?')).length;
    assert.ok(read <= 12, `${read} requests`);
    await page.goto(world.url + '/');
    await page.getByText(/of 10,\d{3} devices are online/).waitFor();
    await world.audit(page, 'overview of a crowd');
  },

  async 'a device that dials in changes its row and no other'(page, world) {
    await page.goto(world.url + '/devices?prefix=crowd-');
    for (const rows of [50, 100, 150, 200, 250]) {
      await page.waitForFunction((count) => document.querySelectorAll('tr[data-id]').length === count, rows);
      if (rows < 250) await page.getByRole('button', { name: 'Show more' }).click();
    }
    const far = page.locator('tr[data-id="crowd-00250"] a').first();
    await far.scrollIntoViewIfNeeded();
    await far.focus();
    const scrolled = await page.evaluate(() => scrollY);
    await page.evaluate(() => {
      window.rows = [...document.querySelectorAll('tr[data-id]')];
      /** Rows that changed, but for their times, which pass. @type {Set<string | undefined>} */
      window.touched = new Set();
      new MutationObserver((records) => {
        for (const { target } of records) {
          const element = target instanceof Element ? target : target.parentElement;
          if (!element?.closest('time')) window.touched.add(element?.closest('tr')?.dataset.id);
        }
      }).observe(document.querySelector('tbody'), { subtree: true, childList: true, characterData: true, attributes: true });
    });
    await world.device(STRANGER);
    await page.locator(`tr[data-id="${STRANGER}"]`).getByText('Online').waitFor();
    const after = await page.evaluate(() => ({ touched: [...window.touched], kept: window.rows.every((row, index) => row === document.querySelectorAll('tr[data-id]')[index]), focus: document.activeElement?.closest('tr')?.dataset.id, scrolled: scrollY }));
    assert.deepEqual(after, { touched: [STRANGER], kept: true, focus: 'crowd-00250', scrolled });
    await page.getByRole('button', { name: 'Online', exact: true }).click();
    await page.waitForFunction(() => document.querySelectorAll('tr[data-id]').length === 1);
  },
};

/** Devices that connected once, as the store knows them: each offers what toy-1 offers. @param {World} world */
async function fill({ system }) {
  await system.device('toy-1');
  const ids = `SELECT org_id, 'crowd-' || to_char(n, 'FM00000') AS id FROM orgs_of_toy, generate_series(1, ${DEVICES}) AS n`;
  const known = "WITH orgs_of_toy AS (SELECT org_id, digest FROM service_registrations WHERE device_id = 'toy-1')";
  await system.sql(`${known} INSERT INTO devices (org_id, device_id, epoch, first_seen, last_seen, left_reason)
    SELECT org_id, id, 1, now() - interval '9 days', now() - interval '2 hours', 'closed' FROM (${ids}) AS crowd`);
  await system.sql(`${known} INSERT INTO service_registrations (org_id, device_id, digest, epoch, registered_at)
    SELECT crowd.org_id, id, digest, 1, now() - interval '9 days' FROM (${ids}) AS crowd, orgs_of_toy`);
}
