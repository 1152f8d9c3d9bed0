//! House rules that no lint covers, as tests: they read the repository and list every offence.
//! Invariant: every rule has a sample that it rejects, and reports all offences, not the first.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its small functions too"
)]

#[path = "tidy/api.rs"]
mod api;
#[path = "tidy/attacks.rs"]
mod attacks;
#[path = "tidy/console.rs"]
mod console;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/layout.rs"]
mod layout;
#[path = "tidy/messages.rs"]
mod messages;
#[path = "tidy/postgres.rs"]
mod postgres;
#[path = "tidy/promises.rs"]
mod promises;
#[path = "tidy/terms.rs"]
mod terms;
#[path = "tidy/words.rs"]
mod words;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// A line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Offence {
    path: String,
    line: usize,
    rule: String,
}

impl Offence {
    fn new(path: &str, line: usize, rule: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule: rule.into(),
        }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

/// A text file of the repository; `path` is relative to the root, with `/` between its parts.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    fn line_count(&self) -> usize {
        self.text.lines().count()
    }

    /// Whether the whole file is a test. Tests may be longer.
    fn is_test(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "tests.rs")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Folders of generated files.
const FOREIGN: [&str; 5] = ["target", "node_modules", "artifacts", "corpus", "coverage"];

fn collect(folder: &Path, prefix: &str, wanted: &dyn Fn(&str) -> bool, found: &mut Vec<Source>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
            collect(&entry.path(), &format!("{path}/"), wanted, found);
        } else if kind.is_file() && wanted(&path) {
            let text = fs::read_to_string(entry.path()).unwrap();
            found.push(Source { path, text });
        }
    }
}

fn sources(wanted: impl Fn(&str) -> bool) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), "", &wanted, &mut found);
    found
}

fn rust_sources() -> Vec<Source> {
    let found = sources(|path| path.ends_with(".rs"));
    assert!(!found.is_empty(), "no code below {}", root().display());
    found
}

/// Fails with every offence, one per line.
#[track_caller]
fn verdict(offences: &[Offence]) {
    let list: Vec<_> = offences.iter().map(ToString::to_string).collect();
    assert!(
        list.is_empty(),
        "{} offences:\n{}\n",
        list.len(),
        list.join("\n")
    );
}

/// Applies a rule to a sample: it must find exactly this many offences.
#[track_caller]
fn check(rule: impl Fn(&Source) -> Vec<Offence>, path: &str, text: &str, expected: usize) {
    let source = Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let found = rule(&source);
    assert_eq!(found.len(), expected, "{path}: {text:?} gave {found:?}");
}

#[test]
#[should_panic(expected = "src/a.rs:7: too long")]
fn verdict_with_offence_contains_place_and_rule() {
    verdict(&[Offence::new("src/a.rs", 7, "too long")]);
}
