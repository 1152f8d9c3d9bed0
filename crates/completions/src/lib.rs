//! What a language model says: asked of whatever speaks like OpenAI's `POST /chat/completions`, heard as it is said.
//! Never: a key in a log, a reply without a bound, or a reply begun anew once a word of it was heard.

mod assembly;
mod attempt;
mod chunk;
mod config;
mod ear;
mod endpoint;
mod error;
mod failure;
mod file;
mod metrics;
mod model;
mod patience;
mod providers;
mod reading;
mod refusal;
mod reply;
mod request;
mod rests;
mod round;
mod settings;
mod stream;
mod wire;

pub use config::Config;
pub use ear::Ear;
pub use error::{CompletionError, ConfigError};
pub use providers::Providers;
pub use reply::{Finish, Reply, ToolCall, Usage};
pub use request::{Message, Preferred, Request, Tool};
pub use settings::LimitField;
