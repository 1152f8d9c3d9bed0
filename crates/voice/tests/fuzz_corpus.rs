//! Replays the corpus of the fuzz target, so that fixed findings stay fixed.

use std::{fs, path::Path};

#[path = "../../../fuzz/src/voice.rs"]
mod voice;

#[test]
fn corpus_decodes_within_bounds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/audio_stream");
    let files = fs::read_dir(folder).unwrap();
    let inputs: Vec<_> = files
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(inputs.len() >= 6);
    for input in inputs {
        voice::audio_stream(&input);
    }
}
