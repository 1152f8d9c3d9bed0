//! Every route stands in the API's document, and so does every kind of problem.
//! Never: a route beside the document but MCP's, which have their own.

use crate::{Offence, Source, check, rust_sources, sources, verdict};

/// Where routes may stand that the document does not have, and why.
const OWN_PROTOCOL: &str = "services/gateway/src/mcp.rs";

fn routes(source: &Source) -> Vec<Offence> {
    let service = source.path.starts_with("services/control/src/")
        || source.path.starts_with("services/gateway/src/")
        || source.path.starts_with("services/chat/src/");
    if !service || source.path == OWN_PROTOCOL {
        return Vec::new();
    }
    let raw = source
        .lines()
        .filter(|(_, line)| line.contains(".route(") || line.contains(".route_service("));
    raw.map(|(number, _)| {
        Offence::new(
            &source.path,
            number,
            "a route that the document does not have; use `routes!`".to_owned(),
        )
    })
    .collect()
}

/// The slugs that follow `Problem::new(`, after a status, and `conflict(`.
fn slugs(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let lines: Vec<_> = source.lines().collect();
    for (index, (number, line)) in lines.iter().enumerate() {
        let opened = ["Problem::new(", " conflict("]
            .into_iter()
            .find_map(|opening| Some((opening, line.split_once(opening)?.1)));
        let Some((opening, after)) = opened.filter(|_| !line.contains("fn conflict(")) else {
            continue;
        };
        let rest = lines.iter().skip(index + 1).take(3).map(|(_, line)| *line);
        let text: String = std::iter::once(after).chain(rest).collect();
        let after_status = match opening {
            "Problem::new(" => text.split_once("StatusCode::").map(|(_, rest)| rest),
            _ => Some(text.as_str()),
        };
        // What is no text there is a name for one, which stands in the text elsewhere.
        let slug = after_status.and_then(|rest| {
            let next =
                rest.trim_start_matches(|c: char| c.is_ascii_uppercase() || "_, ".contains(c));
            next.strip_prefix('"')?.split('"').next()
        });
        found.extend(slug.map(|slug| (*number, slug.to_owned())));
    }
    found
}

fn unexplained(source: &Source, document: &str) -> Vec<Offence> {
    let served = source.path.starts_with("services/control/src/")
        || source.path.starts_with("services/chat/src/")
        || source.path.starts_with("services/gateway/src/") && !source.path.contains("/mcp");
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
    let text = "Problem::new(\n    StatusCode::CONFLICT,\n    \"secret_kind\",\n";
    check(
        |source| unexplained(source, "\"/problems/known\""),
        "services/control/src/x.rs",
        text,
        1,
    );
    check(
        |source| unexplained(source, "\"/problems/known\""),
        "services/control/src/x.rs",
        "    conflict(\"secret_kind\", \"Secret\", detail)",
        1,
    );
    check(
        |source| unexplained(source, "\"/problems/secret_kind\""),
        "services/control/src/x.rs",
        text,
        0,
    );
}
