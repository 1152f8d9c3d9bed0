//! The files of the console: what its policy forbids is not in them, and they stay short.

use super::{Offence, Source, check, sources, verdict};

const LONGEST: usize = 600;

/// What would run or style a string, or lead elsewhere, each with the reason. The vendored libraries
/// have their own tests.
const FORBIDDEN: [(&str, &str); 9] = [
    (
        "dangerouslySetInnerHTML",
        "text nodes only: no HTML from strings",
    ),
    ("innerHTML", "text nodes only: no HTML from strings"),
    ("outerHTML", "text nodes only: no HTML from strings"),
    (
        "insertAdjacentHTML",
        "text nodes only: no HTML from strings",
    ),
    ("document.write", "text nodes only: no HTML from strings"),
    ("eval(", "no code from strings"),
    ("new Function", "no code from strings"),
    ("style=", "styles are in console/style"),
    ("http://", "nothing from other hosts"),
];

/// SVG names its vocabulary by such an address; it loads nothing.
const NAMESPACE: &str = "http://www.w3.org/2000/svg";

fn is_ours(path: &str) -> bool {
    let shown = [".js", ".css", ".html", ".svg"];
    path.starts_with("console/")
        && !path.starts_with("console/vendor/")
        && shown.iter().any(|extension| path.ends_with(extension))
}

fn forbidden(source: &Source) -> Vec<Offence> {
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        let line = line.replace(NAMESPACE, "");
        let broken = FORBIDDEN.iter().filter(|(text, _)| line.contains(text));
        found.extend(
            broken.map(|(text, rule)| {
                Offence::new(&source.path, number, format!("`{text}`: {rule}"))
            }),
        );
    }
    found
}

fn length(source: &Source) -> Vec<Offence> {
    let lines = source.line_count();
    if lines <= LONGEST {
        return Vec::new();
    }
    let rule = format!("{lines} lines, {LONGEST} at most");
    vec![Offence::new(&source.path, LONGEST + 1, rule)]
}

/// A module states at its top what it is for; lists of texts are named after it.
fn head(source: &Source) -> Vec<Offence> {
    let is_module = source.path.ends_with(".js") && !source.path.starts_with("console/text/");
    if !is_module || source.text.starts_with("/**") || source.text.starts_with("// ") {
        return Vec::new();
    }
    let rule = "opens with a comment: what the module is for";
    vec![Offence::new(&source.path, 1, rule)]
}

#[test]
fn console_runs_no_strings_and_stays_short() {
    let files = sources(is_ours);
    assert!(files.len() > 40, "{} files", files.len());
    let rules = [forbidden, length, head];
    let found = files
        .iter()
        .flat_map(|file| rules.iter().flat_map(|rule| rule(file)));
    verdict(&found.collect::<Vec<_>>());
}

#[test]
fn console_rules_can_fail() {
    let path = "console/screens/a.js";
    check(forbidden, path, "element.innerHTML = text;\n", 1);
    check(
        forbidden,
        path,
        "h('p', { dangerouslySetInnerHTML: {} });\n",
        1,
    );
    check(forbidden, path, "window.eval('1');\n", 1);
    check(
        forbidden,
        "console/index.html",
        "<p style=\"color: red\">\n",
        1,
    );
    check(forbidden, path, "fetch('http://example.com');\n", 1);
    check(
        forbidden,
        "console/icon.svg",
        &format!("<svg xmlns=\"{NAMESPACE}\"/>\n"),
        0,
    );
    check(length, path, &"//\n".repeat(LONGEST + 1), 1);
    check(head, path, "import { h } from '../preact.js';\n", 1);
    check(head, path, "/** Shows it. */\n", 0);
}
