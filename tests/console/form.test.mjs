// The form rules: what a schema becomes, what a draft becomes, and both ways.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { blank, read, write } from '../../console/form/draft.js';
import { around, lines, ordered } from '../../console/form/difference.js';
import { plan } from '../../console/form/schema.js';

/** The value of an untouched form with some members typed. */
const value = (schema, typed = {}) => {
  const node = plan(schema);
  const draft = blank(node, true);
  return read(node, { ...draft, members: { ...draft.members, ...typed } }, true);
};
const object = (properties, required = []) => ({ type: 'object', properties, required });
/** Through JSON, as it is sent: members with odd names count. */
const sent = (reading) => JSON.parse(JSON.stringify(reading.value));

test('optional members that were left alone are absent', () => {
  const schema = object({ text: { type: 'string' }, n: { type: 'integer', default: 3 }, list: { type: 'array', items: {} }, flag: { type: 'boolean' }, group: object({ a: { type: 'string' } }, ['a']) });
  assert.deepEqual(value(schema), { value: {}, faults: [] });
  assert.deepEqual(sent(value(schema, { text: { text: '' } })), {});
});

test('required members are asked for, each at its pointer', () => {
  const schema = object({ 'a/b': { type: 'integer' }, kind: { const: 'x' }, nested: object({ c: { type: 'boolean' } }, ['c']) }, ['a/b', 'kind', 'nested']);
  assert.deepEqual(value(schema).faults.map((fault) => fault.pointer), ['/a~1b', '/nested/c']);
  assert.equal(sent(value(schema)).kind, 'x');
});

test('numbers are text until they are numbers', () => {
  const cases = [
    ['7', 'integer', 7], ['-7', 'integer', -7], ['1e3', 'integer', 1000], ['7.5', 'integer', 'form.integer'], ['seven', 'integer', 'form.integer'],
    ['9007199254740993', 'integer', 'form.precision'], ['0.25', 'number', 0.25], ['0x10', 'number', 'form.number'], ['Infinity', 'number', 'form.number'], ['1e999', 'number', 'form.number'],
  ];
  for (const [text, type, expected] of cases) {
    const reading = value(object({ n: { type } }), { n: { text } });
    if (typeof expected === 'number') assert.deepEqual(sent(reading), { n: expected }, text);
    else assert.deepEqual(reading.faults.map((fault) => fault.key), [expected], text);
  }
});

test('bounds name what would be right', () => {
  const check = (schema, text) => value(object({ a: schema }), { a: { text } }).faults[0];
  assert.deepEqual(check({ type: 'integer', minimum: 5 }, '4'), { pointer: '/a', key: 'form.minimum', values: { limit: 5 } });
  assert.deepEqual(check({ type: 'number', exclusiveMaximum: 1 }, '1'), { pointer: '/a', key: 'form.below', values: { limit: 1 } });
  assert.deepEqual(check({ type: 'string', maxLength: 1 }, '𝕏𝕏').values, { n: 1 });
  assert.equal(check({ type: 'string', maxLength: 2 }, '𝕏𝕏'), undefined);
});

test('a pattern is never evaluated', () => {
  const reading = value(object({ a: { type: 'string', pattern: '(a+)+$' } }), { a: { text: 'a'.repeat(64) + '!' } });
  assert.deepEqual(reading.faults, []);
});

test('references are followed, and recursion ends in JSON', () => {
  const schema = { $ref: '#/$defs/tree', $defs: { tree: object({ name: { type: 'string' }, children: { type: 'array', items: { $ref: '#/$defs/tree' } } }, ['name']) } };
  const node = plan(schema);
  assert.equal(node.kind, 'group');
  let depth = 0;
  for (let at = node; at.kind === 'group'; depth += 1) at = at.members.find((member) => member.name === 'children').node.items;
  assert.ok(depth > 1 && depth < 6, `${depth}`);
  for (const ref of ['#/$defs/none', 'other.json', '#', '#/%']) assert.ok(plan({ type: 'object', properties: { a: { $ref: ref } } }), ref);
});

test('a wide and deep schema has bounded fields', () => {
  let schema = { type: 'string' };
  for (let depth = 0; depth < 40; depth += 1) schema = object({ a: schema, b: schema });
  const count = (node) => (node.kind === 'group' ? node.members.reduce((all, member) => all + count(member.node), 1) : 1);
  assert.ok(count(plan(schema)) < 5_000);
});

