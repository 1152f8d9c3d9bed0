//! Compares the published schema with ours. `docs/flatbuffers.md` lists the deviations.

use crate::{
    fbs::{self, Definition},
    flatc::Flatc,
};

const PUBLISHED: &str = include_str!("../../schema/published.txt");
const UNION: &str = "/// Different types of resource content\nunion ResourceData {\n\
                     TextResourceData, // Text-based resource content\n\
                     BlobResourceData // Binary resource content\n}\n";

/// Replaces a text that occurs this many times.
fn replace(text: &str, from: &str, to: &str, times: usize) -> String {
    assert_eq!(text.matches(from).count(), times, "{from}");
    text.replace(from, to)
}

/// The published schema with the changes that `flatc` requires, and no other.
fn acceptable() -> String {
    let mut text = PUBLISHED.to_owned();
    for (default, times) in [("2.0", 4), ("text", 1), ("image", 1), ("resource", 1)] {
        text = replace(
            &text,
            &format!(" = \"{default}\" (required)"),
            " (required)",
            times,
        );
    }
    text = replace(&text, "code: int (required)", "code: int", 1);
    text = replace(&text, "role: Role (required)", "role: Role", 2);
    text = replace(&text, UNION, "", 1);
    let first_use = "/// The contents of a specific resource\n";
    replace(&text, first_use, &format!("{UNION}{first_use}"), 1)
}

#[test]
fn published_schema_is_refused_until_corrected() {
    let flatc = Flatc::new();
    let refusal = flatc.conforms(PUBLISHED).unwrap_err();
    assert!(refusal.contains("error"), "{refusal}");
    assert_eq!(flatc.conforms(&acceptable()), Ok(String::new()));
}

#[test]
fn incompatible_schema_is_refused() {
    let swapped = acceptable()
        .replace(
            "uri: string (required); // URI identifying",
            "name: string; //",
        )
        .replace(
            "name: string; // Optional human-readable name",
            "uri: string (required); //",
        );
    assert!(Flatc::new().conforms(&swapped).is_err());
}

/// Everything published is present in its order, and additions follow it.
#[test]
fn additions_are_at_the_end() {
    let (published, ours) = (fbs::read(&acceptable()), fbs::definitions());
    let parts = |definition: &Definition| -> Vec<String> {
        let parts = definition.parts.iter();
        parts
            .map(|part| format!("{}: {} {}", part.name, part.kind, part.list))
            .collect()
    };
    for definition in &published {
        let same = ours.iter().find(|ours| ours.name == definition.name);
        let (theirs, ours) = (parts(definition), same.map(parts).unwrap_or_default());
        assert_eq!(
            ours.get(..theirs.len()),
            Some(&*theirs),
            "{}",
            definition.name
        );
        for added in ours.iter().skip(theirs.len()) {
            let known = [
                "extra: string false",
                "error_extra: string false",
                "id_json: string false",
                "level: LoggingLevel false",
                "AudioContent:  false",
                "ResourceLink:  false",
                "OtherContent:  false",
            ];
            assert!(
                known.contains(&added.as_str()),
                "{}: {added}",
                definition.name
            );
        }
    }
    let names = |list: &[Definition]| list.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours)[..published.len()], names(&published));
    assert_eq!(
        names(&ours)[published.len()..],
        ["AudioContent", "ResourceLink", "OtherContent"]
    );
}
