//! Every promise of docs/invariants.md that is built has a test named after it.

use crate::{Offence, Source, rust_sources, verdict};

/// The promises that are kept today.
const BUILT: [u8; 18] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
];

/// Promises without a test whose name carries their number, as in `i9_…` or `i2_i5_…`.
fn check(sources: &[Source]) -> Vec<Offence> {
    let mut proven: Vec<u8> = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        for (_, line) in source.lines() {
            let name = line.split("fn ").nth(1).unwrap_or_default();
            let numbers = name
                .split('_')
                .map_while(|part| part.strip_prefix('i')?.parse::<u8>().ok());
            proven.extend(numbers);
        }
    }
    let missing = BUILT.iter().filter(|number| !proven.contains(number));
    missing
        .map(|number| {
            let rule = format!("no test is named after I{number} (`fn i{number}_…`)");
            Offence::new("docs/invariants.md", 1, rule)
        })
        .collect()
}

#[test]
fn every_promise_has_a_test_of_its_name() {
    verdict(&check(&rust_sources()));
}

#[test]
fn promise_without_test_is_offence() {
    let all: Vec<String> = BUILT
        .iter()
        .map(|n| format!("async fn i{n}_x() {{}}"))
        .collect();
    let source = |lines: &[String]| {
        vec![Source {
            path: "tests/a.rs".to_owned(),
            text: lines.join("\n"),
        }]
    };
    assert_eq!(check(&source(&all)), []);
    let found = check(&source(&all[1..]));
    assert_eq!(found.len(), 1);
    assert!(found[0].rule.contains("I1 "), "{}", found[0]);
    let both = ["fn i2_i5_x() {}".to_owned()];
    assert_eq!(check(&source(&both)).len(), BUILT.len() - 2);
}
