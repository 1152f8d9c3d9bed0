//! The database and the object store: organisations, credentials, settings, devices, calls and
//! usage. All SQL of the workspace is in this crate.
//! Invariant: a statement on rows of an organisation runs with its tenant scope; see
//! `database/connections.rs`.

mod access;
mod calls;
mod config;
mod database;
mod devices;
mod error;
mod knowledge;
mod media;
mod settings;
#[cfg(feature = "testing")]
pub mod testing;
mod usage;
mod webhooks;

pub use access::{
    api_keys::{ApiKey, ApiKeyLimits, KeyRevocation, NewApiKey},
    audit_log::{AuditEntry, AuditFilter},
    master_keys::{MasterKeyConfig, MasterKeyError, MasterKeys},
    owner::Owner,
    signing_keys::{NewSigningKey, StoredSigningKey},
    tokens::{IssuedToken, ListedToken, Revocations, RevokedToken},
    wrapped_keys::Rewrapped,
};
pub use calls::{
    call_end_listener::CallEndListener,
    call_queues::{CallAttempt, CallClaim, ClaimedCall, ClosedCall, Overdue, OverdueCalls},
    idempotent_calls::{CallKey, NewCall, ReservedCall, StoredOutcome},
    journal::{CallJournal, EndedCall, MAX_JOURNALED_BYTES},
    recent_calls::{
        CallCaller, CallVia, CallerKind, JOURNAL_TTL, MAX_JOURNALED_CALLS, RecentCall,
        RecentCallFilter,
    },
    stored_calls::{
        CallCancellation, CallDispatch, CallEnd, CallFilter, CallInsert, CallMode, CallState,
        Expiry, InsertCallError, NewStoredCall, QueueLimits, RESULT_GRACE, StoredCall,
    },
};
pub use config::Config;
pub use database::{
    Store,
    job_turn::JobTurn,
    page::Page,
    row_security::RowSecurity,
    schema_version::SchemaVersion,
    server_version::{MAX_TESTED_POSTGRES_VERSION, MIN_POSTGRES_VERSION, PostgresVersion},
    transaction::TenantTransaction,
};
pub use devices::{
    StoredDevice,
    approvals::{Approval, MAX_APPROVALS},
    device_events::{DeviceEvent, DeviceEventKind},
    labels::{DeviceNotes, LabelCount},
};
pub use error::StoreError;
pub use knowledge::{
    embeddings::{EmbeddingError, EmbeddingModel, MAX_DIMENSIONS, QueryEmbedding, TextToEmbed},
    memories::{
        Memory, MemoryFilter, MemoryHolder, MemoryMatch, MemoryQuery, MemoryUpdate, MemoryWrite,
        NewMemory,
    },
    skills_books::{
        BookCancel, BookChunk, BookFault, BookFilter, BookFinish, BookJob, BookRemoval,
        BookSection, BookState, ChunkMatch, NewChunk, NewSkillsBook, PartWrite, ReadyBook,
        SkillsBook, SkillsBookError,
    },
};
pub use media::{
    objects::{ObjectError, ObjectKey, ObjectStream, Objects, ObjectsConfig},
    orphans::OrphanError,
    pending_upload::PendingUpload,
    pictures::{NewPicture, Picture, PictureError, PictureRemoval, PictureWrite},
    recordings::{NewRecording, RecordingError, RecordingFilter, StoredRecording},
    voices::{
        NewVoice, OrphanedVoice, StoredVoice, VoiceChange, VoiceConsent, VoiceError, VoiceFault,
        VoiceFilter, VoiceJob, VoiceRemake, VoiceRemoval, VoiceSample, VoiceSettings, VoiceState,
        VoiceStatus,
    },
};
pub use settings::{
    idempotent_requests::{RequestClaim, RequestKey, StoredResponse},
    npcs::{Npc, NpcFilter, NpcWrite},
    orgs::{ModelApproval, Org, OrgSettings, OrgWrite, SuspendedOrgs},
    resources::{Resource, ResourceBody},
    templates::{Template, TemplateRemoval, TemplateWrite},
};
pub use usage::{
    CallUsage, CountedCalls, CountedTurns, ResourceCounts, TurnUsage, UsageBy, UsageByCounter,
    UsageCounter, UsageDimension, UsageSums,
};
pub use webhooks::{
    AttemptOutcome, AttemptsInFlight, ClaimedDelivery, Delivery, DeliveryState, MAX_WEBHOOKS,
    Redelivery, Webhook, WebhookEvent, WebhookSettings, WebhookStats,
};
