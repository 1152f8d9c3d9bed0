//! The database and the object store: organisations, credentials, settings, devices, calls and
//! usage. All SQL of the workspace is in this crate.
//! Invariant: a statement on rows of an organisation runs with its tenant scope; see
//! `connections.rs`.

mod api_keys;
mod audit_log;
mod call_end_listener;
mod call_queues;
mod config;
mod connections;
mod database;
mod device_events;
mod devices;
mod embeddings;
mod error;
mod id_names;
mod idempotent_calls;
mod idempotent_requests;
mod lease;
mod memories;
mod metrics;
mod npcs;
mod objects;
mod orgs;
mod orphans;
mod owner;
mod page;
mod pending_upload;
mod pictures;
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
mod stored_calls;
mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod tokens;
mod transaction;
mod usage;
mod voices;
mod webhooks;

pub use api_keys::{ApiKey, KeyRevocation, NewApiKey};
pub use audit_log::{AuditEntry, AuditFilter};
pub use call_end_listener::CallEndListener;
pub use call_queues::{CallClaim, ClaimedCall, OverdueCalls};
pub use config::Config;
pub use database::Store;
pub use device_events::{DeviceEvent, DeviceEventKind};
pub use devices::StoredDevice;
pub use embeddings::{EmbeddingError, EmbeddingModel, MAX_DIMENSIONS, QueryEmbedding, TextToEmbed};
pub use error::StoreError;
pub use idempotent_calls::{CallKey, NewCall, ReservedCall, StoredOutcome};
pub use idempotent_requests::{RequestClaim, RequestKey, StoredResponse};
pub use memories::{
    Memory, MemoryFilter, MemoryHolder, MemoryMatch, MemoryQuery, MemoryWrite, NewMemory,
};
pub use npcs::{Npc, NpcFilter, NpcWrite};
pub use objects::{ObjectError, ObjectKey, Objects, ObjectsConfig};
pub use orgs::{Org, OrgSettings, OrgWrite};
pub use orphans::OrphanError;
pub use owner::Owner;
pub use page::Page;
pub use pending_upload::PendingUpload;
pub use pictures::{NewPicture, Picture, PictureError, PictureRemoval, PictureWrite};
pub use resources::{Resource, ResourceBody};
pub use row_security::RowSecurity;
pub use schema_version::SchemaVersion;
pub use signing_keys::{NewSigningKey, StoredSigningKey};
pub use skills_books::{
    BookCancel, BookChunk, BookFault, BookFilter, BookFinish, BookJob, BookRemoval, BookSection,
    BookState, ChunkMatch, NewChunk, NewSkillsBook, PartWrite, ReadyBook, SkillsBook,
    SkillsBookError,
};
pub use stored_calls::{
    CallCancellation, CallDispatch, CallEnd, CallFilter, CallInsert, CallMode, CallState, Expiry,
    InsertCallError, NewStoredCall, QueueLimits, RESULT_GRACE, StoredCall,
};
pub use templates::{Template, TemplateRemoval, TemplateWrite};
pub use tokens::{IssuedToken, RevokedToken};
pub use transaction::TenantTransaction;
pub use usage::{CallUsage, CountedCalls, CountedTurns, ResourceCounts, TurnUsage, UsageCounter};
pub use voices::{
    NewVoice, OrphanedVoice, StoredVoice, VoiceChange, VoiceConsent, VoiceError, VoiceFault,
    VoiceFilter, VoiceJob, VoiceRemake, VoiceRemoval, VoiceSample, VoiceSettings, VoiceState,
    VoiceStatus,
};
pub use webhooks::{
    AttemptOutcome, ClaimedDelivery, Delivery, DeliveryState, MAX_WEBHOOKS, Redelivery, Webhook,
    WebhookEvent, WebhookSettings, WebhookStats,
};
