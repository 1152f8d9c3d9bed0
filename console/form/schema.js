/**
 * From a device's JSON Schema to a plan of fields. The schema is a stranger's: depth, fields and
 * recursion are bounded, no pattern is evaluated, and what is not understood becomes a field for
 * JSON, never a wrong field.
 *
 * @typedef {Record<string, any>} Schema
 *
 * @typedef {object} Common
 * @property {string} [title]
 * @property {string} [description]
 * @property {boolean} [nullable]
 * @property {unknown} [fallback] the schema's `default`: shown, not sent
 *
 * @typedef {Common & {kind: 'text', format?: string, long: boolean, minLength?: number, maxLength?: number, example?: string}} TextNode
 * @typedef {Common & {kind: 'number', integer: boolean, minimum?: number, maximum?: number, above?: number, below?: number, multipleOf?: number, example?: string}} NumberNode
 * @typedef {Common & {kind: 'boolean'}} BooleanNode
 * @typedef {Common & {kind: 'choice', options: {value: unknown, label: string}[]}} ChoiceNode
 * @typedef {Common & {kind: 'constant', value: unknown}} ConstantNode
 * @typedef {Common & {kind: 'list', items: Node, minItems?: number, maxItems?: number}} ListNode
 * @typedef {{name: string, node: Node, required: boolean}} Member
 * @typedef {Common & {kind: 'group', members: Member[], open: boolean}} GroupNode
 * @typedef {Common & {kind: 'variants', variants: {label: string, node: Node}[]}} VariantsNode
 * @typedef {Common & {kind: 'json', reason: 'any' | 'unknown' | 'deep'}} JsonNode
 * @typedef {TextNode | NumberNode | BooleanNode | ChoiceNode | ConstantNode | ListNode | GroupNode | VariantsNode | JsonNode} Node
 */

const MAX_DEPTH = 16;
const MAX_FIELDS = 500;
/** How often a definition may contain itself before the rest is JSON. */
const MAX_REPEATS = 2;
const MAX_OPTIONS = 500;

/** @typedef {{root: Schema, fields: number, refs: string[]}} Context */

/** The plan of a schema's fields. @param {unknown} schema @returns {Node} */
export function plan(schema) {
  if (schema === undefined || schema === null || schema === true) return { kind: 'group', members: [], open: true };
  if (!isObject(schema)) return { kind: 'json', reason: 'unknown' };
  return node(schema, { root: schema, fields: 0, refs: [] }, 0);
}

/** @param {unknown} value @returns {value is Schema} */
export const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** @param {unknown} given @param {Context} context @param {number} depth @returns {Node} */
function node(given, context, depth) {
  context.fields += 1;
  if (given === true) return { kind: 'json', reason: 'any' };
  if (!isObject(given)) return { kind: 'json', reason: 'unknown' };
  const flat = flatten(given, context);
  if (!flat) return { ...texts(given), kind: 'json', reason: 'unknown' };
  const { schema, refs } = flat;
  const common = texts(schema);
  if (depth > MAX_DEPTH || context.fields > MAX_FIELDS) return { ...common, kind: 'json', reason: 'deep' };
  if (refs.some((ref) => refs.filter((other) => other === ref).length > MAX_REPEATS)) return { ...common, kind: 'json', reason: 'deep' };
  const inner = { root: context.root, fields: context.fields, refs };
  const result = shape(schema, common, inner, depth);
  context.fields = inner.fields;
  return result;
}

/** @param {Schema} schema @param {Common} common @param {Context} context @param {number} depth @returns {Node} */
function shape(schema, common, context, depth) {
  if ('const' in schema) return { ...common, kind: 'constant', value: schema.const };
  if (Array.isArray(schema.enum) && schema.enum.length > 0 && schema.enum.length <= MAX_OPTIONS) return choice(schema, common);
  const alternatives = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(alternatives)) return variants(schema, alternatives, common, context, depth);
  const types = [schema.type ?? implied(schema)].flat().filter((type) => type !== undefined);
  const nullable = types.includes('null') && types.length > 1;
  const named = types.filter((type) => type !== 'null' || types.length === 1);
  const base = nullable ? { ...common, nullable } : common;
  if (named.length > 1) {
    const numeric = named.every((type) => type === 'integer' || type === 'number');
    if (numeric) return numberNode(schema, base, false);
    return variants(schema, named.map((type) => ({ ...schema, title: undefined, description: undefined, type })), base, context, depth, named);
  }
  switch (named[0]) {
    case 'string': return textNode(schema, base);
    case 'integer': return numberNode(schema, base, true);
    case 'number': return numberNode(schema, base, false);
    case 'boolean': return { ...base, kind: 'boolean' };
    case 'null': return { ...base, kind: 'constant', value: null };
    case 'array': return list(schema, base, context, depth);
    case 'object': return group(schema, base, context, depth);
    default: return { ...base, kind: 'json', reason: Object.keys(schema).length === 0 ? 'any' : 'unknown' };
  }
}

