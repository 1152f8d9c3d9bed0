// A browser that notices what the console must not do: errors, foreign requests, breaches of its policy.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--use-fake-device-for-media-stream'];
const EXECUTABLES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];

export class Browser {
  /** @param {string} packages the folder node_modules */
  constructor(packages) {
    const require = createRequire(join(resolve(packages), 'package.json'));
    this.chromium = require('playwright-core').chromium;
    this.axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
    /** What went wrong, in words. @type {string[]} */
    this.faults = [];
    this.failures = 0;
  }

  async start() {
    const { existsSync } = await import('node:fs');
    const executablePath = process.env.SWITCHBOARD_CHROMIUM ?? EXECUTABLES.find((path) => existsSync(path));
    if (!executablePath) throw new Error('chromium is not installed; get it with `apt-get install chromium`, or set SWITCHBOARD_CHROMIUM');
    this.browser = await this.chromium.launch({ executablePath, headless: true, args: FLAGS });
    return this;
  }

  /** A page of its own session. @param {string} origin @param {{theme?: 'light' | 'dark', language?: 'en' | 'zh', width?: number, height?: number}} [options] */
  async page(origin, { theme = 'light', language = 'en', width = 1440, height = 900 } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: theme, locale: language === 'zh' ? 'zh-CN' : 'en-US', reducedMotion: 'reduce' });
    context.setDefaultTimeout(20_000);
    const page = await context.newPage();
    const fault = (/** @type {string} */ text) => this.faults.push(`${page.url()}: ${text}`);
    page.on('pageerror', (error) => fault(`error: ${error.stack}`));
    page.on('dialog', (dialog) => {
      fault(`a dialog of the browser: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.origin !== origin && url.protocol !== 'blob:') fault(`a foreign request: ${url}`);
    });
    await page.exposeFunction('reportViolation', (/** @type {string} */ text) => fault(`policy: ${text}`));
    await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`)));
    return page;
  }

  /** Another page with the cookies of a page, in which nothing is a fault. A second tab of the same window does not always open. @param {import('playwright-core').Page} page */
  async beside(page) {
    const context = await this.browser.newContext({ storageState: await page.context().storageState() });
    context.setDefaultTimeout(20_000);
    return context.newPage();
  }

  /** Fails if something happened that must not. */
  assertClean() {
    assert.deepEqual(this.faults.splice(0), []);
  }

  /**
   * Rules of accessibility, and reflow. The driver's own script is exempt from the page's policy.
   * @param {import('playwright-core').Page} page @param {string} name @param {{bothThemes?: boolean}} [options]
   */
  async audit(page, name, { bothThemes = false } = {}) {
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflow <= 0, `${name}: ${overflow} px wider than the window`);
    if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(this.axe);
    await this.#judge(page, name, RULES);
    if (!bothThemes) return;
    // The other theme has other colours, and nothing else.
    await page.emulateMedia({ colorScheme: 'dark' });
    await this.#judge(page, `${name}, dark`, { type: 'rule', values: COLOUR_RULES });
    await page.emulateMedia({ colorScheme: 'light' });
  }

  /** @param {import('playwright-core').Page} page @param {string} name @param {object | string[]} rules */
  async #judge(page, name, rules) {
    // Colours are those after a change: what follows from the last act is drawn. Nothing has a transition where motion is reduced.
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    const { violations } = await page.evaluate((runOnly) => window.axe.run(document, { runOnly, resultTypes: ['violations'] }), rules);
    const found = violations.map((each) => `${each.id}: ${each.nodes.slice(0, 4).map((node) => `${node.target} ${node.failureSummary?.replace(/\s+/g, ' ')}`).join(' | ')}`);
    assert.deepEqual(found, [], name);
  }

  /** Closes what a journey has left open; each page leaves a picture in the folder. @param {string} folder */
  async abandon(folder) {
    for (const context of this.browser?.contexts() ?? []) {
      for (const page of context.pages()) await page.screenshot({ path: join(folder, `failed-${this.failures++}.png`) }).catch(() => {});
      await context.close().catch(() => {});
    }
  }

  async stop() {
    await this.browser?.close();
  }
}
