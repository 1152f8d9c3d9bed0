//! The documents: the overview stays short, and every link leads somewhere.

use std::path::Path;

use super::{Offence, Source, check, root, sources, verdict};

const OVERVIEW: &str = "ARCHITECTURE.md";
const OVERVIEW_LINES: usize = 150;

fn brevity(source: &Source) -> Vec<Offence> {
    let lines = source.line_count();
    let rule = format!("{lines} lines, {OVERVIEW_LINES} at most: the overview is read in one go");
    if source.path != OVERVIEW || lines <= OVERVIEW_LINES {
        return Vec::new();
    }
    vec![Offence::new(&source.path, OVERVIEW_LINES + 1, rule)]
}

/// A line without its code spans, which may show what a link looks like.
fn prose(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// What the links of a line point at.
fn targets(line: &str) -> Vec<String> {
    let prose = prose(line);
    let inline = prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let reference = line
        .starts_with('[')
        .then(|| line.split_once("]: "))
        .flatten()
        .map(|(_, target)| target.trim());
    inline.chain(reference).map(str::to_owned).collect()
}

fn leads_outside(target: &str) -> bool {
    target.is_empty()
        || ["http://", "https://", "mailto:", "#"]
            .iter()
            .any(|start| target.starts_with(start))
}

fn exists(from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or(target);
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let relative = match path.strip_prefix('/') {
        Some(absolute) => Path::new(absolute).to_owned(),
        None => folder.join(path),
    };
    root().join(relative).exists()
}

fn links(source: &Source) -> Vec<Offence> {
    let mut fenced = false;
    let mut offences = Vec::new();
    for (number, line) in source.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(line) {
            if !leads_outside(&target) && !exists(&source.path, &target) {
                let rule = format!("the link to `{target}` leads nowhere");
                offences.push(Offence::new(&source.path, number, rule));
            }
        }
    }
    offences
}

#[test]
fn documents_are_short_and_connected() {
    let documents = sources(|path| path.ends_with(".md"));
    let mut offences: Vec<_> = documents.iter().flat_map(links).collect();
    offences.extend(documents.iter().flat_map(brevity));
    for needed in ["README.md", OVERVIEW] {
        if !documents.iter().any(|document| document.path == needed) {
            offences.push(Offence::new(needed, 1, "is missing"));
        }
    }
    verdict(&offences);
}

#[test]
fn brevity_can_fail() {
    check(brevity, OVERVIEW, &"line\n".repeat(150), 0);
    check(brevity, OVERVIEW, &"line\n".repeat(151), 1);
    check(brevity, "docs/protocol.md", &"line\n".repeat(151), 0);
}

#[test]
fn links_can_fail() {
    fn sample(text: &str, expected: usize) {
        check(links, "docs/a.md", text, expected);
    }
    sample("[tidy](../tests/tidy.rs)", 0);
    sample("[tidy](/tests/tidy.rs#rules)", 0);
    sample("[here](#heading) [there](https://example.org/x)", 0);
    sample("[gone](gone.md) and [too](../gone.md \"title\")", 2);
    sample("`[shown](gone.md)`", 0);
    sample("```\n[shown](gone.md)\n```\n[gone](gone.md)", 1);
    sample("[gone]: gone.md", 1);
}
