//! The resources and their operations, as the API's document has them. A test compares the two.

mod administration;
mod characters;
mod devices;

pub(crate) use self::{
    administration::{AUDIT, DELIVERIES, KEYS, NODES, ORG, ORGS, TOKENS, USAGE, WEBHOOKS, WHOAMI},
    characters::{MEMORIES, NPCS, PICTURES, SKILLS, TEMPLATES, VOICES},
    devices::{CALLS, DEVICES, RECORDINGS},
};
use super::Resource;

/// All resources, in the order of the help.
pub(crate) static ALL: [&Resource; 19] = [
    &DEVICES,
    &CALLS,
    &NPCS,
    &TEMPLATES,
    &MEMORIES,
    &PICTURES,
    &SKILLS,
    &VOICES,
    &RECORDINGS,
    &KEYS,
    &TOKENS,
    &ORG,
    &ORGS,
    &NODES,
    &WEBHOOKS,
    &DELIVERIES,
    &USAGE,
    &AUDIT,
    &WHOAMI,
];

/// The resource whose elements a placeholder or a flag names.
pub(super) fn owner(name: &str) -> Option<&'static Resource> {
    match name {
        "npc" => Some(&NPCS),
        "template" => Some(&TEMPLATES),
        "webhook" => Some(&WEBHOOKS),
        _ => None,
    }
}

/// The resource whose ids are proposed for a flag.
pub(super) fn completed_by(flag: &str) -> Option<&'static Resource> {
    match flag {
        "device-id" => Some(&DEVICES),
        flag => owner(flag),
    }
}
