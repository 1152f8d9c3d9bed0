//! What must outlive every process: organisations, keys, tokens, settings, and what is known of devices. Every line of SQL is here.
//! Never: a query without an organisation where rows belong to one, HTTP, Redis, or a retry that the caller does not see.

mod api_keys;
mod audit_log;
mod call_ends;
mod call_queues;
mod config;
mod connections;
mod creation;
mod database;
mod devices;
mod embeddings;
mod error;
mod facts;
mod id_names;
mod idempotent_calls;
mod idempotent_requests;
mod kept_calls;
mod leftovers;
mod memories;
pub mod merge_patch;
mod metrics;
mod npcs;
mod objects;
mod orgs;
mod owner;
mod page;
mod pictures;
mod placed;
pub mod placeholders;
mod prompts;
mod purge;
mod registrations;
mod resources;
mod row_security;
mod schema_version;
mod scope_list;
mod sealing_keys;
mod signing_keys;
mod skills_books;
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod tokens;
mod uri_template;
mod usage;
mod voices;
mod webhooks;

pub use api_keys::{ApiKey, KeyRevocation, NewApiKey};
pub use audit_log::{AuditEntry, AuditFilter};
pub use call_ends::CallEnds;
pub use call_queues::{Claim, ClaimedCall, SettledCalls};
pub use config::Config;
pub use creation::Creation;
pub use database::Store;
pub use devices::StoredDevice;
pub use embeddings::{EmbeddingError, EmbeddingModel, MOST_DIMENSIONS, Meaning, TextToEmbed};
pub use error::StoreError;
pub use facts::{DeviceFact, DeviceNews};
pub use idempotent_calls::{CallKey, NewCall, RememberedCall, StoredOutcome};
pub use idempotent_requests::{KeptAnswer, RequestClaim, RequestKey};
pub use kept_calls::{
    CallEnd, CallFilter, CallMode, CallState, CallWork, Expiry, KeepError, Keeping, KeptCall,
    NewKeptCall, QueueLimits, SETTLING, Withdrawal,
};
pub use leftovers::LeftoversError;
pub use memories::{
    FoundMemory, Memory, MemoryFilter, MemoryHolder, MemoryQuestion, MemoryWrite, NewMemory,
};
pub use npcs::{Effective, Npc, NpcFilter, NpcSettings, NpcWrite, apply_overrides};
pub use objects::{ObjectError, ObjectKey, Objects, ObjectsConfig};
pub use orgs::{Org, OrgSettings, OrgWrite};
pub use owner::Owner;
pub use page::Page;
pub use pictures::{NewPicture, Picture, PictureError, PictureRemoval, PictureWrite};
pub use placed::Placed;
pub use prompts::{ListedPrompt, PromptSource, WholePrompt};
pub use resources::{ListedResource, Resource, ResourceBody};
pub use row_security::RowSecurity;
pub use schema_version::SchemaVersion;
pub use signing_keys::{NewSigningKey, StoredSigningKey};
pub use skills_books::{
    BookCancel, BookChunk, BookFault, BookFilter, BookFinish, BookJob, BookPlace, BookRemoval,
    BookState, FoundChunk, NewChunk, NewSkillsBook, PartWrite, ReadyBook, SkillsBook,
    SkillsBookError,
};
pub use templates::{
    CardRest, Conversation, MemoryPolicy, Model, Persona, Prompt, PromptArgument, PromptContent,
    PromptMessage, PromptRole, RENDERED_LIMIT_BYTES, RenderError, SHOWN_LIMIT_BYTES, Template,
    TemplateRemoval, TemplateSettings, TemplateWrite, ToolPolicy, Voice, render,
};
pub use tokens::{IssuedToken, RevokedToken};
pub use uri_template::{LONGEST_URI, UriError, UriTemplate, UriValues};
pub use usage::{CountedCalls, CountedTurns, Holdings, UsageCounter, UsedCalls, UsedTurns};
pub use voices::{
    NewVoice, StoredVoice, VoiceChange, VoiceConsent, VoiceError, VoiceFault, VoiceFilter,
    VoiceJob, VoiceLeftover, VoiceRemake, VoiceRemoval, VoiceSample, VoiceSettings, VoiceStanding,
    VoiceState,
};
pub use webhooks::{
    AttemptEnd, ClaimedDelivery, Delivery, DeliveryState, MOST_WEBHOOKS, Redelivery, Webhook,
    WebhookEvent, WebhookFigures, WebhookSettings,
};
