//! Client for language models with an API like OpenAI's `POST /chat/completions`: streamed replies,
//! failover between providers, metrics.
//! Invariant: after the first text of a reply, no other provider is requested for it.

mod attempt;
mod chunk;
mod config;
mod cooldowns;
mod deadlines;
mod endpoint;
mod error;
mod error_response;
mod failover;
mod failure;
mod file;
mod metrics;
mod model;
mod providers;
mod reply;
mod reply_builder;
mod reply_sink;
mod request;
mod request_body;
mod settings;
mod stream;
mod tool_calls;

pub use config::Config;
pub use error::{CompletionError, ConfigError};
pub use providers::Providers;
pub use reply::{FinishReason, Reply, ToolCall, Usage};
pub use reply_sink::ReplySink;
pub use request::{Message, ModelPreference, Picture, Request, Tool};
pub use settings::LimitField;