/** The type that other keywords imply. @param {Schema} schema */
function implied(schema) {
  if ('properties' in schema || 'required' in schema) return 'object';
  if ('items' in schema) return 'array';
  if ('minLength' in schema || 'maxLength' in schema || 'format' in schema) return 'string';
  if ('minimum' in schema || 'maximum' in schema) return 'number';
  return undefined;
}

/** @param {Schema} schema @returns {Common} */
function texts(schema) {
  /** @type {Common} */
  const common = {};
  if (typeof schema.title === 'string') common.title = schema.title;
  if (typeof schema.description === 'string') common.description = schema.description;
  if ('default' in schema) common.fallback = schema.default;
  return common;
}

/** @param {Schema} schema @param {Common} common @returns {Node} */
function choice(schema, common) {
  const nullable = schema.enum.includes(null) && schema.enum.length > 1;
  const values = nullable ? schema.enum.filter((/** @type {unknown} */ value) => value !== null) : schema.enum;
  const options = values.map((/** @type {unknown} */ value) => ({ value, label: typeof value === 'string' ? value : JSON.stringify(value) }));
  return { ...common, ...(nullable ? { nullable } : {}), kind: 'choice', options };
}

/** @param {Schema} schema @param {Common} base @returns {Node} */
function textNode(schema, base) {
  const long = !schema.format && !(schema.maxLength <= 256) && (schema.maxLength > 256 || /text|content|message|prompt|body/i.test(String(schema.title ?? '')));
  return { ...base, kind: 'text', long, ...pick(schema, { format: 'string', minLength: 'number', maxLength: 'number' }), ...example(schema) };
}

/** @param {Schema} schema @param {Common} base @param {boolean} integer @returns {Node} */
function numberNode(schema, base, integer) {
  const { exclusiveMinimum, exclusiveMaximum, ...rest } = pick(schema, { minimum: 'number', maximum: 'number', exclusiveMinimum: 'number', exclusiveMaximum: 'number', multipleOf: 'number' });
  return { ...base, kind: 'number', integer, ...rest, above: exclusiveMinimum, below: exclusiveMaximum, ...example(schema) };
}

/** @param {Schema} schema */
function example(schema) {
  const first = Array.isArray(schema.examples) ? schema.examples[0] : undefined;
  return ['string', 'number'].includes(typeof first) ? { example: String(first) } : {};
}

/** The members of a schema that have the right type. @param {Schema} schema @param {Record<string, string>} wanted @returns {Record<string, any>} */
function pick(schema, wanted) {
  return Object.fromEntries(Object.entries(wanted).filter(([name, type]) => typeof schema[name] === type).map(([name]) => [name, schema[name]]));
}

/** @param {Schema} schema @param {Common} base @param {Context} context @param {number} depth @returns {Node} */
function list(schema, base, context, depth) {
  if (Array.isArray(schema.prefixItems) || Array.isArray(schema.items)) return { ...base, kind: 'json', reason: 'unknown' };
  const items = node(schema.items ?? true, context, depth + 1);
  return { ...base, kind: 'list', items, ...pick(schema, { minItems: 'number', maxItems: 'number' }) };
}

/** @param {Schema} schema @param {Common} base @param {Context} context @param {number} depth @returns {Node} */
function group(schema, base, context, depth) {
  const required = new Set(Array.isArray(schema.required) ? schema.required.filter((name) => typeof name === 'string') : []);
  const given = isObject(schema.properties) ? Object.entries(schema.properties) : [];
  /** @type {Member[]} */
  const members = given.filter(([, property]) => property !== false).map(([name, property]) => ({ name, node: node(property, context, depth + 1), required: required.has(name) }));
  const known = new Set(given.map(([name]) => name));
  for (const name of required) if (!known.has(name)) members.push({ name, node: node(true, context, depth + 1), required: true });
  return { ...base, kind: 'group', members, open: schema.additionalProperties !== false };
}

/** @param {Schema} schema @param {unknown[]} alternatives @param {Common} common @param {Context} context @param {number} depth @param {string[]} [labels] @returns {Node} */
function variants(schema, alternatives, common, context, depth, labels) {
  const { oneOf, anyOf, title, description, default: fallback, ...rest } = schema;
  const real = alternatives.filter((each) => !(isObject(each) && each.type === 'null'));
  const base = real.length < alternatives.length ? { ...common, nullable: true } : common;
  const merged = real.map((each) => (labels ? each : merge(rest, each)));
  if (merged.includes(undefined)) return { ...base, kind: 'json', reason: 'unknown' };
  // A list of constants is a choice whose options have names.
  if (real.length > 0 && real.every((each) => isObject(each) && 'const' in each)) {
    return { ...base, kind: 'choice', options: real.map((each) => ({ value: /** @type {Schema} */ (each).const, label: label(/** @type {Schema} */ (each)) })) };
  }
  const nodes = merged.map((each) => node(each, context, depth + 1));
  const only = nodes.length === 1 ? nodes[0] : undefined;
  if (only) return { ...only, ...base, ...(only.description && !base.description ? { description: only.description } : {}) };
  return { ...base, kind: 'variants', variants: nodes.map((each, index) => ({ node: each, label: labels?.[index] ?? variantLabel(each, index) })) };
}

