//! The fuzz targets. The crates' tests include these files by path and replay the corpus.

mod flatbuffers;
mod protocol;

pub use self::{
    flatbuffers::flatbuffers,
    protocol::{decoder, messages, schema_gate},
};
