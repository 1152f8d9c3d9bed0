//! Decides which service of a device a sentence asks for, by fixed rules and without I/O.
//! Invariant: a service that is not read-only is called only for a plain command of which every
//! word is understood; negations, questions, conditions and later times never act.

mod devices;
mod fit;
mod intent;
mod numbers;
mod service;
mod small_talk;
mod values;
mod vocabulary;
mod words;

use serde_json::{Map, Value};

pub use service::Service;
pub use small_talk::SmallTalk;

/// The services of one device.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// The id of the device.
    pub device: &'a str,
    /// Its services.
    pub services: &'a [Service],
}

/// A service of a device.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The id of the device.
    pub device: &'a str,
    /// The service.
    pub service: &'a Service,
}

/// What to do about a sentence.
#[derive(Debug)]
pub enum Plan<'a> {
    /// Call a service with these parameters, which are not checked against the schema.
    Call(Target<'a>, Map<String, Value>),
    /// Ask for these required parameters.
    Missing(Target<'a>, Vec<&'a str>),
    /// Ask for a plain command: the sentence mentions this service, but is none.
    NoCommand(Target<'a>),
    /// Ask which of these is meant.
    Ambiguous(Vec<Target<'a>>),
    /// Answer without a service.
    Talk(SmallTalk),
    /// No service matches.
    Nothing,
}

/// Decides what to do about a sentence, given the services of all devices that it may mean.
#[must_use]
pub fn plan<'a>(offers: &[Offer<'a>], text: &str) -> Plan<'a> {
    let talk = small_talk::small_talk(text);
    if talk == Some(SmallTalk::Identity) {
        return Plan::Talk(SmallTalk::Identity);
    }
    let (offers, text_without_ids) = devices::named(offers, text);
    let sentence = words::tokens(&text_without_ids);
    let intent = intent::Intent::read(&sentence);
    let mut fits = Vec::new();
    for Offer { device, services } in offers {
        let targets = services.iter().map(|service| Target { device, service });
        fits.extend(targets.filter_map(|target| {
            let (score, plan) = fit::fit(target, &sentence, intent)?;
            // Services that can be called go before those that need another wording.
            Some(((!matches!(plan, Plan::NoCommand(_)), score), target, plan))
        }));
    }
    let best = fits.iter().map(|(score, ..)| *score).max();
    fits.retain(|(score, ..)| Some(*score) == best);
    match fits.as_slice() {
        [] => talk.map_or(Plan::Nothing, Plan::Talk),
        [_] => fits.pop().map_or(Plan::Nothing, |(_, _, plan)| plan),
        _ => Plan::Ambiguous(fits.iter().map(|(_, target, _)| *target).collect()),
    }
}
