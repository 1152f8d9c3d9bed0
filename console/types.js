/**
 * The types of the API: those of the OpenAPI document, and what a device registers.
 *
 * @typedef {import('switchboard-api').components['schemas']} Schemas
 * @typedef {Schemas['Device'] & {approvals?: Record<string, ApprovalState>}} Device
 * @typedef {Schemas['CallResult']} CallResult
 * @typedef {Schemas['StoredCall']} StoredCall
 * @typedef {Schemas['RecentCall']} RecentCall
 * @typedef {Schemas['GroupCallItem']} GroupCallItem
 * @typedef {Schemas['LabelCount']} LabelCount
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
 * @typedef {'approved' | 'unapproved' | 'changed'} ApprovalState
 * @typedef {object} ServiceDefinition as a device registered it
 * @property {string} digest
 * @property {unknown} [description]
 * @property {unknown} [parameters]
 * @property {unknown} [output]
 * @property {unknown} [annotations]
 * @typedef {Schemas['ServiceApproval']} ServiceApproval
 *
 * @typedef {object} Service one entry of a device's registration; all of it is the device's claim
 * @property {string} [description]
 * @property {import('./form/schema.js').Schema | boolean} [parameters]
 * @property {import('./form/schema.js').Schema | boolean} [output]
 * @property {number} [timeout_ms]
 * @property {Record<string, unknown>} [annotations]
 *
 * @typedef {Schemas['Token']} Token
 * @typedef {Schemas['Node']} Node
 * @typedef {Schemas['UsageRow']} UsageRow
 */
export {};
