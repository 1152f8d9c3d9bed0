//! Whether a sentence wants a service to be called that it speaks of.
//! Never: a deed that was only asked about, supposed, or forbidden.

use super::{abilities::Ability, features, mood::Mood, parameters::Takes, words::Sentence};

/// Whether what a service does is only asked about, or for later.
pub(super) fn is_only_spoken_of(ability: &Ability, sentence: &Sentence, mood: &Mood) -> bool {
    if ability.tells {
        return false;
    }
    let said = verbs(ability, sentence);
    // What stands in a message is not what is done with it.
    let later = mood.supposes.is_some_and(|from| {
        let mark = sentence
            .text
            .get(..from)
            .unwrap_or_default()
            .rfind([':', '：', ',', '，']);
        !(takes_text(ability) && said.iter().any(|at| mark.is_some_and(|mark| *at < mark)))
    });
    let is_asked = |at: &usize| mood.asking.iter().any(|clause| clause.contains(at));
    later || !mood.asking.is_empty() && said.iter().all(is_asked)
}

/// Whether it is said that a service is not to be called.
pub(super) fn is_forbidden(ability: &Ability, sentence: &Sentence, mood: &Mood) -> bool {
    let Some(first) = mood.forbids.iter().min() else {
        return false;
    };
    let in_text = takes_text(ability)
        && !mood.retracts
        && verbs(ability, sentence).iter().any(|at| at < first);
    !in_text
}

fn takes_text(ability: &Ability) -> bool {
    let mut parameters = ability.parameters.iter();
    parameters.any(|parameter| parameter.required && parameter.takes == Takes::Text)
}

/// Where a sentence says what the service does.
fn verbs(ability: &Ability, sentence: &Sentence) -> Vec<usize> {
    let said = features::of(sentence).into_iter();
    let said = said.filter(|(feature, _, _)| ability.verbs.contains(feature));
    said.filter_map(|(_, _, at)| Some(sentence.tokens.get(at)?.place.start))
        .collect()
}
