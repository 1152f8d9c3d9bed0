//! Conversations on devices and with NPCs, answered by a fake language-model provider that the test
//! controls.

mod cancellation;
mod concurrency;
mod example;
pub mod http;
mod invalid_replies;
mod languages;
mod memories;
mod npc_selection;
mod pictures;
mod providers;
mod quotas;
mod recordings;
mod registration;
mod replicas;
mod summaries;
mod suspension;
mod terminal;

/// The text between the markers of retrieved data.
fn marked_off<'a>(text: &'a str, source: &str) -> &'a str {
    let from = format!(" from=\"{source}\">\n");
    let parts = text.split_once(&from);
    let (before, data) = parts.unwrap_or_else(|| panic!("nothing from {source} in {text}"));
    let (_, name) = before.rsplit_once('<').unwrap();
    assert!(name.starts_with("data-"), "{name}");
    data.split_once(&format!("\n</{name}>")).unwrap().0
}
