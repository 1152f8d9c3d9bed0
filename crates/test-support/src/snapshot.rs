//! Compares a frozen contract with its reviewed snapshot in `tests/compatibility`.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, env, fs, path::Path};

/// Fails unless the lines are those of `tests/compatibility/<name>`.
///
/// Other processes and clients of other releases depend on these lines. `UPDATE_COMPATIBILITY=1`
/// rewrites the file; only added lines are acceptable in a minor release.
pub fn check(name: &str, lines: impl IntoIterator<Item = String>) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/compatibility");
    let path = Path::new(folder).join(name);
    let lines: Vec<String> = lines.into_iter().collect();
    let current = format!("{}\n", lines.join("\n"));
    if env::var_os("UPDATE_COMPATIBILITY").is_some() {
        fs::write(&path, &current).expect("the snapshot is writable");
    }
    let reviewed = fs::read_to_string(&path).unwrap_or_default();
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
        (reviewed.lines().collect(), current.lines().collect());
    let removed: Vec<String> = old
        .difference(&new)
        .map(|line| format!("- {line}"))
        .collect();
    let added: Vec<String> = new
        .difference(&old)
        .map(|line| format!("+ {line}"))
        .collect();
    assert!(
        reviewed == current,
        "tests/compatibility/{name} differs. A removed or changed line is a compatibility break: \
         restore the old behaviour. For an intended addition run this test with \
         UPDATE_COMPATIBILITY=1 and review the diff.\n{}\n{}",
        removed.join("\n"),
        added.join("\n")
    );
}
