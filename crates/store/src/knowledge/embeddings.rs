//! Embeddings of texts: the model in use, the queue of texts, and the vector search.
//! Invariant: stored vectors are of one model, and a text remains queued until it is embedded or
//! rejected.

mod nearest;
mod queue;
mod tables;

pub use queue::TextToEmbed;
pub use tables::EmbeddingError;

/// The maximum number of dimensions that the index supports.
pub const MAX_DIMENSIONS: usize = 4_000;

/// The model of the stored vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingModel {
    /// Increases with each model that was set.
    pub generation: i32,
    /// The name of the model.
    pub model: String,
    /// The dimensions of its vectors.
    pub dimensions: usize,
}

/// The embedding of a search query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryEmbedding {
    /// The name of its model.
    pub model: String,
    /// The vector.
    pub vector: Vec<f32>,
}

/// The vector as a literal of the extension.
fn vector_literal(vector: &[f32]) -> String {
    let numbers: Vec<_> = vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}
