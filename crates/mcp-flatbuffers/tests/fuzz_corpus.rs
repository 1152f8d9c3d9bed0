//! Replays the corpus of the fuzz targets, so that fixed findings stay fixed.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path};

#[path = "../../../fuzz/src/flatbuffers.rs"]
mod targets;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries =
        fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut replayed = 0;
    for entry in entries.flatten() {
        let input = fs::read(entry.path()).unwrap_or_else(|error| panic!("{entry:?}: {error}"));
        run(&input);
        replayed += 1;
    }
    assert!(replayed >= 10, "{target}: only {replayed} inputs");
}

#[test]
fn flatbuffers() {
    replay("flatbuffers", targets::flatbuffers);
}
