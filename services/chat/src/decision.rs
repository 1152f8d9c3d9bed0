//! What rules decide to do about a question, and on which device.
//! Never: one device taken for another because the name of one is in the other's, or because chance put it first.

use switchboard_protocol::id::DeviceKey;

use crate::embedded::{self, Abilities, Plan, Wording};

/// What devices can do, each of them.
pub(crate) type Offers<'a> = [(&'a DeviceKey, &'a Abilities)];

/// What to do, on which device.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) plan: Plan<'a>,
    pub(crate) device: Option<&'a DeviceKey>,
    /// The question that this is about: what was asked before belongs to it when the answer then was a question.
    pub(crate) about: String,
}

/// What to do about a question, together with what was asked before when it says the rest of that.
pub(crate) fn decide<'a>(offers: &Offers<'a>, text: &str, before: Option<&str>) -> Decision<'a> {
    let alone = alone(offers, text.to_owned(), None);
    let left = |alone: Decision<'a>| Decision {
        plan: Plan::Leave,
        ..alone
    };
    let is_open = matches!(
        alone.plan,
        Plan::Unmatched | Plan::Choose(_) | Plan::ChooseDevice(_)
    );
    let declines = embedded::declines(text);
    // `Cancel sending` is no message.
    let is_undone = match &alone.plan {
        Plan::Call { ability, .. } | Plan::Ask { ability, .. } => !ability.may_undo(),
        Plan::Unmatched => before.is_some(),
        _ => false,
    };
    if is_undone && embedded::declines_something(text) {
        return left(alone);
    }
    let Some(before) = before else {
        return if declines && is_open {
            left(alone)
        } else {
            alone
        };
    };
    let about = format!("{before} {text}");
    let together = self::alone(offers, about, Some(before.len()));
    if declines {
        let is_value =
            matches!(&together.plan, Plan::Call { ability, .. } if ability.takes_value(text));
        let is_order = matches!(&alone.plan, Plan::Call { ability, .. } if ability.only_stops());
        return match (is_value, is_order) {
            (true, _) => together,
            (_, true) => alone,
            _ => left(alone),
        };
    }
    if !is_open {
        return alone;
    }
    let is_question_back = embedded::is_no_answer(text);
    match &together.plan {
        Plan::Call { ability, .. } if is_question_back && !ability.tells => alone,
        Plan::Call { .. } | Plan::Ask { .. } => together,
        _ => alone,
    }
}

/// The best plan that any of the devices has for a text; of devices that it names, when it names some.
fn alone<'a>(offers: &Offers<'a>, about: String, answer: Option<usize>) -> Decision<'a> {
    let ids = offers.iter().map(|(device, _)| device.device.as_str());
    let named = embedded::named(&about, ids);
    let is_named = |place: usize| named.which.is_empty() || named.which.contains(&place);
    let is_meant = |place: usize| offers.len() < 2 || is_named(place);
    let meant = offers.iter().enumerate().filter(|(at, _)| is_meant(*at));
    let said = Wording {
        text: about.clone(),
        names: named.places.clone(),
        answer,
    };
    let mut plans: Vec<_> = meant
        .map(|(_, (device, abilities))| (embedded::plan(abilities, &said), *device))
        .collect();
    plans.sort_by(|(one, _), (other, _)| other.fit.total_cmp(&one.fit));
    let best = plans.first().map_or(0.0, |(best, _)| best.fit);
    let alike = plans.iter().take_while(|(plan, _)| plan.is_like(best));
    let alike: Vec<&DeviceKey> = alike.map(|(_, device)| *device).collect();
    if alike.len() > 1 {
        return Decision {
            plan: Plan::ChooseDevice(alike),
            device: None,
            about,
        };
    }
    let (plan, device) = match plans.into_iter().next() {
        Some((planned, device)) => (planned.plan, Some(device)),
        None => (embedded::plan(&embedded::NOTHING, &said).plan, None),
    };
    Decision {
        plan,
        device,
        about,
    }
}

#[cfg(test)]
mod tests;