test('allOf is merged, and a contradiction is JSON', () => {
  const merged = plan({ allOf: [object({ a: { type: 'number', minimum: 1 } }, ['a']), object({ a: { type: 'integer', minimum: 3 }, b: { type: 'string' } }, ['b'])] });
  assert.deepEqual(merged.members.map(({ name, required, node }) => [name, required, node.kind]), [['a', true, 'number'], ['b', true, 'text']]);
  assert.equal(merged.members[0].node.integer, true);
  assert.equal(merged.members[0].node.minimum, 3);
  assert.equal(plan({ allOf: [{ type: 'string' }, { type: 'number' }] }).kind, 'json');
});

test('variants are named, and null is not one of them', () => {
  const node = plan({ oneOf: [object({ type: { const: 'circle' }, r: { type: 'number' } }, ['type', 'r']), { ...object({ w: { type: 'number' } }), title: 'Box' }, { type: 'null' }] });
  assert.equal(node.kind, 'variants');
  assert.equal(node.nullable, true);
  assert.deepEqual(node.variants.map((variant) => variant.label), ['type: "circle"', 'Box']);
  const named = plan({ oneOf: [{ const: 1, title: 'One' }, { const: 2 }] });
  assert.deepEqual(named.options, [{ value: 1, label: 'One' }, { value: 2, label: '2' }]);
  assert.deepEqual(plan({ type: ['string', 'null'] }), { kind: 'text', nullable: true, long: false });
});

test('a value becomes a draft and the same value again', () => {
  const schema = object({
    text: { type: 'string' }, n: { type: 'number' }, flag: { type: 'boolean' }, pick: { enum: ['a', 2, null] }, list: { type: 'array', items: { type: 'integer' } },
    shape: { anyOf: [object({ r: { type: 'number' } }, ['r']), object({ w: { type: 'number' } }, ['w'])] }, any: {}, maybe: { type: ['integer', 'null'] },
  });
  const node = plan(schema);
  const values = [{}, { text: '' }, { n: 0.5, flag: false, pick: 2 }, { pick: null, list: [] }, { list: [1, 2], shape: { w: 3 }, any: { deep: [1] }, maybe: null, extra: true }];
  for (const wanted of values) {
    const draft = write(node, wanted);
    assert.ok(draft, JSON.stringify(wanted));
    assert.deepEqual(sent(read(node, draft, true)), wanted);
  }
});

test('what the fields cannot show stays JSON', () => {
  const node = plan({ ...object({ n: { type: 'integer' } }), additionalProperties: false });
  for (const wanted of [{ n: 'seven' }, { other: 1 }, [], null, 'text']) assert.equal(write(node, wanted), undefined, JSON.stringify(wanted));
});

test('members with names of setters are members', () => {
  const schema = JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"string"}},"required":["__proto__"]}');
  const node = plan(schema);
  const given = JSON.parse('{"__proto__":"a","constructor":"b"}');
  assert.equal(JSON.stringify(read(node, write(node, given), true).value), JSON.stringify(given));
  assert.equal({}.polluted, undefined);
});

test('schemas that are no schemas are JSON or nothing', () => {
  for (const schema of [false, 5, 'text', []]) assert.equal(plan(schema).kind, 'json', JSON.stringify(schema));
  for (const schema of [undefined, null, true]) assert.deepEqual(plan(schema), { kind: 'group', members: [], open: true });
  for (const schema of [{ type: 'object', properties: 5, required: 'x' }, { enum: [] }, { type: 7 }, { items: [] }, { oneOf: [] }, { allOf: [5] }]) assert.ok(plan(schema).kind, JSON.stringify(schema));
});

test('a difference has the lines that went and came, and a few around them', () => {
  const text = (all) => all.map(({ kind, text }) => `${{ same: ' ', before: '-', after: '+', gap: '~' }[kind]}${text}`).join('\n');
  assert.equal(text(lines('a\nb\nc', 'a\nx\nc')), ' a\n-b\n+x\n c');
  assert.equal(text(lines('', 'a')), '+a');
  assert.equal(text(lines('a', '')), '-a');
  assert.equal(text(lines('a\nb', 'b\na')), '-a\n b\n+a');
  const many = Array.from({ length: 20 }, (_, index) => `${index}`);
  const changed = many.with(10, 'ten');
  assert.equal(text(around(lines(many.join('\n'), changed.join('\n')))), '~…\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n~…');
  const wide = Array.from({ length: 3_000 }, (_, index) => `${index}`).join('\n');
  assert.equal(lines(wide, wide).length, 6_000, 'too many to compare');
});

test('the order of members is no difference', () => {
  assert.equal(ordered({ b: [{ d: 1, c: 2 }], a: 1 }), ordered({ a: 1, b: [{ c: 2, d: 1 }] }));
  assert.notEqual(ordered([1, 2]), ordered([2, 1]));
  assert.equal(ordered(undefined), '');
});
