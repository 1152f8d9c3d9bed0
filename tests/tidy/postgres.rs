//! The supported versions of PostgreSQL are stated once in code; other files repeat it.

use crate::{Offence, Source, sources, verdict};

/// The file whose constant is the statement.
const SOURCE: &str = "crates/store/src/database/server_version.rs";
/// What precedes the version in other files, and what follows it.
const STATEMENTS: [(&str, &str); 2] = [("PostgreSQL ", " or newer"), ("OLDEST_POSTGRES=", "\n")];

/// The value of a constant.
fn constant(source: &str, name: &str) -> Option<u32> {
    let (_, value) = source.split_once(&format!("{name}: u32 = "))?;
    value.split_once(';')?.0.parse().ok()
}

/// Statements of another oldest version than this one. A sentence may go on in the next line.
fn check(source: &Source, oldest: u32) -> Vec<Offence> {
    let text = source
        .text
        .replace("\n///", "")
        .replace("or\nnewer", "or newer\n");
    let mut offences = Vec::new();
    for (before, after) in STATEMENTS {
        let mut rest = text.as_str();
        while let Some(at) = rest.find(before) {
            rest = &rest[at + before.len()..];
            let Some(version) = rest.find(after).and_then(|end| rest.get(..end)) else {
                continue;
            };
            if version
                .parse::<u32>()
                .is_ok_and(|version| version != oldest)
            {
                let line = 1 + text[..text.len() - rest.len()].matches('\n').count();
                let rule = format!("PostgreSQL {version} is named, and {oldest} is the oldest");
                offences.push(Offence::new(&source.path, line, rule));
            }
        }
    }
    offences
}

#[test]
fn oldest_postgres_is_the_same_everywhere() {
    let all = sources(|path| {
        let kinds = [".md", ".rs", ".sh", ".yml", ".yaml", ".json"];
        kinds.iter().any(|kind| path.ends_with(kind)) && path != "CHANGELOG.md"
    });
    let statement = all.iter().find(|source| source.path == SOURCE).unwrap();
    let oldest = constant(&statement.text, "MIN_POSTGRES_VERSION").unwrap();
    let offences: Vec<_> = all
        .iter()
        .filter(|source| !source.path.starts_with("tests/tidy"))
        .flat_map(|source| check(source, oldest))
        .collect();
    verdict(&offences);
    let newest = constant(&statement.text, "MAX_TESTED_POSTGRES_VERSION").unwrap();
    let operations = all
        .iter()
        .find(|source| source.path == "docs/operations.md");
    let sentence = format!("PostgreSQL {oldest} or newer, tested with {oldest} and {newest}.");
    assert!(operations.unwrap().text.contains(&sentence), "{sentence}");
}

#[test]
fn other_version_is_offence() {
    let source = |text: &str| Source {
        path: "README.md".to_owned(),
        text: text.to_owned(),
    };
    for good in [
        "PostgreSQL 15 or newer",
        "PostgreSQL 17 with pgvector",
        "OLDEST_POSTGRES=15\n",
    ] {
        assert_eq!(check(&source(good), 15), [], "{good}");
    }
    for bad in [
        "PostgreSQL 13 or newer",
        "PostgreSQL 13 or\nnewer",
        "OLDEST_POSTGRES=13\n",
    ] {
        assert_eq!(check(&source(bad), 15).len(), 1, "{bad}");
    }
}
