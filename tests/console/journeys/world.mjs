// What journeys share: the system, the browser, and people who sign in.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export class World {
  /** @param {import('../system.mjs').System} system @param {import('../browser.mjs').Browser} browser @param {string} pictures a folder @param {boolean} wantsPictures */
  constructor(system, browser, pictures, wantsPictures) {
    Object.assign(this, { system, browser, pictures, wantsPictures });
    this.origin = system.ready.http_url;
    this.url = `${this.origin}/console`;
  }

  /** @param {string} method @param {string} path @param {unknown} [body] @param {string} [key] @returns {Promise<any>} */
  api(method, path, body, key) {
    return this.system.api(method, path, body, key);
  }

  /** The key of the operator of `up`. */
  get operatorKey() {
    return JSON.parse(readFileSync(join(this.system.folder, 'up.json'), 'utf8')).operator_key;
  }

  /** @param {string} path @param {unknown} patch */
  change(path, patch) {
    return this.system.change(path, patch);
  }

  /** Connects a device with the demo services, or others. @param {string} id @param {object} [services] */
  device(id, services) {
    return this.system.device(id, services);
  }

  /** Rules of accessibility, and reflow. @param {import('playwright-core').Page} page @param {string} name @param {{bothThemes?: boolean}} [options] */
  audit(page, name, options) {
    return this.browser.audit(page, name, options);
  }

  /** Keeps a picture to look at, if pictures are wanted. @param {import('playwright-core').Page} page @param {string} name */
  async shoot(page, name) {
    if (this.wantsPictures) await page.screenshot({ path: join(this.pictures, `${name.replaceAll(/[^\w-]+/g, '-')}.png`) });
  }

  /** Fills in the form, wherever it stands. @param {import('playwright-core').Page} page @param {string} [key] */
  async signIn(page, key = this.system.ready.api_key) {
    await page.getByLabel('API key', { exact: true }).or(page.getByLabel('API 密钥', { exact: true })).fill(key);
    await page.locator('[data-sign-in] button[type=submit]').click();
  }

  /** A page of a person of their own. @param {Parameters<import('../browser.mjs').Browser['page']>[1] & {key?: string}} [options] */
  async signedIn({ key, ...options } = {}) {
    const page = await this.browser.page(this.origin, options);
    await page.goto(this.url + '/');
    await this.signIn(page, key);
    await page.locator('nav.nav').waitFor({ state: 'attached' });
    return page;
  }
}
