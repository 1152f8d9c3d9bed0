//! Every budget of docs/limits.md is taken by an attack of `tests/e2e/neighbours/`.

use crate::{Offence, Source, rust_sources, sources, verdict};

const DOCUMENT: &str = "docs/limits.md";
const ATTACKS: &str = "tests/e2e/neighbours/attacks/";

/// Budgets that no attack takes, and why.
const EXCEPTIONS: [(&str, &str); 4] = [
    (
        "embedding_queries",
        "no query waits: one without an embedding finds words at once",
    ),
    (
        "registrations",
        "each organisation has one of its own, so there is nothing to share",
    ),
    (
        "turn_places",
        "no process reports who holds it; the attack on `chat_turns` exceeds its share at full size",
    ),
    (
        "queued_messages",
        "it fills only while Redis does not accept messages, and then nothing else passes either",
    ),
];

/// The lines of the tables of budgets, each with the name of its budget.
fn budgets(document: &Source) -> impl Iterator<Item = (usize, &str)> {
    let is_before = |(_, line): &(usize, &str)| *line != "## Budgets";
    let section = document.lines().skip_while(is_before).skip(1);
    section
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter_map(|(number, line)| {
            let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
            Some((number, name))
        })
}

fn check(document: &Source, attacks: &[Source], exceptions: &[(&str, &str)]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (number, name) in budgets(document) {
        let taken = format!("(\"{name}\")");
        let mut attacks = attacks.iter();
        let is_attacked = attacks.any(|attack| {
            let takes = attack.text.split("Takes::").skip(1);
            takes.into_iter().any(|takes| {
                let variant = takes.trim_start_matches(char::is_alphanumeric);
                variant.starts_with(&taken)
            })
        });
        let is_exception = exceptions.iter().any(|(exception, _)| *exception == name);
        let rule = match (is_attacked, is_exception) {
            (false, false) => format!("no attack takes `{name}`"),
            (true, true) => format!("`{name}` is attacked, and an exception as well"),
            _ => continue,
        };
        offences.push(Offence::new(&document.path, number, rule));
    }
    for (name, _) in exceptions {
        if !budgets(document).any(|(_, budget)| budget == *name) {
            let rule = format!("`{name}` is an exception, but no budget");
            offences.push(Offence::new(&document.path, 1, rule));
        }
    }
    offences
}

#[test]
fn every_budget_is_taken_by_an_attack() {
    let documents = sources(|path| path == DOCUMENT);
    let mut attacks = rust_sources();
    attacks.retain(|source| source.path.starts_with(ATTACKS));
    verdict(&check(&documents[0], &attacks, &EXCEPTIONS));
}

#[test]
fn budget_without_attack_is_offence() {
    let source = |path: &str, text: &str| Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let rows = "# Limits\n| `no_budget` |\n## Budgets\n| budget |\n| `a_jobs` | 1 |\n| `b` | 2 |\n## HTTP\n| `c` |\n";
    let document = source(DOCUMENT, rows);
    let attack = |text| [source("tests/e2e/neighbours/attacks/edge.rs", text)];
    let offences = |text, exceptions: &[_]| check(&document, &attack(text), exceptions).len();
    assert_eq!(
        offences("Takes::All(\"a_jobs\"), Takes::Share(\"b\")", &[]),
        0
    );
    assert_eq!(offences("Takes::All(\"a_jobs\")", &[("b", "")]), 0);
    assert_eq!(offences("Takes::All(\"a_jobs\"), (\"b\")", &[]), 1);
    assert_eq!(offences("Takes::All(\"a\"), Takes::Share(\"b\")", &[]), 1);
    assert_eq!(
        offences("Takes::All(\"a_jobs\"), Takes::Share(\"b\")", &[("b", "")]),
        1
    );
    assert_eq!(
        offences("Takes::All(\"a_jobs\"), Takes::Share(\"b\")", &[("c", "")]),
        1
    );
}
