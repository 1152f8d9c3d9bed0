//! What texts mean, as a model says it in numbers: which model that is, and what has not been asked of it yet.
//! Never: a text that is lost because no model was there, or numbers of two models side by side.

mod nearest;
mod queue;
mod tables;

pub use queue::TextToEmbed;
pub use tables::EmbeddingError;

/// The most numbers that a text may have: the index takes no more.
pub const MOST_DIMENSIONS: usize = 4_000;

/// The model that stored numbers are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingModel {
    /// Counts up with each model that was set.
    pub generation: i32,
    /// Its name.
    pub model: String,
    /// How many numbers it has for each text.
    pub dimensions: usize,
}

/// What a question means.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    /// The name of the model that says so.
    pub model: String,
    /// Its numbers.
    pub vector: Vec<f32>,
}

/// Numbers as the extension reads them.
fn written(vector: &[f32]) -> String {
    let numbers: Vec<_> = vector.iter().map(f32::to_string).collect();
    format!("[{}]", numbers.join(","))
}
