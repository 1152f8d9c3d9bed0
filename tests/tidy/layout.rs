//! The shape of the source tree: heads, lengths, names and depth of files.

use super::{Offence, Source, check, rust_sources, verdict};

const LONGEST: usize = 600;
const LONGEST_TEST: usize = 800;
const MOST: usize = 400;
const MEDIAN: usize = 150;

/// Names that say nothing about what is inside, so that everything ends up inside.
const EMPTY_NAMES: [&str; 9] = [
    "util", "utils", "common", "helper", "helpers", "manager", "managers", "misc", "shared",
];

fn head(source: &Source) -> Vec<Offence> {
    let opens = source.text.starts_with("//!");
    let rule = "opens with `//!`: what the file owns and what it must never do";
    if opens {
        Vec::new()
    } else {
        vec![Offence::new(&source.path, 1, rule)]
    }
}

fn length(source: &Source) -> Vec<Offence> {
    let limit = if source.is_test() {
        LONGEST_TEST
    } else {
        LONGEST
    };
    let lines = source.line_count();
    let rule = format!("{lines} lines, {limit} at most");
    if lines <= limit {
        Vec::new()
    } else {
        vec![Offence::new(&source.path, limit + 1, rule)]
    }
}

/// Nine files in ten are short, and half of them very short.
fn spread(files: &[Source]) -> Vec<Offence> {
    let mut counted: Vec<_> = files
        .iter()
        .filter(|file| !file.is_test())
        .map(|file| (file.line_count(), file))
        .collect();
    counted.sort_by_key(|(lines, _)| *lines);
    let allowed_long = counted.len() / 10;
    let long: Vec<_> = counted.iter().filter(|(lines, _)| *lines > MOST).collect();
    let mut offences = Vec::new();
    if long.len() > allowed_long {
        offences.extend(long.iter().map(|(lines, file)| {
            let rule = format!(
                "{lines} lines: one file in ten may have more than {MOST}, so {allowed_long}"
            );
            Offence::new(&file.path, MOST + 1, rule)
        }));
    }
    let median = counted
        .get(counted.len() / 2)
        .map_or(0, |(lines, _)| *lines);
    if median > MEDIAN {
        offences.extend(counted.iter().filter(|(lines, _)| *lines > MEDIAN).map(
            |(lines, file)| {
                let rule = format!("{lines} lines: the median is {median}, {MEDIAN} at most");
                Offence::new(&file.path, MEDIAN + 1, rule)
            },
        ));
    }
    offences
}

fn names(source: &Source) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut object = |line, rule: String| offences.push(Offence::new(&source.path, line, rule));
    for part in source.path.split('/') {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&stem) {
            object(1, format!("`{stem}` is no noun of the domain"));
        }
        if part == "mod.rs" {
            object(
                1,
                "`foo.rs` stands beside `foo/`; there is no mod.rs".to_owned(),
            );
        }
    }
    for (number, line) in source.lines() {
        let item = line
            .trim_start()
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        let module = item
            .strip_prefix("mod ")
            .map(|rest| rest.trim_end_matches([';', '{', ' ']));
        if let Some(name) = module.filter(|name| EMPTY_NAMES.contains(name)) {
            object(number, format!("`{name}` is no noun of the domain"));
        }
    }
    offences
}

fn depth(source: &Source) -> Vec<Offence> {
    let below = source
        .path
        .split('/')
        .skip_while(|part| *part != "src")
        .skip(1)
        .count();
    // The file itself is one of the parts.
    let rule = "at most two folders below src";
    if below <= 3 {
        Vec::new()
    } else {
        vec![Offence::new(&source.path, 1, rule)]
    }
}

#[test]
fn files_are_laid_out_as_agreed() {
    let files = rust_sources();
    let mut offences = spread(&files);
    for rule in [head, length, names, depth] {
        offences.extend(files.iter().flat_map(rule));
    }
    verdict(&offences);
}

#[test]
fn heads_can_fail() {
    check(head, "src/a.rs", "//! Owns a.\n", 0);
    check(head, "src/a.rs", "use std::fmt;\n", 1);
    check(head, "src/a.rs", "", 1);
    check(head, "src/a.rs", "\n//! Late.\n", 1);
}

#[test]
fn lengths_can_fail() {
    check(length, "src/a.rs", &"\n".repeat(600), 0);
    check(length, "src/a.rs", &"\n".repeat(601), 1);
    check(length, "tests/a.rs", &"\n".repeat(800), 0);
    check(length, "services/edge/tests/a.rs", &"\n".repeat(801), 1);
}

#[test]
fn spreads_can_fail() {
    fn sample(lengths: &[usize], expected: usize) {
        let file = |lines: &usize| Source {
            path: "src/a.rs".into(),
            text: "\n".repeat(*lines),
        };
        let files: Vec<_> = lengths.iter().map(file).collect();
        let found = spread(&files);
        assert_eq!(found.len(), expected, "{lengths:?} gave {found:?}");
    }
    sample(&[100, 100, 100, 100, 100, 100, 100, 100, 100, 500], 0);
    sample(&[100, 100, 100, 100, 100, 100, 100, 100, 401, 500], 2);
    sample(&[100, 151, 151], 2);
    sample(&[100, 150, 399], 0);
}

#[test]
fn names_can_fail() {
    check(names, "src/frame.rs", "mod decoder;\n", 0);
    check(names, "src/utils.rs", "", 1);
    check(names, "src/frame/mod.rs", "", 1);
    check(names, "src/common/frame.rs", "", 1);
    check(names, "src/frame.rs", "    pub(crate) mod helpers {\n", 1);
    check(names, "src/frame.rs", "pub mod misc;\n", 1);
}

#[test]
fn depths_can_fail() {
    check(depth, "crates/x/src/a/b/c.rs", "", 0);
    check(depth, "crates/x/src/a/b/c/d.rs", "", 1);
    check(depth, "tests/a/b/c/d/e.rs", "", 0);
}
