// The settings of a character without a browser: patches, conflicts, and the events of an answer.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { byField, changed, flatten, hasLapsed, merge, patchOf, same, threeWay, unflatten } from '../../console/character/fields.js';
import { apply, begin } from '../../console/character/talk.js';
import { parseMany } from '../../console/screens/memory_dialogs.js';

/** RFC 7396. */
function mergePatch(target, patch) {
  if (patch === null || typeof patch !== 'object' || Array.isArray(patch)) return patch;
  const result = target && typeof target === 'object' && !Array.isArray(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name];
    else result[name] = mergePatch(result[name], value);
  }
  return result;
}

test('a patch turns one document into the other, and only what differs is in it', () => {
  const before = { name: 'Bello', tags: ['dog'], persona: { role: 'a dog', greeting: ['Woof'], card: { data: { creator: 'A' } } }, model: { provider: 'p', model: 'm' } };
  const flat = flatten(before);
  const after = { ...flat, 'persona.role': undefined, 'persona.scenario': 'A house', tags: [] };
  const patch = patchOf(flat, after);
  assert.deepEqual(patch, { persona: { role: null, scenario: 'A house' }, tags: [] });
  const result = mergePatch(before, patch);
  assert.deepEqual(flatten(result), after);
  assert.deepEqual(result.persona.card, before.persona.card);
  assert.deepEqual(patchOf(flat, { ...flat }), {});
  assert.deepEqual(patchOf(flat, { ...flat, 'model.provider': undefined, 'model.model': undefined }), { model: null });
});

test('equality is that of JSON', () => {
  assert.ok(same({ a: [1, { b: null }] }, { a: [1, { b: null }] }));
  assert.ok(!same({ a: 1 }, { b: 1 }));
  assert.ok(!same([], {}));
  assert.ok(!same(['a', 'b'], ['b', 'a']));
  assert.deepEqual(changed({ a: 1, b: [] }, { a: 1, b: [], c: undefined }), []);
});

test('two changes meet: what only one side changed is kept, what both changed is asked', () => {
  const base = { name: 'Rex', 'persona.role': 'a dog', tags: ['a'], locale: 'en' };
  const mine = { ...base, name: 'Max', 'persona.role': 'a guide dog', locale: 'de' };
  const theirs = { ...base, name: 'Tom', tags: ['a', 'b'], locale: 'de' };
  const found = threeWay(base, mine, theirs);
  assert.deepEqual(Object.fromEntries(found.map((each) => [each.path, each.by])), { name: 'both', 'persona.role': 'mine', tags: 'theirs' });
  assert.deepEqual(merge(mine, theirs, found, {}), { name: 'Max', 'persona.role': 'a guide dog', tags: ['a', 'b'], locale: 'de' });
  assert.deepEqual(merge(mine, theirs, found, { name: 'theirs', 'persona.role': 'theirs' }), theirs);
  assert.deepEqual(unflatten({ 'persona.role': 'x', name: undefined }), { persona: { role: 'x' } });
});

test('problems and lapsed overrides find their field', () => {
  const found = byField([{ pointer: '/overrides/persona/greeting/0', detail: 'too long' }, { pointer: '/overrides/voice', detail: 'needs a voice' }, { pointer: '', detail: 'whole' }], 'overrides');
  assert.deepEqual(found, { 'persona.greeting': 'too long', 'voice.voice_id': 'needs a voice' });
  assert.ok(hasLapsed(['/overrides/voice'], 'voice.rate'));
  assert.ok(!hasLapsed(['/overrides/voice'], 'name'));
  assert.ok(hasLapsed(['/overrides/voice/rate'], 'voice.rate'));
});

test('the events of an answer become its parts', () => {
  let turn = begin('What time is it?');
  for (const event of [
    { type: 'text', data: { text: 'Let me ' } }, { type: 'text', data: { text: 'look. ' } },
    { type: 'call', data: { device_id: 'toy-1', tool: 'clock', params: {}, result: '{"data":"noon","success":true}' } },
    { type: 'text', data: { text: 'It is noon.' } }, { type: 'later', data: {} },
  ]) turn = apply(turn, event);
  assert.equal(turn.state, 'answering');
  assert.deepEqual(turn.parts.map((part) => (part.kind === 'text' ? part.text : `${part.tool} ${part.outcome}`)), ['Let me look. ', 'clock succeeded', 'It is noon.']);
  assert.equal(apply(turn, { type: 'error', data: { type: '/problems/no_answer' } }).state, 'failed');
  assert.deepEqual(apply(turn, { type: 'end', data: { sources: [{ kind: 'memory', id: 'mem_1' }] } }).sources, [{ kind: 'memory', id: 'mem_1' }]);
  assert.equal(apply(turn, { type: 'call', data: { tool: 'a', result: '{"outcome":"offline"}' } }).parts.at(-1).outcome, 'offline');
});

test('many memories are lines, or JSON', () => {
  assert.deepEqual(parseMany(' one \n\n two\n', { kind: 'fact' }), [{ text: 'one', kind: 'fact' }, { text: 'two', kind: 'fact' }]);
  assert.deepEqual(parseMany('[{"text":"a","importance":1},"b"]', { kind: 'fact' }), [{ kind: 'fact', text: 'a', importance: 1 }, { kind: 'fact', text: 'b' }]);
  assert.deepEqual(parseMany('{"memories":[{"text":"a"}]}', {}), [{ text: 'a' }]);
  assert.throws(() => parseMany('[1]', {}), /text/);
  assert.throws(() => parseMany('[{]', {}));
});
