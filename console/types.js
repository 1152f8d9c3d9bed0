/**
 * The types of the API: those of the OpenAPI document, and below them those that the document does
 * not have yet. The latter disappear as soon as it has them.
 *
 * @typedef {import('switchboard-api').components['schemas']} Schemas
 * @typedef {Schemas['Device'] & {service_names?: string[]}} Device
 * @typedef {Schemas['CallResult']} CallResult
 * @typedef {Schemas['StoredCall']} StoredCall
 * @typedef {Schemas['Outcome']} Outcome
 * @typedef {Schemas['Delivered']} Delivered
 * @typedef {Schemas['Usage']} Usage
 * @typedef {Schemas['Scope']} Scope
 * @typedef {Schemas['Session']} Session
 * @typedef {Schemas['ApiKey']} ApiKey
 * @typedef {Schemas['CreatedKey']} CreatedKey
 * @typedef {Schemas['CreatedToken']} CreatedToken
 * @typedef {Schemas['SkillsBook']} SkillsBook
 * @typedef {Schemas['VoiceDocument']} Voice
 * @typedef {Schemas['Picture']} Picture
 * @typedef {Schemas['Webhook']} Webhook
 * @typedef {Schemas['CreatedWebhook']} CreatedWebhook
 * @typedef {Schemas['Delivery']} Delivery
 * @typedef {Schemas['AuditEntry']} AuditEntry
 * @typedef {Schemas['Org']} Org
 * @typedef {Schemas['OrgSummary']} OrgSummary
 * @typedef {{pointer: string, detail: string}} Violation
 *
 * @typedef {object} Service one entry of a device's registration; all of it is the device's claim
 * @property {string} [description]
 * @property {import('./form/schema.js').Schema | boolean} [parameters]
 * @property {import('./form/schema.js').Schema | boolean} [output]
 * @property {number} [timeout_ms]
 * @property {Record<string, unknown>} [annotations]
 *
 * @typedef {{token_id: string, subject: string, scopes: Scope[], created_at: string, expires_at: string, revoked_at: string | null}} Token
 *
 * @typedef {{id: string, role: string | null, version: string | null, started_at: string | null, devices: number | null, draining: boolean | null, ready: boolean | null, checks: {name: string, ok: boolean, detail: string | null}[]}} Node
 *
 * @typedef {{key: string, calls: number, by_outcome: Record<string, number>, milliseconds: number, turns: number, prompt_tokens: number, completion_tokens: number, cost: number}} UsageRow
 */
export {};
