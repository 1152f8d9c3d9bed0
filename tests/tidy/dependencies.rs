//! Who may depend on whom: the arrows of the architecture, read from the manifests.

use super::{Offence, Source, check, sources, verdict};

/// Our crates and which of our crates each may use. `*` stands for all of them.
const ARROWS: [(&str, &[&str]); 24] = [
    ("switchboard-protocol", &[]),
    ("switchboard-mcp-flatbuffers", &["switchboard-protocol"]),
    ("switchboard-phrases", &[]),
    ("switchboard-capacity", &[]),
    ("switchboard-runtime", &[]),
    ("switchboard-tools", &[]),
    ("switchboard-console", &["switchboard-runtime"]),
    ("switchboard-rule-responder", &[]),
    ("switchboard-embeddings", &["switchboard-runtime"]),
    ("switchboard-completions", &["switchboard-runtime"]),
    (
        "switchboard-speech",
        &["switchboard-runtime", "switchboard-voice"],
    ),
    ("switchboard-voice", &["switchboard-protocol"]),
    (
        "switchboard-bus",
        &["switchboard-protocol", "switchboard-runtime"],
    ),
    ("switchboard-catalog", &["switchboard-protocol"]),
    (
        "switchboard-store",
        &[
            "switchboard-catalog",
            "switchboard-protocol",
            "switchboard-runtime",
        ],
    ),
    (
        "switchboard-identity",
        &[
            "switchboard-bus",
            "switchboard-store",
            "switchboard-protocol",
            "switchboard-runtime",
        ],
    ),
    (
        "switchboard-edge",
        &[
            "switchboard-bus",
            "switchboard-phrases",
            "switchboard-protocol",
            "switchboard-runtime",
            "switchboard-speech",
            "switchboard-voice",
        ],
    ),
    ("switchboard-chat", CHAT),
    ("switchboard-gateway", SERVICE_OVER_STORE),
    ("switchboard-control", SERVICE_OVER_STORE),
    ("switchboard", &["*"]),
    ("switchboard-test-support", &[]),
    (
        "xtask",
        &[
            "switchboard-capacity",
            "switchboard-protocol",
            "switchboard-test-support",
        ],
    ),
    (
        "switchboard-bench",
        &[
            "switchboard-bus",
            "switchboard-capacity",
            "switchboard-catalog",
            "switchboard-protocol",
            "switchboard-runtime",
            "switchboard-store",
            "switchboard-test-support",
            "switchboard-voice",
        ],
    ),
];

const SERVICE_OVER_STORE: &[&str] = &[
    "switchboard-bus",
    "switchboard-catalog",
    "switchboard-store",
    "switchboard-identity",
    "switchboard-embeddings",
    "switchboard-completions",
    "switchboard-mcp-flatbuffers",
    "switchboard-protocol",
    "switchboard-runtime",
    "switchboard-tools",
];

const CHAT: &[&str] = &[
    "switchboard-bus",
    "switchboard-catalog",
    "switchboard-store",
    "switchboard-identity",
    "switchboard-embeddings",
    "switchboard-completions",
    "switchboard-phrases",
    "switchboard-protocol",
    "switchboard-rule-responder",
    "switchboard-runtime",
    "switchboard-tools",
];

/// Libraries that one crate keeps to itself, so that its knowledge stays in one place.
const KEPT: [(&str, &[&str]); 3] = [
    ("sqlx", &["switchboard-store"]),
    ("redis", &["switchboard-bus", "switchboard-bench", "xtask"]),
    ("jsonschema", &["switchboard-protocol"]),
];

/// The protocol is bytes in, values out: nothing that does I/O or knows a clock.
const NOT_IN_PROTOCOL: [&str; 8] = [
    "tokio", "sqlx", "redis", "axum", "hyper", "reqwest", "socket2", "mio",
];

/// The names in one dependency table; a renamed dependency counts as what it really is.
fn names(table: Option<&toml::Value>) -> Vec<(String, String)> {
    let Some(table) = table.and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    table
        .iter()
        .map(|(key, value)| {
            let package = value.get("package").and_then(toml::Value::as_str);
            (key.clone(), package.unwrap_or(key).to_owned())
        })
        .collect()
}

/// What the crate ships with; dev-dependencies may look anywhere.
fn shipped(manifest: &toml::Value) -> Vec<(String, String)> {
    let mut found = names(manifest.get("dependencies"));
    found.extend(names(manifest.get("build-dependencies")));
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        for target in targets.values() {
            found.extend(names(target.get("dependencies")));
        }
    }
    found
}

/// Why `krate` must not depend on `dependency`, if it must not.
fn objection(krate: &str, allowed: &[&str], dependency: &str) -> Option<String> {
    let ours = ARROWS.iter().any(|(name, _)| *name == dependency);
    if ours && !allowed.contains(&"*") && !allowed.contains(&dependency) {
        return Some(format!("{krate} must not depend on {dependency}"));
    }
    if let Some((_, keepers)) = KEPT.iter().find(|(name, _)| *name == dependency)
        && !keepers.contains(&krate)
    {
        return Some(format!("{dependency} stays inside {}", keepers.join(", ")));
    }
    let does_io = NOT_IN_PROTOCOL
        .iter()
        .any(|name| dependency.starts_with(name));
    (krate == "switchboard-protocol" && does_io)
        .then(|| format!("the protocol does no I/O, so it must not depend on {dependency}"))
}

