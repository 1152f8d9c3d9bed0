//! What people say to devices and NPCs, answered by a language model: a stand-in that its test speaks for.
//! Never: a word of the stand-in that its test did not choose.

mod crowd;
mod example;
mod going_on;
mod long;
mod oddities;
mod over_http;
mod providers;
mod replicas;
mod stopping;
mod terminal;
mod who_answers;

/// What stands between the marks whose data come from there.
fn marked_off<'a>(text: &'a str, source: &str) -> &'a str {
    let from = format!(" from=\"{source}\">\n");
    let parts = text.split_once(&from);
    let (before, data) = parts.unwrap_or_else(|| panic!("nothing from {source} in {text}"));
    let (_, name) = before.rsplit_once('<').unwrap();
    assert!(name.starts_with("data-"), "{name}");
    data.split_once(&format!("\n</{name}>")).unwrap().0
}
