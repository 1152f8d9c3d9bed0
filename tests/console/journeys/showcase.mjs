// A house and a greenhouse full of devices, for the pictures of the documentation.
import { drop, portrait } from './files.mjs';

/** @typedef {import('./world.mjs').World} World */
/** @typedef {import('playwright-core').Page} Page */

const says = (result) => ['printf', '%s', JSON.stringify(result)];
const object = (properties, required = []) => ({ type: 'object', properties, required });
const LIGHT = object({
  brightness: { type: 'integer', minimum: 0, maximum: 100, description: 'Percent' },
  colour: { type: 'string', enum: ['warm', 'daylight', 'candle', 'sunset'], description: 'Tone of the light' },
  fade_s: { type: 'number', minimum: 0, maximum: 60, default: 1, description: 'Seconds until it is reached' },
}, ['brightness']);

/** Devices and their services, each with what its command answers. */
const DEVICES = {
  'kitchen-lamp': {
    set_light: { description: 'Sets brightness and tone of the lamp above the table', parameters: LIGHT, timeout_ms: 2_000, command: says({ brightness: 65, colour: 'sunset', power_w: 7.8 }) },
    get_state: { description: 'What the lamp does now', parameters: object({}), command: says({ on: true, brightness: 65 }) },
    blink: { description: 'Blinks a few times, to be found', parameters: object({ times: { type: 'integer', minimum: 1, maximum: 10 } }), command: says({ done: true }) },
    schedule: { description: 'Turns the lamp on or off at a time', parameters: object({ at: { type: 'string', format: 'date-time' }, on: { type: 'boolean' } }, ['at', 'on']), command: says({ scheduled: true }) },
  },
  'greenhouse-north': {
    read_climate: { description: 'Temperature, humidity and light', parameters: object({}), command: says({ temperature_c: 23.4, humidity: 0.61, light_lx: 18_200 }) },
    water: { description: 'Waters one bed', parameters: object({ bed: { type: 'integer', minimum: 1, maximum: 8 }, litres: { type: 'number', maximum: 20 } }, ['bed', 'litres']), command: says({ watered_l: 4 }) },
  },
  'greenhouse-south': { read_climate: { description: 'Temperature, humidity and light', parameters: object({}), command: says({ temperature_c: 25.1, humidity: 0.55, light_lx: 21_900 }) } },
  'front-door': { lock: { description: 'Locks the door', parameters: object({}), command: says({ locked: true }) }, last_ring: { description: 'When somebody rang', parameters: object({}), command: says({ minutes_ago: 12 }) } },
  'robot-arm-2': { move_to: { description: 'Moves the gripper to a place', parameters: object({ x: { type: 'number' }, y: { type: 'number' }, z: { type: 'number' } }, ['x', 'y', 'z']), command: ['false'] } },
  'living-room-speaker': { play: { description: 'Plays a sound', parameters: object({ sound: { type: 'string' } }, ['sound']), command: says({ playing: 'rain' }) } },
};

/** Calls in the background: device, service, params. */
const CALLS = [
  ['greenhouse-north', 'read_climate', {}], ['greenhouse-south', 'read_climate', {}], ['front-door', 'lock', {}], ['robot-arm-2', 'move_to', { x: 120, y: 40, z: 8 }],
  ['living-room-speaker', 'play', { sound: 'rain' }], ['greenhouse-north', 'water', { bed: 40, litres: 2 }], ['kitchen-lamp', 'blink', { times: 3 }], ['greenhouse-north', 'water', { bed: 3, litres: 4 }],
];

const BOOKS = {
  'Care of tomatoes.md': '# Tomatoes\n\n## Water\n\nTomatoes want four litres a day each in summer, early in the morning, at the root and never on the leaves.\n\n## Warmth\n\nAbove 32 degrees the blossoms fall. Open the roof, and shade the south side.\n',
  'House rules.md': '# House rules\n\nThe front door is locked at ten in the evening. Whoever comes later rings twice.\n',
  'Lamp manual.md': '# Lamp\n\nHold the button for five seconds to forget the network. The lamp blinks twice.\n',
};