fn arrows(source: &Source) -> Vec<Offence> {
    let manifest: toml::Value = toml::from_str(&source.text).unwrap();
    let Some(krate) = manifest
        .get("package")
        .and_then(|package| package.get("name")?.as_str())
    else {
        return Vec::new();
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == krate) else {
        let rule = format!("{krate} has no row in the table of arrows in tests/tidy");
        return vec![Offence::new(&source.path, 1, rule)];
    };
    shipped(&manifest)
        .into_iter()
        .filter_map(|(key, package)| {
            let rule = objection(krate, allowed, &package)?;
            let line = source
                .lines()
                .find(|(_, line)| line.trim_start().starts_with(&key));
            Some(Offence::new(
                &source.path,
                line.map_or(1, |(number, _)| number),
                rule,
            ))
        })
        .collect()
}

#[test]
fn data_flows_one_way() {
    // The fuzz targets stand outside the workspace and ship nothing.
    let manifests = sources(|path| path.ends_with("Cargo.toml") && !path.starts_with("fuzz/"));
    verdict(&manifests.iter().flat_map(arrows).collect::<Vec<_>>());
}

/// A manifest with one dependency in one section, and how many offences that is.
#[track_caller]
fn sample(krate: &str, section: &str, dependency: &str, expected: usize) {
    let text = format!("[package]\nname = \"{krate}\"\n[{section}]\n{dependency}\n");
    check(arrows, "crates/x/Cargo.toml", &text, expected);
}

#[test]
fn arrows_can_fail() {
    let ships = |krate, dependency: &str, expected| {
        let line = format!("{dependency}.workspace = true");
        sample(krate, "dependencies", &line, expected);
    };
    ships("switchboard-edge", "switchboard-bus", 0);
    ships("switchboard-edge", "switchboard-store", 1);
    ships("switchboard-gateway", "switchboard-edge", 1);
    ships("switchboard-bus", "switchboard-store", 1);
    ships("switchboard-protocol", "tokio-util", 1);
    ships("switchboard-protocol", "serde", 0);
    ships("switchboard-control", "sqlx", 1);
    ships("switchboard-store", "sqlx", 0);
    ships("switchboard", "redis", 1);
    ships("newcomer", "serde", 1);
}

#[test]
fn every_section_that_ships_is_read() {
    let edge = "switchboard-edge";
    sample(edge, "dev-dependencies", "redis = \"1\"", 0);
    sample(edge, "build-dependencies", "redis = \"1\"", 1);
    sample(edge, "target.'cfg(unix)'.dependencies", "redis = \"1\"", 1);
    sample(edge, "dependencies.redis", "version = \"1\"", 1);
    sample(
        edge,
        "dependencies",
        "db = { package = \"sqlx\", version = \"1\" }",
        1,
    );
}

/// Libraries that are named in the workspace but not explained, or explained but no longer named.
fn explanations(manifest: &Source, document: &Source) -> Vec<Offence> {
    let parsed: toml::Value = toml::from_str(&manifest.text).unwrap();
    let named = names(
        parsed
            .get("workspace")
            .and_then(|table| table.get("dependencies")),
    );
    let cells = document.lines().filter_map(|(number, line)| {
        let cell = line.strip_prefix("| `")?.split('|').next()?;
        Some((
            number,
            cell.split([',', ' ', '`']).filter(|word| !word.is_empty()),
        ))
    });
    let explained: Vec<_> = cells
        .flat_map(|(number, words)| words.map(move |word| (number, word)))
        .collect();
    let ours = |name: &str| ARROWS.iter().any(|(krate, _)| *krate == name);
    let missing = named
        .iter()
        .filter(|(_, name)| !ours(name) && !explained.iter().any(|(_, word)| word == name))
        .map(|(_, name)| Offence::new(&document.path, 1, format!("`{name}` is not explained")));
    let stale = explained
        .iter()
        .filter(|(_, word)| !named.iter().any(|(_, name)| name == word))
        .map(|(line, word)| Offence::new(&document.path, *line, format!("`{word}` is not used")));
    missing.chain(stale).collect()
}

#[test]
fn every_library_is_explained() {
    let manifest = sources(|path| path == "Cargo.toml");
    let document = sources(|path| path == "docs/dependencies.md");
    verdict(&explanations(&manifest[0], &document[0]));
}

#[test]
fn explanations_can_fail() {
    fn listed(libraries: &str, table: &str, expected: usize) {
        let text = format!("[workspace.dependencies]\n{libraries}");
        let manifest = Source {
            path: "Cargo.toml".into(),
            text,
        };
        check(
            |document| explanations(&manifest, document),
            "docs/a.md",
            table,
            expected,
        );
    }
    let table = "| library | for |\n| `serde`, `toml` | text |\n";
    listed(
        "serde = \"1\"\ntoml = \"1\"\nswitchboard-bus = { path = \"x\" }\n",
        table,
        0,
    );
    listed("serde = \"1\"\ntoml = \"1\"\nclap = \"4\"\n", table, 1);
    listed("serde = \"1\"\n", table, 1);
}

#[test]
fn offence_has_line_of_dependency() {
    let text = "[package]\nname = \"switchboard-bus\"\n[dependencies]\nsqlx = \"1\"\n";
    let source = Source {
        path: "Cargo.toml".into(),
        text: text.into(),
    };
    assert_eq!(arrows(&source).first().map(|offence| offence.line), Some(4));
}
