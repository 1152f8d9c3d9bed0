// What ends a session, and what cannot use one.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { join } from 'node:path';

/** @typedef {import('./world.mjs').World} World */
/** @typedef {import('playwright-core').Page} Page */

/** @type {Record<string, (page: Page, world: World) => Promise<void>>} */
export const SESSIONS = {
  async 'a session ends with its key, and nothing typed is lost'(_, world) {
    const key = await world.api('POST', '/v1/api-keys', { name: 'leaver', scopes: ['admin', 'call', 'read'] });
    const page = await world.signedIn({ key: key.api_key });
    await page.goto(world.url + '/devices/toy-1?service=echo');
    await page.getByLabel('text', { exact: true }).fill('still here');
    await world.api('DELETE', `/v1/api-keys/${key.api_key_id}`);
    await page.getByRole('dialog').getByText('Your session has ended').waitFor();
    await world.audit(page, 'sign-in over the page');
    // Neither Escape nor the revoked key leads around it.
    await page.keyboard.press('Escape');
    await world.signIn(page, key.api_key);
    await page.getByText('This key was refused').waitFor();
    await world.signIn(page);
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal(await page.getByLabel('text', { exact: true }).inputValue(), 'still here');
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await page.getByText('Succeeded').waitFor();
    await page.context().close();
  },

  async 'a session renewed by another organisation begins again, and repeats nothing'(page, world) {
    const other = await world.api('POST', '/v1/orgs', { name: 'Neighbours' }, world.operatorKey);
    await page.goto(`${world.url}/organisation`);
    await page.getByLabel('Name', { exact: true }).fill('Taken over');
    await page.context().clearCookies();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').getByText('Your session has ended').waitFor();
    await world.signIn(page, other.api_key);
    await page.getByRole('heading', { name: 'No device has dialled in yet' }).waitFor();
    assert.equal(new URL(page.url()).pathname, '/console/');
    await page.getByText('Neighbours').first().waitFor();
    assert.equal((await world.api('GET', '/v1/org', undefined, other.api_key)).name, 'Neighbours');
    assert.notEqual((await world.api('GET', '/v1/org')).name, 'Taken over');
  },

  async 'a key of some devices shows what it reaches'(_, world) {
    const key = await world.api('POST', '/v1/api-keys', { name: 'narrow', scopes: ['call', 'read'], device_prefix: 'toy-', services: ['echo'] });
    const page = await world.signedIn({ key: key.api_key });
    await page.goto(`${world.url}/devices`);
    await page.getByText('Only devices whose id begins with toy- are listed').waitFor();
    await page.locator('tr[data-id="toy-1"]').waitFor();
    await world.audit(page, 'devices of a narrow key', { bothThemes: true });
    await page.screenshot({ path: join(world.pictures, 'reach.png') });
    await page.locator('.account > summary').click();
    await page.getByText('Reaches devices whose id begins with toy-').waitFor();
    await page.getByText('Reaches the services echo').waitFor();
    await world.audit(page, 'account of a narrow key');
    await page.goto(`${world.url}/group`);
    await page.getByText('Only devices whose id begins with toy- are listed').waitFor();
    await page.context().close();
    await world.api('DELETE', `/v1/api-keys/${key.api_key_id}`);
  },

  async 'pages of other origins can do nothing with a session'(page, world) {
    const before = await world.api('GET', '/v1/api-keys');
    const picture = await uploadPicture(page);
    const server = createServer((_, response) => response.setHeader('Content-Type', 'text/html').end('<!doctype html><title>Trap</title>')).listen(0);
    await once(server, 'listening');
    // The first is of the same site, so that the browser sends the cookie; the second is of another one.
    for (const host of ['127.0.0.1', 'localhost']) {
      const trap = await world.browser.beside(page);
      /** @type {import('playwright-core').Request[]} */
      const sent = [];
      trap.on('request', (request) => { if (request.url().startsWith(world.origin)) sent.push(request); });
      await trap.goto(`http://${host}:${server.address().port}/`);
      const outcomes = await trap.evaluate(attack, { target: world.origin, picture });
      assert.deepEqual(Object.entries(outcomes).filter(([, outcome]) => outcome !== 'refused' && outcome !== 'opaque'), [], host);
      const [frame] = trap.frames().slice(1);
      await frame.waitForURL('chrome-error://chromewebdata/', { waitUntil: 'commit' });
      assert.deepEqual(trap.frames().slice(1).map((frame) => frame.url()), ['chrome-error://chromewebdata/'], host);
      const [answer] = await Promise.all([trap.waitForResponse((response) => response.url().endsWith('/v1/api-keys')), trap.evaluate(submit, world.origin)]);
      assert.ok([401, 403].includes(answer.status()), `the form was answered with ${answer.status()}`);
      const headers = await Promise.all(sent.map((request) => request.allHeaders()));
      assert.equal(headers.some((each) => 'cookie' in each), host === '127.0.0.1', `${host}: cookies`);
      await trap.context().close();
    }
    server.close();
    const names = ({ api_keys: keys }) => keys.map((key) => [key.api_key_id, key.name, key.revoked_at ?? null]);
    assert.deepEqual(names(await world.api('GET', '/v1/api-keys')), names(before));
    assert.equal((await world.api('GET', '/v1/pictures')).pictures.some((each) => each.id === picture), true);
    // The same requests work where they belong.
    const made = await page.evaluate(async () => (await fetch('/v1/api-keys', { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Switchboard-Console': '1' }, body: '{"name":"own","scopes":["read"]}' })).status);
    assert.equal(made, 201);
  },
};

/** A picture of this session; returns its id. @param {Page} page */
async function uploadPicture(page) {
  return page.evaluate(async () => {
    const canvas = new OffscreenCanvas(2, 2);
    canvas.getContext('2d')?.fillRect(0, 0, 2, 2);
    const body = await canvas.convertToBlob({ type: 'image/png' });
    const response = await fetch('/v1/pictures?name=trap', { method: 'POST', headers: { 'Content-Type': 'image/png', 'X-Switchboard-Console': '1' }, body });
    return (await response.json()).id;
  });
}

/** Runs in the other page: whatever a page may try without a click. @param {{target: string, picture: string}} aim */
async function attack({ target, picture }) {
  const attempt = (path, options) => fetch(target + path, { credentials: 'include', ...options }).then((response) => (response.type === 'opaque' ? 'opaque' : `read: ${response.status}`), () => 'refused');
  const body = '{"name":"stolen","scopes":["admin"]}';
  const image = new Image();
  const shown = new Promise((settle) => {
    image.onload = () => settle(`shown: ${image.naturalWidth}`);
    image.onerror = () => settle('refused');
  });
  image.src = `${target}/v1/pictures/${picture}/content`;
  document.body.append(Object.assign(document.createElement('iframe'), { src: `${target}/console/` }));
  return {
    plain: await attempt('/v1/api-keys', { method: 'POST', mode: 'no-cors', headers: { 'Content-Type': 'text/plain' }, body }),
    read: await attempt('/v1/api-keys', {}),
    follow: await attempt('/v1/session', { mode: 'no-cors' }),
    json: await attempt('/v1/api-keys', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body }),
    header: await attempt('/v1/api-keys', { method: 'POST', headers: { 'Content-Type': 'application/json', 'X-Switchboard-Console': '1' }, body }),
    remove: await attempt(`/v1/pictures/${picture}`, { method: 'DELETE' }),
    image: await shown,
  };
}

/** Runs in the other page: a form that sends itself. @param {string} target */
function submit(target) {
  const form = document.createElement('form');
  form.method = 'post';
  form.enctype = 'text/plain';
  form.action = `${target}/v1/api-keys`;
  const field = document.createElement('input');
  field.name = '{"name":"stolen","scopes":["admin"],"x":"';
  field.value = '"}';
  form.append(field);
  document.body.append(form);
  form.submit();
}
