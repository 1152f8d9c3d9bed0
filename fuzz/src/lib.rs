//! The fuzz targets. The crates' tests include these files by path and replay the corpus.

mod flatbuffers;
mod protocol;
mod voice;

pub use self::{
    flatbuffers::flatbuffers,
    protocol::{decoder, messages, schema_gate},
    voice::audio_stream,
};
