//! Every route stands in the API's document, and so does every kind of problem.
//! Never: a route beside the document but MCP's, which have their own, and those that are named here with a reason.

use crate::{Offence, Source, check, rust_sources, sources, verdict};

/// Where routes may stand that the document does not have, and why.
const OWN_PROTOCOL: &str = "services/gateway/src/mcp.rs";

/// Routes and kinds of problems that the document does not have yet: where they stand, and with which words a route
/// begins. Not described in the document yet.
const UNDESCRIBED: &[(&str, &str)] = &[
    ("services/control/src/skills_books.rs", "/v1/skills-books"),
    ("services/control/src/skills_books/refusals.rs", ""),
    ("services/gateway/src/lib.rs", "/v1/calls"),
    ("services/gateway/src/calls/by_id.rs", ""),
];

fn undescribed(path: &str) -> Option<&'static str> {
    let mut all = UNDESCRIBED.iter();
    all.find(|(known, _)| *known == path)
        .map(|(_, start)| *start)
}

fn routes(source: &Source) -> Vec<Offence> {
    let service = source.path.starts_with("services/control/src/")
        || source.path.starts_with("services/gateway/src/");
    if !service || source.path == OWN_PROTOCOL {
        return Vec::new();
    }
    let excused = |line: &str| {
        undescribed(&source.path).is_some_and(|start| line.contains(&format!("(\"{start}")))
    };
    let raw = source.lines().filter(|(_, line)| {
        (line.contains(".route(") || line.contains(".route_service(")) && !excused(line)
    });
    raw.map(|(number, _)| {
        Offence::new(
            &source.path,
            number,
            "a route that the document does not have; use `routes!`".to_owned(),
        )
    })
    .collect()
}

/// The slugs that follow `Problem::new(`, `unauthorized(` and the like: a status or nothing, then the slug.
fn slugs(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let lines: Vec<_> = source.lines().collect();
    for (index, (number, line)) in lines.iter().enumerate() {
        if !line.contains("Problem::new(") {
            continue;
        }
        let after = line.split("Problem::new(").nth(1).unwrap_or_default();
        let rest = lines.iter().skip(index + 1).take(3).map(|(_, line)| *line);
        let text: String = std::iter::once(after).chain(rest).collect();
        let slug = text
            .split_once("StatusCode::")
            .and_then(|(_, rest)| rest.split('"').nth(1));
        found.extend(slug.map(|slug| (*number, slug.to_owned())));
    }
    found
}

fn unexplained(source: &Source, document: &str) -> Vec<Offence> {
    let served = source.path.starts_with("services/control/src/")
        || source.path.starts_with("services/gateway/src/") && !source.path.contains("/mcp");
    let served = served && undescribed(&source.path).is_none_or(|start| !start.is_empty());
    if !served {
        return Vec::new();
    }
    let tests = source
        .text
        .find("#[cfg(test)]")
        .unwrap_or(source.text.len());
    let source = Source {
        path: source.path.clone(),
        text: source.text[..tests].to_owned(),
    };
    let unknown = slugs(&source)
        .into_iter()
        .filter(|(_, slug)| !document.contains(&format!("/problems/{slug}\"")));
    unknown
        .map(|(number, slug)| {
            Offence::new(
                &source.path,
                number,
                format!("docs/openapi.json does not know `{slug}`"),
            )
        })
        .collect()
}

#[test]
fn every_route_is_in_the_document() {
    verdict(&rust_sources().iter().flat_map(routes).collect::<Vec<_>>());
}

#[test]
fn every_kind_of_problem_is_in_the_document() {
    let document = sources(|path| path == "docs/openapi.json");
    let found = rust_sources();
    let found = found
        .iter()
        .flat_map(|source| unexplained(source, &document[0].text));
    verdict(&found.collect::<Vec<_>>());
}

#[test]
fn routes_and_problems_can_fail() {
    check(
        routes,
        "services/control/src/lib.rs",
        ".route(\"/v1/x\", get(x))",
        1,
    );
    check(routes, OWN_PROTOCOL, ".route(\"/mcp\", get(x))", 0);
    check(
        routes,
        "services/gateway/src/lib.rs",
        ".route(\"/v1/calls\", x)\n.route(\"/v1/x\", x)",
        1,
    );
    let text = "Problem::new(\n    StatusCode::CONFLICT,\n    \"secret_kind\",\n";
    check(
        |source| unexplained(source, "\"/problems/known\""),
        "services/control/src/x.rs",
        text,
        1,
    );
    check(
        |source| unexplained(source, "\"/problems/secret_kind\""),
        "services/control/src/x.rs",
        text,
        0,
    );
}
