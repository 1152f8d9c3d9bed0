//! What users read or hear is in the tables of `crates/phrases`: code that writes to them has no
//! sentence of its own.

use super::{
    Offence, Source, check, sources, verdict,
    words::{literals, tests_begin},
};

/// The code that writes to users. Texts for models, operators and callers are elsewhere.
const WRITERS: [&str; 11] = [
    "services/edge/src/handle/turns",
    "services/edge/src/voice",
    "services/chat/src/answer.rs",
    "services/chat/src/answer/rendering.rs",
    "services/chat/src/answer/retrieval.rs",
    "services/chat/src/answer/rules.rs",
    "services/chat/src/answer/sentences.rs",
    "services/chat/src/answer/sink.rs",
    "services/chat/src/answer/style.rs",
    "services/chat/src/memory/salience.rs",
    "services/chat/src/worker.rs",
];

/// Whether a literal is a sentence, or its beginning. Log messages begin in lower case.
fn is_sentence(literal: &str) -> bool {
    let is_east_asian = |c: char| "。，！？：；".contains(c);
    let begins = literal.chars().find(|c| c.is_alphanumeric());
    (begins.is_some_and(char::is_uppercase) && literal.contains(' '))
        || (literal.chars().count() > 1 && literal.contains(is_east_asian))
}

fn messages(source: &Source) -> Vec<Offence> {
    // Descriptions of metrics are for operators.
    if source.path.ends_with("/metrics.rs") {
        return Vec::new();
    }
    let tests = tests_begin(source);
    let lines = source.lines().take_while(|(number, _)| *number < tests);
    let found = lines.filter(|(_, line)| literals(line).iter().any(|text| is_sentence(text)));
    let rule = "what users read is a phrase of crates/phrases";
    found
        .map(|(number, _)| Offence::new(&source.path, number, rule))
        .collect()
}

#[test]
fn messages_to_users_are_phrases() {
    let is_writer =
        |path: &str| path.ends_with(".rs") && WRITERS.iter().any(|w| path.starts_with(w));
    let writers = sources(is_writer);
    for writer in WRITERS {
        let is_there = writers.iter().any(|source| source.path.starts_with(writer));
        assert!(is_there, "{writer} is no longer there");
    }
    verdict(&writers.iter().flat_map(messages).collect::<Vec<_>>());
}

#[test]
fn messages_can_fail() {
    let path = "services/edge/src/voice.rs";
    check(messages, path, "let a = \"Please wait.\";\n", 1);
    check(
        messages,
        path,
        "let a = \"Please wait \\\n  a moment.\";\n",
        1,
    );
    check(messages, path, "let a = \"\\nPlease wait.\";\n", 1);
    check(messages, path, "let a = \"请稍等。\";\n", 1);
    check(messages, path, "warn!(\"cannot wait for it\");\n", 0);
    check(messages, path, "/// Says \"Please wait.\"\n", 0);
    check(messages, path, "trim(['.', '。']) + \"text/plain\"\n", 0);
    let test = "#[cfg(test)]\nmod tests {\n    let a = \"Please wait.\";\n}\n";
    check(messages, path, test, 0);
    check(
        messages,
        "services/edge/src/voice/metrics.rs",
        "\"Time of it\"\n",
        0,
    );
}
