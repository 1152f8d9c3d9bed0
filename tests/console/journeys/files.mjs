// Files that a person drops on the page.
import { crc32 } from 'node:zlib';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {{name: string, mimeType: string, buffer: Buffer}} Given */

/** Drops files as a file manager does. @param {import('playwright-core').Locator} place @param {Given[]} files */
export async function drop(place, files) {
  const list = files.map(({ name, mimeType, buffer }) => ({ name, type: mimeType, base64: buffer.toString('base64') }));
  const dataTransfer = await place.page().evaluateHandle((given) => {
    const transfer = new DataTransfer();
    for (const { name, type, base64 } of given) transfer.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], name, { type }));
    return transfer;
  }, list);
  await place.dispatchEvent('dragover', { dataTransfer });
  await place.dispatchEvent('drop', { dataTransfer });
}

/** A portrait: a face on a ground of a colour. @param {Page} page @param {number} hue @returns {Promise<Buffer>} */
export async function portrait(page, hue) {
  const base64 = await page.evaluate(async (hue) => {
    const size = 256;
    const canvas = new OffscreenCanvas(size, size);
    const pen = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d'));
    const ground = pen.createLinearGradient(0, 0, size, size);
    ground.addColorStop(0, `hsl(${hue} 70% 78%)`);
    ground.addColorStop(1, `hsl(${hue + 40} 60% 52%)`);
    pen.fillStyle = ground;
    pen.fillRect(0, 0, size, size);
    const round = (x, y, wide, high, colour) => {
      pen.fillStyle = colour;
      pen.beginPath();
      pen.ellipse(x, y, wide, high, 0, 0, Math.PI * 2);
      pen.fill();
    };
    const fur = `hsl(${hue + 180} 28% 34%)`;
    round(66, 112, 30, 58, fur);
    round(190, 112, 30, 58, fur);
    round(128, 138, 76, 78, `hsl(${hue + 180} 34% 88%)`);
    round(128, 178, 42, 34, '#fff');
    for (const x of [98, 158]) {
      round(x, 124, 11, 13, '#1d2425');
      round(x + 4, 119, 4, 4, '#fff');
    }
    round(128, 162, 15, 11, '#1d2425');
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer());
    return btoa(String.fromCharCode(...bytes));
  }, hue);
  return Buffer.from(base64, 'base64');
}

/** A character card: a PNG with the character in a chunk of text. @param {Buffer} png @param {object} data */
export function card(png, data) {
  const character = { spec: 'chara_card_v2', spec_version: '2.0', data: { description: '', personality: '', scenario: '', first_mes: '', mes_example: '', creator_notes: '', system_prompt: '', post_history_instructions: '', alternate_greetings: [], tags: [], creator: '', character_version: '1', extensions: {}, ...data } };
  const body = Buffer.from(`tEXtchara\0${Buffer.from(JSON.stringify(character)).toString('base64')}`, 'latin1');
  const chunk = Buffer.alloc(body.length + 8);
  chunk.writeUInt32BE(body.length - 4, 0);
  body.copy(chunk, 4);
  chunk.writeUInt32BE(crc32(body), body.length + 4);
  const end = png.length - 12;
  return Buffer.concat([png.subarray(0, end), chunk, png.subarray(end)]);
}
