// The services of a device that attacks those who look at it.
const MARKUP = '</script><img src=x onerror=alert(1)><script>alert(2)</script>';

const service = (description, parameters) => ({ description, parameters, command: ['true'] });
const object = (properties) => ({ type: 'object', properties });

/** @type {Record<string, object>} */
export const HOSTILE = {
  plain: service(MARKUP, object({ [MARKUP]: { type: 'string', title: MARKUP, description: `javascript:alert(3) ${MARKUP}`, default: MARKUP } })),
  [MARKUP.slice(0, 60)]: service('a name of markup', object({})),
  reversed: service('safe \u202Eelif eteled\u202C', object({ 'na\u202Eme': { enum: ['\u200Fa', MARKUP, 5, null] } })),
  pattern: service('a pattern that takes for ever', object({ a: { type: 'string', pattern: '^(a+)+$', format: 'uri' } })),
  setters: service('names of setters', JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"object","properties":{"prototype":{"type":"string"}}},"toString":{"type":"integer"}}}')),
  variants: service('many variants', object({ a: { oneOf: Array.from({ length: 40 }, (_, index) => ({ ...object({ [`k${index}`]: { const: `${MARKUP}${index}` } }), title: index % 2 ? MARKUP : undefined })) } })),
};
