//! Client for embeddings with an API like OpenAI's `POST /embeddings`.

mod config;
mod endpoint;
mod query_embedder;
mod response;

pub use config::Config;
pub use endpoint::{EmbedError, Endpoint};
pub use query_embedder::QueryEmbedder;
