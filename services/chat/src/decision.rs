//! What rules decide to do about a question, and on which device.
//! Never: one device taken for another because the name of one is in the other's, or because chance put it first.

use switchboard_protocol::id::DeviceKey;

use crate::embedded::{self, Abilities, Plan};

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
    let alone = alone(offers, text.to_owned());
    let is_open = matches!(
        alone.plan,
        Plan::Unmatched | Plan::Choose(_) | Plan::ChooseDevice(_)
    );
    let Some(before) = before.filter(|_| is_open) else {
        return alone;
    };
    let together = self::alone(offers, format!("{before} {text}"));
    match together.plan {
        Plan::Call { .. } | Plan::Ask { .. } => together,
        _ => alone,
    }
}

/// The best plan that any of the devices has for a text; of devices that it names, when it names some.
fn alone<'a>(offers: &Offers<'a>, about: String) -> Decision<'a> {
    let ids = offers.iter().map(|(device, _)| device.device.as_str());
    let named = embedded::named(&about, ids);
    let is_meant = |place: usize| offers.len() < 2 || named.is_empty() || named.contains(&place);
    let meant = offers.iter().enumerate().filter(|(at, _)| is_meant(*at));
    let mut plans: Vec<_> = meant
        .map(|(_, (device, abilities))| (embedded::plan(abilities, &about), *device))
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
        None => (embedded::plan(&embedded::NOTHING, &about).plan, None),
    };
    Decision {
        plan,
        device,
        about,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn device(id: &str) -> DeviceKey {
        DeviceKey {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            device: id.parse().unwrap(),
        }
    }

    /// What an own reading of the same services can do; each has its words in an order of its own.
    fn lamp() -> Abilities {
        let services = json!({
            "set_brightness": {"description": "Set the brightness of the reading lamp in the room, in percent of the most", "parameters":
                {"type": "object", "required": ["level"], "properties": {"level": {"type": "integer"}}}},
            "turn_on_light": {"description": "Turn the light of the lamp on"},
            "turn_off_light": {"description": "Turn the light of the lamp off"},
        });
        Abilities::read(services.as_object().unwrap().clone())
    }

    /// Which devices are meant: the one that is called for, or those that are asked about.
    fn meant(ids: &[&str], text: &str) -> Vec<String> {
        let devices: Vec<_> = ids.iter().map(|id| device(id)).collect();
        let abilities: Vec<_> = ids.iter().map(|_| lamp()).collect();
        let offers: Vec<_> = devices.iter().zip(&abilities).collect();
        let decision = decide(&offers, text, None);
        let meant = match decision.plan {
            Plan::Call { .. } => decision.device.into_iter().collect(),
            Plan::ChooseDevice(alike) => alike,
            other => panic!("{text}: {other:?}"),
        };
        let mut meant: Vec<_> = meant
            .into_iter()
            .map(|key| key.device.to_string())
            .collect();
        meant.sort();
        meant
    }

    #[test]
    fn of_two_devices_that_are_alike_none_is_taken_by_chance() {
        let text = "Please set the brightness of the reading lamp in this room to 40 percent";
        for _ in 0..100 {
            assert_eq!(meant(&["hall", "kitchen"], text), ["hall", "kitchen"]);
        }
    }

    #[test]
    fn a_device_is_named_by_its_whole_id() {
        let ids = ["lamp-1", "lamp-10", "lamp", "Hall"];
        let check =
            |text: &str, expected: &[&str]| assert_eq!(meant(&ids, text), expected, "{text}");
        check("Turn on the light of lamp-10", &["lamp-10"]);
        check("Turn on the light of lamp-1.", &["lamp-1"]);
        check("Turn on the light in the HALL", &["Hall"]);
        check(
            "Turn on the light of lamp-1 and lamp-10",
            &["lamp-1", "lamp-10"],
        );
        check("打开lamp-10的灯", &["lamp-10"]);
        // Of an id that nobody has, none is part.
        let mut all = ids.to_vec();
        all.sort_unstable();
        check("Turn on the light of lamp-100", &all);
        check("Turn on the light in the hallway", &all);
    }
}