/** Fills the system, and takes its screens. @param {Page} page signed in @param {World} world @param {import('../album.mjs').Album} album */
export async function showcase(page, world, album) {
  await world.api('PATCH', '/v1/org', { name: 'Willow Lane' }).catch(() => world.change('/v1/org', { name: 'Willow Lane' }));
  const processes = [];
  for (const [id, services] of Object.entries(DEVICES)) processes.push([id, await world.device(id, services)]);
  for (const [device, service, params] of CALLS) await world.api('POST', `/v1/devices/${device}/calls`, { service, mode: 'async', params });
  await world.api('POST', '/v1/devices/garden-gate/calls', { service: 'open', mode: 'queued', params: {} });
  for (let round = 0; round < 12; round += 1) await world.api('POST', '/v1/devices/greenhouse-north/calls', { service: 'read_climate', params: {} });
  for (const [id, process] of processes) if (id === 'living-room-speaker') process.kill('SIGTERM');
  const show = async (/** @type {string} */ path, /** @type {string | import('playwright-core').Locator} */ sign) => {
    await page.goto(world.url + path);
    await (typeof sign === 'string' ? page.getByText(sign).first() : sign).waitFor();
  };
  await show('/books', 'No books yet');
  await drop(page.locator('.drop'), Object.entries(BOOKS).map(([name, text]) => ({ name, mimeType: 'text/markdown', buffer: Buffer.from(text) })));
  await page.getByText('Ready').nth(2).waitFor();
  const books = (await world.api('GET', '/v1/skills-books')).skills_books;
  await npcs(page, world);
  await show('/', 'devices are online');
  await album.take(page, 'overview');
  await show('/devices', page.locator('tr[data-id="living-room-speaker"]').getByText('Offline'));
  await album.take(page, 'devices');
  await show('/devices/kitchen-lamp?service=set_light', 'Sets brightness');
  await page.getByLabel('brightness').fill('65');
  await page.getByLabel('colour').selectOption('sunset');
  await page.getByRole('button', { name: 'Call', exact: true }).click();
  await page.getByText('Succeeded').first().waitFor();
  await album.take(page, 'device');
  await show('/calls', page.getByRole('link', { name: 'move_to' }));
  await album.take(page, 'calls');
  await show('/npcs', page.getByRole('link', { name: 'Flora' }).first());
  await album.take(page, 'npcs');
  await page.getByRole('link', { name: 'Flora' }).first().click();
  await page.getByLabel('Role', { exact: true }).waitFor();
  await album.take(page, 'npc');
  await show(`/books/${books.find((each) => each.name.startsWith('Care'))?.id ?? ''}`, 'Try a question');
  await page.getByLabel('A question, or a few words').fill('How much water do tomatoes need?');
  await page.keyboard.press('Enter');
  await page.getByText('four litres a day').first().waitFor();
  await album.take(page, 'book');
}

/** Characters with portraits. @param {Page} page @param {World} world */
async function npcs(page, world) {
  const characters = [
    { name: 'Flora', hue: 90, role: 'a gardener', description: 'Looks after both greenhouses.', personality: 'Patient, precise, fond of tomatoes.', devices: ['greenhouse-north', 'greenhouse-south'] },
    { name: 'Otto', hue: 30, role: 'a butler', description: 'Keeps the door and the lamps.', personality: 'Polite, brief, never surprised.', devices: ['front-door', 'kitchen-lamp'] },
  ];
  for (const { name, hue, devices, ...persona } of characters) {
    const avatar = await upload(page, await portrait(page, hue), name);
    const template = await world.api('POST', '/v1/templates', { name, locale: 'en', tags: ['home'], avatar, persona: { ...persona, greeting: [`Good day, ${name} speaking.`] } });
    await world.api('POST', '/v1/npcs', { template_id: template.id, device_ids: devices, overrides: { persona: { dialogue_style: 'Short sentences' } } });
  }
}

/** @param {Page} page @param {Buffer} png @param {string} name */
async function upload(page, png, name) {
  return page.evaluate(async ([base64, name]) => {
    const body = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const response = await fetch(`/v1/pictures?name=${name}`, { method: 'POST', headers: { 'Content-Type': 'image/png', 'X-Switchboard-Console': '1' }, body });
    return (await response.json()).id;
  }, [png.toString('base64'), name]);
}