/** @param {Schema} schema */
const label = (schema) => (typeof schema.title === 'string' ? schema.title : typeof schema.const === 'string' ? schema.const : JSON.stringify(schema.const));

/** The name of a variant: its title, else the constant in it, else its kind. @param {Node} each @param {number} index */
function variantLabel(each, index) {
  if (each.title) return each.title;
  if (each.kind === 'group') {
    const constant = each.members.find((member) => member.node.kind === 'constant');
    if (constant?.node.kind === 'constant') return `${constant.name}: ${JSON.stringify(constant.node.value)}`;
    if (each.members.length > 0) return each.members.map((member) => member.name).slice(0, 3).join(', ');
  }
  if (each.kind === 'number') return each.integer ? 'integer' : 'number';
  return each.kind === 'json' || each.kind === 'group' ? `${index + 1}` : { text: 'text', boolean: 'true / false', choice: 'choice', constant: 'constant', list: 'list', variants: 'choice' }[each.kind];
}

/** Follows `$ref`, and merges `allOf`. @param {Schema} given @param {Context} context @returns {{schema: Schema, refs: string[]} | undefined} */
function flatten(given, context) {
  /** @type {Schema | undefined} */
  let schema = given;
  let refs = context.refs;
  for (let steps = 0; steps < MAX_DEPTH && schema; steps += 1) {
    if (typeof schema.$ref === 'string') {
      const { $ref, ...rest } = schema;
      const target = find(context.root, $ref);
      refs = [...refs, $ref];
      schema = merge(target, rest);
    } else if (Array.isArray(schema.allOf)) {
      const { allOf, ...rest } = schema;
      /** @type {Schema | undefined} */
      let all = rest;
      for (const part of allOf) {
        const inner = isObject(part) ? flatten(part, { ...context, refs }) : undefined;
        all = all && inner ? merge(all, inner.schema) : undefined;
        if (inner) refs = [...refs, ...inner.refs.slice(refs.length)];
      }
      schema = all;
    } else {
      return { schema, refs };
    }
  }
  return undefined;
}

/** The place of a local reference. @param {Schema} root @param {string} ref */
function find(root, ref) {
  if (ref === '#') return root;
  if (!ref.startsWith('#/')) return undefined;
  /** @type {unknown} */
  let at = root;
  for (const part of ref.slice(2).split('/')) {
    const name = safeDecode(part).replace(/~1/g, '/').replace(/~0/g, '~');
    at = (isObject(at) || Array.isArray(at)) && Object.hasOwn(at, name) ? /** @type {any} */ (at)[name] : undefined;
  }
  return at;
}

/** @param {string} text */
function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const TIGHTEN = new Map([['minimum', Math.max], ['minLength', Math.max], ['minItems', Math.max], ['maximum', Math.min], ['maxLength', Math.min], ['maxItems', Math.min]]);

/** What satisfies both schemas, or undefined if that is not clear. @param {unknown} a @param {unknown} b @returns {Schema | undefined} */
export function merge(a, b) {
  if (a === true) a = {};
  if (b === true) b = {};
  if (!isObject(a) || !isObject(b)) return undefined;
  /** @type {Schema} */
  const result = { ...a };
  for (const [name, value] of Object.entries(b)) {
    const tighten = TIGHTEN.get(name);
    if (!Object.hasOwn(a, name) || ['title', 'description', 'default', 'examples'].includes(name)) result[name] = value;
    else if (tighten && typeof value === 'number') result[name] = tighten(a[name], value);
    else if (name === 'required') result[name] = [...new Set([...a[name], ...value])];
    else if (name === 'properties' || name === '$defs') result[name] = mergeMembers(a[name], value);
    else if (name === 'type') {
      const [ours, theirs] = [[a[name]].flat(), [value].flat()];
      const within = (/** @type {string} */ type, /** @type {string[]} */ types) => types.includes(type) || (type === 'integer' && types.includes('number'));
      const both = [...new Set([...ours.filter((type) => within(type, theirs)), ...theirs.filter((type) => within(type, ours))])];
      if (both.length === 0) return undefined;
      result[name] = both.length === 1 ? both[0] : both;
    } else if (JSON.stringify(a[name]) !== JSON.stringify(value)) return undefined;
    if (result[name] === undefined && value !== undefined) return undefined;
  }
  return result;
}

/** @param {unknown} a @param {unknown} b */
function mergeMembers(a, b) {
  if (!isObject(a) || !isObject(b)) return undefined;
  /** @type {Schema} */
  const members = { ...a };
  for (const [name, value] of Object.entries(b)) {
    members[name] = Object.hasOwn(a, name) ? merge(a[name], value) : value;
    if (members[name] === undefined) return undefined;
  }
  return members;
}
