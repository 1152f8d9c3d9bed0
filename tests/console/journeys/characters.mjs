// What a person does with NPCs, templates and memories. Each journey gets a page that is signed in.
import assert from 'node:assert/strict';

/** @typedef {import('./world.mjs').World} World */

const BELLO = {
  name: 'Bello', locale: 'en', tags: ['dog'], voice: { voice_id: 'warm-1', rate: 1.1 }, tools: { deny: ['echo'] },
  persona: { role: 'a watchdog', description: 'Bello guards the house.', greeting: ['Woof! Who is there?'], forbidden_topics: ['cats'] },
};

/** A template and an NPC of it. @param {World} world @param {string} name @param {string[]} [devices] */
export async function makeNpc(world, name, devices = []) {
  const template = await world.api('POST', '/v1/templates', BELLO);
  const npc = await world.api('POST', '/v1/npcs', { template_id: template.id, device_ids: devices, overrides: { name, persona: { role: 'a guide dog' } } });
  return { template, npc };
}

const saved = (page) => page.getByText('Saved', { exact: true }).first().waitFor();

/** @type {Record<string, (page: import('playwright-core').Page, world: World) => Promise<void>>} */
export const CHARACTERS = {
  async 'a character card becomes a template, and an NPC is made from it'(page, world) {
    await page.goto(world.url + '/npcs');
    await page.getByRole('heading', { name: 'Give your devices a character' }).waitFor();
    await world.audit(page, 'npcs empty');
    const card = { spec: 'chara_card_v2', spec_version: '2.0', data: { name: 'Captain Card', description: 'From a card.', personality: 'salty', scenario: '', first_mes: 'Ahoy!', mes_example: '', creator_notes: '', system_prompt: '', post_history_instructions: '', alternate_greetings: [], tags: ['sea'], creator: 'A', character_version: '1', extensions: {} } };
    await page.locator('.card-drop input[type=file]').setInputFiles({ name: 'captain.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(card)) });
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('heading', { name: 'New NPC' }).waitFor();
    await dialog.getByLabel('Name').fill('Salty');
    await dialog.getByLabel('Devices it speaks through').fill('sea-1');
    await dialog.getByLabel('Devices it speaks through').press('Enter');
    await world.audit(page, 'new npc');
    await dialog.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'Salty' }).waitFor();
    assert.equal(await page.getByLabel('Personality').inputValue(), 'salty');
    const [npc] = (await world.api('GET', '/v1/npcs?device_id=sea-1')).npcs;
    assert.equal(npc.effective.persona.greeting[0], 'Ahoy!');
  },

  async 'an override stands beside the value of the template, and goes again'(page, world) {
    await world.device('toy-npc');
    const { template, npc } = await makeNpc(world, 'Rex', ['toy-npc']);
    const read = () => world.api('GET', `/v1/npcs/${npc.id}`);
    await page.goto(world.url + `/npcs/${npc.id}`);
    const role = page.locator('[data-field="persona.role"]');
    await role.getByText('Template: a watchdog').waitFor();
    await page.locator('[data-field="persona.description"]').getByText('From template v1').waitFor();
    await page.getByLabel('Scenario').fill('A house by the sea');
    await page.getByLabel('Add: Tags').fill('brave');
    await page.getByLabel('Add: Tags').press('Enter');
    await role.getByRole('button', { name: 'Use the template’s: Role' }).click();
    await page.getByText('3 unsaved changes').waitFor();
    await world.audit(page, 'npc with changes');
    await page.keyboard.press('Control+s');
    await saved(page);
    assert.deepEqual((await read()).overrides, { name: 'Rex', persona: { scenario: 'A house by the sea' }, tags: ['dog', 'brave'] });

    // The services to tick are those of its device; the template denies one of them.
    const tools = page.locator('#section-tools');
    assert.equal(await tools.getByRole('checkbox', { name: /^echo/ }).isChecked(), false);
    await tools.getByRole('checkbox', { name: /^echo/ }).check();
    await tools.getByRole('checkbox', { name: /^create_file/ }).uncheck();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('unsaved change').waitFor({ state: 'detached' });
    assert.deepEqual((await read()).effective.tools, { allow: null, deny: ['create_file'] });

    // An override whose counterpart the template loses is shown as lapsed, and can be taken away.
    await page.getByLabel('Rate').fill('0.9');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('unsaved change').waitFor({ state: 'detached' });
    await world.change(`/v1/templates/${template.id}`, { voice: null });
    await page.reload();
    await page.getByText('Some overrides have no effect').waitFor();
    await page.locator('[data-field="voice.rate"]').getByText('Lapsed override').waitFor();
    await world.audit(page, 'npc with a lapsed override');
    await page.getByRole('button', { name: 'Take them away' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('unsaved change').waitFor({ state: 'detached' });
    assert.deepEqual((await read()).lapsed, []);

    // What the server refuses is at its field.
    await page.getByRole('textbox', { name: 'Language' }).fill('not a language');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.locator('[data-field="locale"] .wrong').waitFor();
    await page.getByRole('button', { name: 'Discard' }).click();
  },

  async 'two changes of one NPC meet, and neither is lost'(page, world) {
    const { npc } = await makeNpc(world, 'Duke');
    await page.goto(world.url + `/npcs/${npc.id}`);
    await page.getByLabel('Role', { exact: true }).fill('mine');
    await page.getByLabel('Scenario').fill('my scenario');
    await world.change(`/v1/npcs/${npc.id}`, { overrides: { persona: { role: 'theirs', backstory: 'their backstory' } } });
    await page.getByRole('button', { name: 'Save' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('heading', { name: 'It was changed elsewhere' }).waitFor();
    assert.equal(await dialog.getByRole('group').count(), 3);
    await world.audit(page, 'conflict');
    await dialog.getByRole('group', { name: 'Role changed by both' }).getByRole('radio', { name: /Saved now/ }).check();
    await dialog.getByRole('button', { name: 'Save what is chosen' }).click();
    await saved(page);
    const { overrides } = await world.api('GET', `/v1/npcs/${npc.id}`);
    assert.deepEqual(overrides.persona, { role: 'theirs', backstory: 'their backstory', scenario: 'my scenario' });
  },

  async 'an NPC answers, calls a service, and is stopped'(page, world) {
    await world.device('toy-talk');
    const { npc } = await makeNpc(world, 'Talker', ['toy-talk']);
    await page.goto(world.url + '/npcs');
    await page.getByRole('row').filter({ hasText: 'Talker' }).getByRole('link', { name: 'Talk', exact: true }).click();
    const drawer = page.getByRole('dialog', { name: 'Talker' });
    await drawer.getByText('Woof! Who is there?').waitFor();
    await drawer.getByRole('button', { name: 'What time is it?' }).click();
    await drawer.getByText('get_current_time').waitFor();
    await drawer.getByText(/It is \d{4}-/).waitFor();
    await drawer.getByText('get_current_time').click();
    await drawer.getByRole('link', { name: 'Open the service on its device' }).waitFor();
    await world.audit(page, 'talk');
    // Enter that ends a composition does not send; the next one does.
    const box = drawer.getByRole('textbox', { name: 'Message' });
    await box.fill('ni hao');
    await box.evaluate((element) => element.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true, cancelable: true })));
    assert.equal(await box.inputValue(), 'ni hao');
    const before = await drawer.locator('.bubble.mine').count();
    await box.press('Enter');
    await page.waitForFunction((count) => document.querySelectorAll('.bubble.mine').length === count + 1, before);
    await drawer.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
    // An answer that does not come is stopped.
    await page.route('**/chat', () => {});
    await box.fill('slow');
    await box.press('Enter');
    await drawer.getByRole('button', { name: 'Stop' }).click();
    await drawer.getByText('You have stopped the answer.', { exact: false }).waitFor();
    await page.unroute('**/chat');
    await drawer.getByRole('button', { name: 'New conversation' }).click();
    await drawer.getByRole('button', { name: 'What can you do?' }).waitFor();
    await page.keyboard.press('Escape');
    await drawer.waitFor({ state: 'detached' });
    assert.ok(npc.id);
  },

  async 'a template is exported, duplicated, and not deleted while it is used'(page, world) {
    const { template, npc } = await makeNpc(world, 'User of it');
    await page.goto(world.url + `/templates/${template.id}`);
    await page.getByRole('link', { name: 'User of it' }).waitFor();
    await page.getByText('More', { exact: true }).click();
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export as card (JSON)' }).click()]);
    assert.equal(download.suggestedFilename(), 'Bello.json');
    await page.getByText('More', { exact: true }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await dialog.getByRole('alert').waitFor();
    await dialog.getByRole('link', { name: 'User of it' }).waitFor();
    await world.audit(page, 'template in use');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText('More', { exact: true }).click();
    await page.getByRole('button', { name: 'Duplicate' }).click();
    await page.getByRole('heading', { level: 1, name: 'Bello (copy)' }).waitFor();
    await page.getByLabel('Description').fill('Another dog.');
    await page.getByRole('button', { name: 'Save' }).click();
    await saved(page);
    await page.getByText('version 2').waitFor();
    assert.ok(npc.id);
  },

  async 'memories are added one by one and many at once, found, and deleted'(page, world) {
    const { npc } = await makeNpc(world, 'Mnemon');
    await page.goto(world.url + `/memories?of=${npc.id}`);
    await page.getByRole('heading', { name: 'Nothing is remembered yet' }).waitFor();
    await page.getByRole('button', { name: 'Add memories' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Memory' }).fill('Anna is afraid of thunder.');
    await dialog.getByLabel('Subject').fill('user:anna');
    await world.audit(page, 'add a memory');
    await dialog.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('cell', { name: /Anna is afraid/ }).waitFor();
    await page.getByRole('button', { name: 'Add memories' }).click();
    await dialog.getByRole('button', { name: 'Many at once' }).click();
    await dialog.getByRole('textbox', { name: 'Memories' }).fill('[1]');
    await dialog.getByRole('button', { name: 'Add', exact: true }).click();
    await dialog.getByText('Memory 1 has no text.').waitFor();
    await dialog.getByRole('textbox', { name: 'Memories' }).fill('The neighbours return on Sunday.\nThe key is under the stone.');
    await dialog.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByText('3 shown').waitFor();
    await page.getByRole('searchbox', { name: 'Search by words or meaning' }).fill('key');
    await page.getByText('1 shown').waitFor();
    await page.getByRole('columnheader', { name: 'Score' }).waitFor();
    await page.getByRole('button', { name: 'Delete' }).click();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByText('Nothing matches these filters').waitFor();
    assert.equal((await world.api('GET', `/v1/npcs/${npc.id}/memories`)).memories.length, 2);
  },

  async 'a memory is corrected'(page, world) {
    const { npc } = await makeNpc(world, 'Corrector');
    await world.api('POST', `/v1/npcs/${npc.id}/memories`, { text: 'Anna is six.' });
    await page.goto(world.url + `/memories?of=${npc.id}`);
    await page.getByRole('button', { name: 'Edit', exact: true }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Memory' }).fill('Anna is seven.');
    await world.audit(page, 'edit a memory');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('cell', { name: /Anna is seven/ }).waitFor();
  },
};
