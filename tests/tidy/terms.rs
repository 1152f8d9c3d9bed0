//! Terms: comments, documents and names use the words of the glossary, not speech and persons.
//! Each rule is a rate over all files, so a rare quotation passes.

use super::{Offence, Source, rust_sources, sources, verdict, words::split};

const PERSONS: [&str; 5] = ["whoever", "somebody", "nobody", "anybody", "everybody"];
const SPEECH: [&str; 9] = [
    "say", "says", "said", "tell", "tells", "told", "hear", "hears", "heard",
];
/// Besides [`SPEECH`], the words that are no part of a definition's name.
const UNUSUAL_NAMES: [&str; 8] = [
    "ear", "ears", "hearer", "mouth", "patience", "most", "longest", "largest",
];
const DURATION_KINDS: [&str; 12] = [
    "TIMEOUT", "INTERVAL", "TTL", "DELAY", "PERIOD", "BACKOFF", "DEADLINE", "GRACE", "LEASE",
    "LIMIT", "WINDOW", "AGE",
];
const DEFINITIONS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "mod", "const", "static", "type",
];

/// How many of 1,000 items may break a rule.
#[derive(Clone, Copy)]
struct Rate(f64);

const MAX_PERSONS: Rate = Rate(0.2);
const MAX_SPEECH: Rate = Rate(1.0);
const MAX_UNUSUAL_NAMES: Rate = Rate(1.5);
const MAX_UNNAMED_DURATIONS: Rate = Rate(100.0);

/// What a rule counted: all items, and those that break it.
#[derive(Default)]
struct Count {
    items: usize,
    offences: Vec<Offence>,
}

impl Count {
    /// Every offence when there are more than the rate allows; none otherwise.
    fn above(self, max: Rate) -> Vec<Offence> {
        let per_thousand = 1000.0 * as_f64(self.offences.len()) / as_f64(self.items.max(1));
        if per_thousand <= max.0 {
            return Vec::new();
        }
        let suffix = format!(" ({per_thousand:.2} per 1,000, {} at most)", max.0);
        let mut offences = self.offences;
        for offence in &mut offences {
            offence.rule.push_str(&suffix);
        }
        offences
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|token| !token.is_empty())
}

/// The prose of a line: all of it in a document, a whole-line comment in code.
fn prose<'a>(source: &Source, line: &'a str) -> Option<&'a str> {
    if source.path.ends_with(".rs") {
        line.trim_start().strip_prefix("//")
    } else {
        Some(line)
    }
}

fn count_words(sources: &[Source], banned: &[&str]) -> Count {
    let mut count = Count::default();
    for source in sources {
        for (number, line) in source.lines() {
            for word in tokens(prose(source, line).unwrap_or_default()) {
                count.items += usize::from(word.contains(char::is_alphabetic));
                if banned.contains(&word.to_lowercase().as_str()) {
                    let rule = format!("`{word}`: name the actor and what it does");
                    count
                        .offences
                        .push(Offence::new(&source.path, number, rule));
                }
            }
        }
    }
    count
}

/// The names that a line of code defines.
fn definitions(code: &str) -> Vec<String> {
    let code = code.replace("'static", "");
    let found: Vec<_> = tokens(&code).collect();
    found
        .windows(2)
        .filter(|pair| DEFINITIONS.contains(&pair[0]) && !DEFINITIONS.contains(&pair[1]))
        .map(|pair| pair[1].to_owned())
        .collect()
}

/// The words of a name in `snake_case`, `SCREAMING_CASE` or `CamelCase`, in small letters.
fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && after_small) {
            words.push(String::new());
        }
        after_small = character.is_lowercase() || character.is_numeric();
        if character != '_' {
            let last = words.last_mut().unwrap();
            last.extend(character.to_lowercase());
        }
    }
    words
}

fn count_names(sources: &[Source]) -> Count {
    let mut count = Count::default();
    for source in sources {
        for (number, line) in source.lines() {
            for name in definitions(&split(line).0) {
                count.items += 1;
                let unusual = name_words(&name)
                    .into_iter()
                    .find(|word| [&SPEECH[..], &UNUSUAL_NAMES].concat().contains(&&**word));
                if let Some(word) = unusual {
                    let rule = format!("`{name}` is named with `{word}`");
                    count
                        .offences
                        .push(Offence::new(&source.path, number, rule));
                }
            }
        }
    }
    count
}

/// The constant of type `Duration` that a line defines.
fn duration(line: &str) -> Option<&str> {
    let (_, definition) = line.split_once("const ")?;
    let (name, kind) = definition.split_once(':')?;
    let kind = kind.trim_start();
    let kind = kind.strip_prefix("std::time::").unwrap_or(kind);
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    (kind.starts_with("Duration") && name.chars().all(is_name)).then_some(name)
}

