//! What the rules answer, as phrases with lists: abilities, and questions about a command.

use switchboard_phrases::{Language, Phrase};

/// Services listed when the abilities of a device are described.
const MAX_SERVICES: usize = 8;

/// Lists what the devices can do, and how to ask for it.
pub(super) fn abilities(language: Language, descriptions: &[String]) -> String {
    if descriptions.is_empty() {
        return Phrase::NoAbilities.text(language).into_owned();
    }
    let listed = descriptions.get(..MAX_SERVICES).unwrap_or(descriptions);
    let abilities = &*listed.join(language.punctuation().items);
    let more = descriptions.len().saturating_sub(MAX_SERVICES);
    let phrase = if more > 0 {
        Phrase::AbilitiesAndMore { abilities, more }
    } else {
        Phrase::Abilities { abilities }
    };
    join(language, phrase, &Phrase::HowToAsk.text(language))
}

/// Asks for the values that a command lacks.
pub(super) fn missing_values(language: Language, service: &str, parameters: &[&str]) -> String {
    let parameters = &*parameters.join(language.punctuation().names);
    let missing = Phrase::MissingValues {
        service,
        parameters,
    };
    join(language, missing, &Phrase::HowToAsk.text(language))
}

/// Answers a sentence that mentions a service and is no plain command.
pub(super) fn no_command(language: Language, service: &str) -> String {
    let no_command = Phrase::NoCommand { service };
    join(language, no_command, &Phrase::HowToAsk.text(language))
}

pub(super) fn which_service(language: Language, services: &[String]) -> String {
    let services = &*services.join(language.punctuation().items);
    Phrase::WhichService { services }
        .text(language)
        .into_owned()
}

pub(super) fn which_device(language: Language, devices: &[&str]) -> String {
    let devices = &*devices.join(language.punctuation().names);
    Phrase::WhichDevice { devices }.text(language).into_owned()
}

/// A phrase, and what follows it.
pub(super) fn join(language: Language, first: Phrase<'_>, then: &str) -> String {
    let space = language.punctuation().sentences;
    format!("{}{space}{then}", first.text(language))
}
