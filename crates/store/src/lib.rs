//! What must outlive every process: organisations, keys, tokens, settings, and what is known of devices. Every line of SQL is here.
//! Never: a query without an organisation where rows belong to one, HTTP, Redis, or a retry that the caller does not see.

mod api_keys;
mod call_ends;
mod call_queues;
mod config;
mod creation;
mod database;
mod devices;
mod error;
mod facts;
mod idempotent_calls;
mod idempotent_requests;
mod kept_calls;
mod memories;
pub mod merge_patch;
mod npcs;
mod objects;
mod orgs;
mod owner;
mod pictures;
pub mod placeholders;
mod prompts;
mod registrations;
mod resources;
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

pub use api_keys::{ApiKey, KeyRevocation, NewApiKey};
pub use call_ends::CallEnds;
pub use call_queues::{Claim, ClaimedCall};
pub use config::Config;
pub use creation::Creation;
pub use database::Store;
pub use devices::StoredDevice;
pub use error::StoreError;
pub use facts::{DeviceFact, DeviceNews};
pub use idempotent_calls::{CallKey, NewCall, RememberedCall, StoredOutcome};
pub use idempotent_requests::{KeptAnswer, RequestClaim, RequestKey};
pub use kept_calls::{
    CallEnd, CallFilter, CallMode, CallState, CallWork, Expiry, KeepError, Keeping, KeptCall,
    NewKeptCall, QueueLimits, SETTLING, Withdrawal,
};
pub use memories::{
    FoundMemory, Memory, MemoryFilter, MemoryHolder, MemoryQuestion, MemoryWrite, NewMemory,
};
pub use npcs::{Effective, Npc, NpcFilter, NpcSettings, NpcWrite, apply_overrides};
pub use objects::{ObjectError, ObjectKey, Objects, ObjectsConfig};
pub use owner::Owner;
pub use pictures::{NewPicture, Picture, PictureError, PictureRemoval, PictureWrite};
pub use prompts::{ListedPrompt, TemplatePrompt};
pub use resources::{ListedResource, Resource, ResourceBody};
pub use schema_version::SchemaVersion;
pub use signing_keys::{NewSigningKey, StoredSigningKey};
pub use skills_books::{
    BookCancel, BookFault, BookFinish, BookJob, BookRemoval, BookState, FoundChunk, NewChunk,
    NewSkillsBook, PartWrite, SkillsBook, SkillsBookError,
};
pub use templates::{
    MemoryPolicy, Model, Persona, Prompt, PromptArgument, PromptContent, PromptMessage, PromptRole,
    RENDERED_LIMIT_BYTES, RenderError, SHOWN_LIMIT_BYTES, Template, TemplateRemoval,
    TemplateSettings, TemplateWrite, ToolPolicy, Voice, render,
};
pub use tokens::{IssuedToken, RevokedToken};
pub use uri_template::{LONGEST_URI, UriError, UriTemplate, UriValues};