fn count_durations(sources: &[Source]) -> Count {
    let mut count = Count::default();
    for source in sources {
        for (number, line) in source.lines() {
            let (code, _) = split(line);
            let Some(name) = duration(&code) else {
                continue;
            };
            count.items += 1;
            if !name.split('_').any(|word| DURATION_KINDS.contains(&word)) {
                let rule = format!("`{name}` does not name its kind, as `…_TIMEOUT` does");
                count
                    .offences
                    .push(Offence::new(&source.path, number, rule));
            }
        }
    }
    count
}

fn documents() -> Vec<Source> {
    sources(|path| path.ends_with(".md") && !path.contains("snapshots"))
}

#[test]
fn comments_name_actors() {
    let sources = rust_sources();
    verdict(&count_words(&sources, &PERSONS).above(MAX_PERSONS));
    verdict(&count_words(&sources, &SPEECH).above(MAX_SPEECH));
}

#[test]
fn documents_name_actors() {
    let sources = documents();
    verdict(&count_words(&sources, &PERSONS).above(MAX_PERSONS));
    verdict(&count_words(&sources, &SPEECH).above(MAX_SPEECH));
}

#[test]
fn definitions_use_standard_terms() {
    verdict(&count_names(&rust_sources()).above(MAX_UNUSUAL_NAMES));
}

#[test]
fn duration_constants_name_their_kind() {
    verdict(&count_durations(&rust_sources()).above(MAX_UNNAMED_DURATIONS));
}

/// Holds a rule against the samples of one file: the lines on which it finds an offence.
#[track_caller]
fn expect_lines(path: &str, text: &str, rule: impl Fn(&[Source]) -> Vec<Offence>, lines: &[usize]) {
    let source = Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let found = rule(&[source]);
    let places: Vec<_> = found.iter().map(|offence| offence.line).collect();
    assert_eq!(places, lines, "{path}: {text:?} gave {found:?}");
    assert!(found.iter().all(|offence| offence.path == path));
}

#[test]
fn banned_words_are_found_in_prose() {
    let persons = |sources: &[Source]| count_words(sources, &PERSONS).above(MAX_PERSONS);
    let speech = |sources: &[Source]| count_words(sources, &SPEECH).above(MAX_SPEECH);
    expect_lines("src/a.rs", "// One.\n/// Nobody waits.\n", persons, &[2]);
    expect_lines("src/a.rs", "let nobody = 1;\n// A caller.\n", persons, &[]);
    expect_lines("docs/a.md", "It waits for somebody.\n", persons, &[1]);
    expect_lines("docs/a.md", "A worker waits.\n", persons, &[]);
    expect_lines(
        "src/a.rs",
        "    //! It is told, and says so.\n",
        speech,
        &[1, 1],
    );
    expect_lines("docs/a.md", "A sayable\n`--say` flag\n", speech, &[2]);
}

#[test]
fn rare_words_pass_below_the_rate() {
    let text = "// caller ".repeat(1000);
    let once = |sources: &[Source]| count_words(sources, &SPEECH).above(MAX_SPEECH);
    expect_lines("src/a.rs", &format!("{text}\n// says\n"), once, &[]);
    expect_lines(
        "src/a.rs",
        &format!("{text}\n// says\n// told\n"),
        once,
        &[2, 3],
    );
}

#[test]
fn banned_words_are_found_in_definitions() {
    let rule = |sources: &[Source]| count_names(sources).above(MAX_UNUSUAL_NAMES);
    expect_lines("src/a.rs", "fn send() {}\nfn say_it() {}\n", rule, &[2]);
    expect_lines("src/a.rs", "struct LongestFrame;\n", rule, &[1]);
    expect_lines("src/a.rs", "const fn heard() {}\n", rule, &[1]);
    expect_lines("src/a.rs", "const MOST_CALLS: usize = 1;\n", rule, &[1]);
    expect_lines("src/a.rs", "type Year = u16; fn almost() {}\n", rule, &[]);
    expect_lines(
        "src/a.rs",
        "let said: &'static str = \"fn say\";\n",
        rule,
        &[],
    );
}

#[test]
fn durations_without_a_kind_are_found() {
    let rule = |sources: &[Source]| count_durations(sources).above(MAX_UNNAMED_DURATIONS);
    expect_lines(
        "src/a.rs",
        "const ACK_TIMEOUT: Duration = A;\nconst REST: Duration = B;\n",
        rule,
        &[2],
    );
    expect_lines(
        "src/a.rs",
        "const PAGE: std::time::Duration = A;\n",
        rule,
        &[1],
    );
    expect_lines("src/a.rs", "pub const MAX_AGE: Duration = A;\n", rule, &[]);
    expect_lines("src/a.rs", "const REST: u64 = 1;\n", rule, &[]);
}
