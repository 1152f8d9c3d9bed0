//! Bans skipped tests, sleeps in tests, unfinished bodies and silenced lints.
//! String literals are not checked; comments only for notes about unfinished work.

use super::{Offence, Source, check, rust_sources, verdict};

/// A line's code without its string literals, and its comment.
pub(super) fn split(line: &str) -> (String, String) {
    let mut code = String::with_capacity(line.len());
    let mut quoted = false;
    let line = line.replace("'\"'", "''").replace("'\\\"'", "''");
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' if quoted => {
                rest.next();
            }
            '"' => quoted = !quoted,
            '/' if !quoted && rest.as_str().starts_with('/') => {
                return (code, rest.as_str().to_owned());
            }
            _ if quoted => {}
            _ => code.push(character),
        }
    }
    (code, String::new())
}

/// The string literals of a line, as they are written. One that ends on a later line is cut.
pub(super) fn literals(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current: Option<String> = None;
    let line = line.replace("'\"'", "''").replace("'\\\"'", "''");
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match (&mut current, character) {
            // The letter of an escape is no part of the text.
            (Some(_), '\\') => {
                rest.next();
            }
            (Some(_), '"') => found.extend(current.take()),
            (Some(literal), _) => literal.push(character),
            (None, '"') => current = Some(String::new()),
            (None, '/') if rest.as_str().starts_with('/') => break,
            (None, _) => {}
        }
    }
    found.extend(current);
    found
}

/// The line from which on a file is test code only: the tests come last in a file.
pub(super) fn tests_begin(source: &Source) -> usize {
    if source.is_test() {
        return 1;
    }
    let lines: Vec<_> = source.text.lines().map(str::trim).collect();
    lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "))
        .map_or(usize::MAX, |index| index + 1)
}

fn words(source: &Source) -> Vec<Offence> {
    let tests = tests_begin(source);
    let mut offences = Vec::new();
    for (number, line) in source.lines() {
        let (code, comment) = split(line);
        let attribute = code.trim_start().starts_with("#[") || code.trim_start().starts_with("#![");
        let findings = [
            (
                attribute && code.contains("[ignore"),
                "a test that is skipped tests nothing",
            ),
            (
                number >= tests
                    && code.contains("sleep(")
                    && (code.contains("thread::") || !is_paced(source, number)),
                "a test polls for a value with a deadline; it does not sleep",
            ),
            (
                code.contains("todo!(") || code.contains("unimplemented!("),
                "no stubs",
            ),
            (
                attribute && code.contains("allow("),
                "`#[expect(…, reason)]`, never allow",
            ),
            (
                marks_unfinished(&comment),
                "no notes about unfinished work: do it, or leave it",
            ),
        ];
        let found = findings.iter().filter(|(found, _)| *found);
        offences.extend(found.map(|(_, rule)| Offence::new(&source.path, number, *rule)));
    }
    offences
}

/// Whether the line with this number (from 1) is in a loop, which polls, or in a `select!`, where
/// the sleep is a timeout. rustfmt indents the enclosing block less.
fn is_paced(source: &Source, number: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let above: Vec<_> = source.text.lines().take(number).collect();
    let mut inner = above.last().map_or(0, |line| indent(line));
    for line in above.iter().rev().filter(|line| !line.trim().is_empty()) {
        if indent(line) < inner {
            inner = indent(line);
            let words = line.trim_start();
            let starts = ["loop ", "while ", "for "]
                .iter()
                .any(|word| words.starts_with(word));
            if starts || words.contains("select!") {
                return true;
            }
        }
    }
    false
}

/// Whether a comment marks unfinished work.
fn marks_unfinished(comment: &str) -> bool {
    ["TODO", "FIXME", "XXX", "HACK"]
        .iter()
        .any(|mark| comment.contains(mark))
}

#[test]
fn code_is_finished_and_lints_are_active() {
    verdict(&rust_sources().iter().flat_map(words).collect::<Vec<_>>());
}

#[test]
fn words_can_fail() {
    fn sample(text: &str, expected: usize) {
        check(words, "src/a.rs", text, expected);
    }
    sample("fn a() {}\n", 0);
    sample("#[ignore]\n", 1);
    sample("#[ignore = \"slow\"]\n", 1);
    sample("    todo!()\n", 1);
    sample("    unimplemented!(\"later\")\n", 1);
    sample("#[allow(dead_code)]\n", 1);
    sample("#![allow(missing_docs)]\n", 1);
    sample("#[cfg_attr(test, allow(dead_code))]\n", 1);
    sample("#[expect(dead_code, reason = \"allow(x) is banned\")]\n", 0);
    sample("// TODO: the rest\n", 1);
    sample(
        "let a = \"todo!()\"; // todo!() in a string is a string\n",
        0,
    );
    sample("let quote = '\"'; todo!()\n", 1);
    sample("if allow(x) { }\n", 0);
}

#[test]
fn sleeps_are_found_in_tests_only() {
    let body = "    tokio::time::sleep(pause).await;\n";
    check(words, "src/a.rs", body, 0);
    check(words, "tests/a.rs", body, 1);
    let tests = "#[cfg(test)]\nmod tests {\n}\n";
    check(words, "src/a.rs", &format!("{body}{tests}"), 0);
    check(words, "src/a.rs", &format!("{tests}{body}"), 1);
    check(words, "tests/a.rs", "    sleep_until(deadline).await;\n", 0);
}

#[test]
fn sleep_in_loop_is_allowed() {
    fn sample(body: &str, expected: usize) {
        check(words, "tests/a.rs", body, expected);
    }
    sample(
        "    while !holds() {\n        assert!(soon);\n        sleep(pause).await;\n    }\n",
        0,
    );
    sample(
        "    loop {\n        step();\n    }\n    sleep(pause).await;\n",
        1,
    );
    sample(
        "    tokio::select! {\n        () = sleep(pause) => step(),\n    }\n",
        0,
    );
    sample("    loop {\n        std::thread::sleep(pause);\n    }\n", 1);
}
