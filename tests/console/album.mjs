// The pictures of docs/console.md: each screen in both themes, as WebP.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const DOCUMENT = fileURLToPath(new URL('../../docs/console.md', import.meta.url));
const FOLDER = fileURLToPath(new URL('../../docs/pictures', import.meta.url));
const MAX_BYTES = 1_500_000;
const THEMES = /** @type {const} */ (['light', 'dark']);

/** The committed pictures. Other documents have files of other kinds beside them. */
const committed = () => readdirSync(FOLDER).filter((name) => name.endsWith('.webp'));

export class Album {
  constructor() {
    /** By the name of the file. @type {Map<string, Buffer>} */
    this.pictures = new Map();
  }

  /** Takes a screen as it is, in both themes. @param {import('playwright-core').Page} page @param {string} name */
  async take(page, name) {
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"], .bone, .toast, .typing'));
    await page.mouse.move(0, 0);
    await page.evaluate(() => scrollTo(0, 0));
    const session = await page.context().newCDPSession(page);
    for (const theme of THEMES) {
      await page.emulateMedia({ colorScheme: theme });
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
      await page.waitForFunction(() => !document.getAnimations().some((each) => each instanceof CSSTransition));
      const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 88 });
      this.pictures.set(`${name}-${theme}.webp`, Buffer.from(data, 'base64'));
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await session.detach();
  }

  /** The pictures that the document shows are those that exist, and those that are taken. */
  check() {
    const named = [...new Set(readFileSync(DOCUMENT, 'utf8').match(/(?<=pictures\/)[\w-]+\.webp/g))].toSorted();
    assert.deepEqual([...this.pictures.keys()].toSorted(), named, 'docs/console.md shows what is taken');
    assert.deepEqual(committed().toSorted(), named, 'docs/pictures has what docs/console.md shows');
    const size = named.reduce((sum, name) => sum + readFileSync(join(FOLDER, name)).length, 0);
    assert.ok(size < MAX_BYTES, `the pictures have ${size} bytes, ${MAX_BYTES} at most`);
  }

  /** Replaces the committed pictures. */
  write() {
    for (const name of committed()) rmSync(join(FOLDER, name));
    for (const [name, bytes] of this.pictures) writeFileSync(join(FOLDER, name), bytes);
  }
}
