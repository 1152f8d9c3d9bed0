//! What texts mean, in numbers: asked of whatever speaks like OpenAI's `POST /embeddings`.
//! Never: a key in a log, an answer without a bound, or a search that waits for an endpoint that does not answer.

mod answer;
mod config;
mod endpoint;
mod questions;

pub use config::Config;
pub use endpoint::{EmbedError, Endpoint};
pub use questions::Questions;
