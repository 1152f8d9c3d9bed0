//! Every route stands in the API's document, and so does every kind of problem.

use switchboard_runtime::problem::ProblemKind;

use crate::{Offence, Source, check, rust_sources, sources, verdict};

/// MCP describes itself.
const OWN_PROTOCOL: &str = "services/gateway/src/mcp/transport/endpoints.rs";
/// The routes of other services, which come from their documents.
const FORWARDED: &str = "services/gateway/src/forward.rs";

fn routes(source: &Source) -> Vec<Offence> {
    let service = source.path.starts_with("services/control/src/")
        || source.path.starts_with("services/gateway/src/")
        || source.path.starts_with("services/chat/src/");
    if !service || [OWN_PROTOCOL, FORWARDED].contains(&source.path.as_str()) {
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

/// Problems that are not responses of a route: events of a stream, an outcome that is only stored, an item of a
/// group call, and the
/// response of a gateway in place of a service, which the document of `up` does not have.
const NOT_RESPONSES: [ProblemKind; 6] = [
    ProblemKind::ServiceUnavailable,
    ProblemKind::NoAnswer,
    ProblemKind::TooSlow,
    ProblemKind::Interrupted,
    ProblemKind::CallExpired,
    ProblemKind::ResultLeftOut,
];

/// The slugs of the problem kinds that a file names.
fn slugs(source: &Source) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (number, line) in source.lines() {
        for (start, _) in line.match_indices("ProblemKind::") {
            let variant: String = line[start..]
                .chars()
                .skip("ProblemKind::".len())
                .take_while(|c| c.is_ascii_alphanumeric())
                .collect();
            let kinds = ProblemKind::ALL.iter();
            let kinds = kinds.filter(|kind| !NOT_RESPONSES.contains(kind));
            let mut named = kinds.filter(|kind| format!("{kind:?}") == variant);
            found.extend(named.next().map(|kind| (number, kind.slug())));
        }
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
    let text = "    Problem::new(ProblemKind::CallSent, detail)";
    check(
        |source| unexplained(source, "\"/problems/known\""),
        "services/control/src/x.rs",
        text,
        1,
    );
    check(
        |source| unexplained(source, "\"/problems/call_sent\""),
        "services/control/src/x.rs",
        text,
        0,
    );
}
