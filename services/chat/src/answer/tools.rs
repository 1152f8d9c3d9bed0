//! The services that an answer can use, for models and for rules.
//! Invariant: services that the NPC's policy denies, that the credential of the caller does not
//! reach, or that are not approved where approvals are required, are not in the set.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use quick_cache::{Weighter, sync::Cache};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use switchboard_bus::{Bus, BusError};
use switchboard_catalog::ToolPolicy;
use switchboard_completions::Tool;
use switchboard_identity::{Approvals, ApprovalsUnavailable, ApprovedServices};
use switchboard_protocol::{id::DeviceKey, schema::Digest, token::Restrictions};
use switchboard_rule_responder::Service;
use switchboard_runtime::budget::Budgets;
use switchboard_store::Npc;
use switchboard_tools::{Naming, describe, text::clean_to, tool_name};
use tracing::info;

use crate::{answer::overlap::overlap, user_message::UserMessage};

/// Bytes of a description in a sentence.
const MAX_DESCRIPTION_BYTES: usize = 200;
/// Capacity of the cache in bytes of memory. Devices with the same firmware share an entry.
const CACHE_BYTES: usize = 32 * 1024 * 1024;
/// Expected number of cached registrations.
const CACHE_ENTRIES: usize = 4_096;
/// Maximum number of tools in a request to a model; providers reject more.
const MAX_TOOLS: usize = 128;
/// Maximum size of these tools as JSON. Protects the model's context.
const MAX_TOOLS_BYTES: usize = 96 * 1024;
/// Maximum number of devices whose services one answer can use. Protects the model's context.
const MAX_DEVICES: usize = 16;

/// Cache of described registrations.
pub(crate) struct ServiceCache {
    entries: Cache<CacheKey, Arc<DeviceServices>, Weight>,
}

/// A registration, the naming of its services as tools, and the tool policy as JSON.
type CacheKey = (Digest, Naming, String);

#[derive(Clone)]
struct Weight;

impl Weighter<CacheKey, Arc<DeviceServices>> for Weight {
    fn weight(&self, key: &CacheKey, services: &Arc<DeviceServices>) -> u64 {
        services.bytes().saturating_add(key.2.len()) as u64
    }
}

/// The services of one device that an NPC may use, in the order of their names. JSON stays text:
/// parsed, it takes up to 85 times as much memory.
#[derive(Debug)]
struct DeviceServices {
    /// The registration that they are of.
    registration: Digest,
    known: Vec<KnownService>,
}

#[derive(Debug)]
struct KnownService {
    name: String,
    /// Its registered definition.
    definition: Box<RawValue>,
    tool: Tool,
    /// What approvals are of.
    digest: Digest,
    /// The device's own timeout for this service.
    timeout: Option<Duration>,
}

/// The services that one answer can use.
#[derive(Debug, Default)]
pub(crate) struct ToolSet {
    devices: Vec<(DeviceKey, Arc<DeviceServices>)>,
    naming: Option<Naming>,
    /// Of the caller that the answer is for.
    restrictions: Option<Arc<Restrictions>>,
    /// What the organisation has approved; `None` if it requires no approvals.
    approved: Option<Arc<ApprovedServices>>,
}

/// Why the services of an answer are unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolsUnavailable {
    #[error("the directory cannot be read: {0}")]
    Directory(#[from] BusError),
    #[error(transparent)]
    Approvals(#[from] ApprovalsUnavailable),
}

/// A service that can be called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callable<'a> {
    pub(crate) device: &'a DeviceKey,
    pub(crate) service: &'a str,
    pub(crate) description: &'a str,
    /// What approvals are of.
    pub(crate) digest: &'a Digest,
    /// The registration that it is of.
    pub(crate) registration: Digest,
    /// The device's own timeout for this service.
    pub(crate) timeout: Option<Duration>,
}

impl ServiceCache {
    pub(crate) fn new(budgets: &Budgets) -> Self {
        budgets.reserve("described_services", CACHE_BYTES);
        Self {
            entries: Cache::with_weighter(CACHE_ENTRIES, CACHE_BYTES as u64, Weight),
        }
    }

    /// The services that the answer to this message can use now.
    ///
    /// # Errors
    /// When the directory is unavailable, or the approvals that the organisation requires.
    pub(crate) async fn tool_set(
        &self,
        (bus, approvals): (&Bus, &Approvals),
        message: &UserMessage,
    ) -> Result<ToolSet, ToolsUnavailable> {
        let naming = message.naming();
        let mut devices = Vec::new();
        for device in message.devices().into_iter().take(MAX_DEVICES) {
            let registered = (&device, message.registration);
            let services = self.find(bus, registered, (naming, message.npc.as_deref()));
            if let Some(services) = services.await? {
                devices.push((device, services));
            }
        }
        let approved = match devices.is_empty() {
            true => None,
            false => approvals.of(message.org).await?,
        };
        Ok(ToolSet {
            devices,
            approved,
            naming: Some(naming),
            restrictions: message.restrictions().cloned(),
        })
    }

    async fn find(
        &self,
        bus: &Bus,
        (device, registration): (&DeviceKey, Option<Digest>),
        (naming, npc): (Naming, Option<&Npc>),
    ) -> Result<Option<Arc<DeviceServices>>, BusError> {
        let allow_all = ToolPolicy::default();
        let policy = npc.map_or(&allow_all, |npc| &npc.effective.settings.tools);
        let policy_json = serde_json::to_string(policy).unwrap_or_default();
        let key = |digest| (digest, naming, policy_json.clone());
        if let Some(cached) = registration.and_then(|digest| self.entries.get(&key(digest))) {
            return Ok(Some(cached));
        }
        let Some(presence) = bus.find(device).await? else {
            return Ok(None);
        };
        let Some(digest) = presence.digest else {
            return Ok(None);
        };
        let key = key(digest);
        if let Some(cached) = self.entries.get(&key) {
            return Ok(Some(cached));
        }
        let Some(json) = bus.services(device.org, &presence).await? else {
            return Ok(None);
        };
        match DeviceServices::parse(&json, naming, policy) {
            Ok(services) => {
                let services = Arc::new(services);
                self.entries.insert(key, Arc::clone(&services));
                Ok(Some(services))
            }
            Err(error) => {
                tracing::error!(%error, "a registration is not valid JSON");
                Ok(None)
            }
        }
    }
}

impl DeviceServices {
    /// Describes a services object that passed schema validation. One definition is parsed at a
    /// time.
    fn parse(json: &[u8], naming: Naming, policy: &ToolPolicy) -> Result<Self, serde_json::Error> {
        let mut services: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(json)?;
        services.retain(|service, _| {
            switchboard_tools::permits(policy.allow.as_deref(), &policy.deny, service)
        });
        let known = services.into_iter().map(|(name, definition)| {
            let parsed: Value = serde_json::from_str(definition.get())?;
            let described = describe(&name, &parsed, naming);
            let timeout = parsed.get("timeout_ms").and_then(Value::as_u64);
            Ok(KnownService {
                digest: Digest::of_service(&name, &parsed),
                tool: Tool {
                    name: described.name,
                    description: described.description.unwrap_or_default(),
                    parameters: to_raw_value(&described.parameters)?.into(),
                },
                timeout: timeout.map(Duration::from_millis),
                name,
                definition,
            })
        });
        Ok(Self {
            registration: Digest::compute(json),
            known: known.collect::<Result<_, _>>()?,
        })
    }

    /// Estimated size in memory.
    fn bytes(&self) -> usize {
        let services = self.known.iter().map(|service| {
            let text = service.name.len() + service.definition.get().len();
            size_of::<KnownService>() + text + tool_bytes(&service.tool)
        });
        services.sum()
    }
}

impl Callable<'_> {
    /// Its description as a part of a sentence.
    pub(crate) fn describe(&self) -> String {
        describe_service(self.service, self.description)
    }
}

fn tool_bytes(tool: &Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.parameters.get().len()
}

impl ToolSet {
    /// The services of each device, prepared for the rule responder. They take much more memory
    /// than their text; so they are not kept.
    pub(crate) fn prepare(&self) -> Vec<(&DeviceKey, Vec<Service>)> {
        let devices = self.devices.iter().map(|(device, known)| {
            let services = self.reached(device, known).map(|service| {
                let definition = serde_json::from_str(service.definition.get());
                Service::read(&service.name, &definition.unwrap_or_default())
            });
            (device, services.collect())
        });
        devices.collect()
    }

    /// All services, in the order of the devices and of the names.
    pub(crate) fn callables(&self) -> impl Iterator<Item = Callable<'_>> {
        self.entries().map(|(callable, _)| callable)
    }

    /// The tools for a model: all that fit the limits, else those with the most words in common
    /// with the message.
    pub(crate) fn tools(&self, message: &str) -> Vec<Tool> {
        let all = self.all_tools();
        let bytes = all.iter().map(tool_bytes).sum::<usize>();
        if all.len() <= MAX_TOOLS && bytes <= MAX_TOOLS_BYTES {
            return all;
        }
        let score = |tool: &Tool| {
            let text = format!("{}\n{}", tool.name, tool.description);
            overlap(message, &text)
        };
        let mut ranked: Vec<_> = all.into_iter().map(|tool| (score(&tool), tool)).collect();
        ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let (mut left, offered) = (MAX_TOOLS_BYTES, ranked.len());
        let selected: Vec<_> = ranked
            .into_iter()
            .map(|(_, tool)| tool)
            .take_while(|tool| match left.checked_sub(tool_bytes(tool)) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            })
            .take(MAX_TOOLS)
            .collect();
        info!(
            offered,
            selected = selected.len(),
            "too many tools for a model; sending those closest to the message"
        );
        selected
    }

    fn all_tools(&self) -> Vec<Tool> {
        let tools = self.entries().map(|(callable, tool)| Tool {
            name: self.name(callable.device, &tool.name),
            description: self.description(callable.device, &tool.description),
            parameters: Arc::clone(&tool.parameters),
        });
        tools.collect()
    }

    /// The service with this tool name.
    pub(crate) fn find(&self, name: &str) -> Option<Callable<'_>> {
        let mut entries = self.entries();
        let found = entries.find(|(callable, tool)| self.name(callable.device, &tool.name) == name);
        found.map(|(callable, _)| callable)
    }

    /// The service with this name of the device with this id.
    pub(crate) fn service(&self, device: &str, name: &str) -> Option<Callable<'_>> {
        let is_wanted = |callable: &Callable<'_>| {
            callable.device.device.as_str() == device && callable.service == name
        };
        self.callables().find(is_wanted)
    }

    fn entries(&self) -> impl Iterator<Item = (Callable<'_>, &Tool)> {
        self.devices.iter().flat_map(|(device, known)| {
            self.reached(device, known).map(move |service| {
                let callable = Callable {
                    device,
                    service: &service.name,
                    description: &service.tool.description,
                    digest: &service.digest,
                    registration: known.registration,
                    timeout: service.timeout,
                };
                (callable, &service.tool)
            })
        })
    }

    fn reached<'a>(
        &'a self,
        device: &'a DeviceKey,
        known: &'a DeviceServices,
    ) -> impl Iterator<Item = &'a KnownService> {
        let (restrictions, approved) = (self.restrictions.as_deref(), self.approved.as_deref());
        known.known.iter().filter(move |service| {
            restrictions.is_none_or(|one| one.check_service(&service.name).is_ok())
                && approved.is_none_or(|one| one.permit(device, &service.digest))
        })
    }

    fn is_prefixed(&self) -> bool {
        self.naming == Some(Naming::Prefixed)
    }

    /// The tool name of a device's service.
    fn name(&self, device: &DeviceKey, service: &str) -> String {
        if self.is_prefixed() {
            let device = tool_name::device_part(device.device.as_str());
            tool_name::join(&device, service)
        } else {
            service.to_owned()
        }
    }

    /// The tool name of a service by its registered name.
    pub(crate) fn tool_name(&self, callable: &Callable<'_>) -> String {
        let naming = self.naming.unwrap_or(Naming::Alone);
        self.name(callable.device, &naming.service(callable.service))
    }

    fn description(&self, device: &DeviceKey, own: &str) -> String {
        if self.is_prefixed() {
            format!("On the device {}: {own}", device.device)
        } else {
            own.to_owned()
        }
    }
}

/// The description of a service as a part of a sentence, or its name.
fn describe_service(name: &str, description: &str) -> String {
    let description = description.trim().trim_end_matches(['.', '。']);
    let text = if description.is_empty() {
        name
    } else {
        description
    };
    clean_to(text, MAX_DESCRIPTION_BYTES)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchboard_protocol::token::ServicePattern;

    use super::*;

    #[test]
    fn cache_is_bounded_by_bytes_of_memory() {
        let cache = ServiceCache::new(&Budgets::new(&prometheus::Registry::new()).unwrap());
        let policy = ToolPolicy::default();
        let values = vec![r#"{"not":{}}"#; 12_000].join(",");
        let json = format!(r#"{{"a":{{"parameters":{{"allOf":[{values}]}}}}}}"#);
        let services = DeviceServices::parse(json.as_bytes(), Naming::Alone, &policy).unwrap();
        let (weight, text) = (services.bytes(), json.len());
        // The text of the definition and of the schema, and little else: no parsed tree.
        assert!((text..3 * text).contains(&weight), "{weight} of {text}");
        let services = Arc::new(services);
        for number in 0..400_u32 {
            let digest = Digest::compute(&number.to_be_bytes());
            let key = (digest, Naming::Alone, String::new());
            cache.entries.insert(key, Arc::clone(&services));
            assert!(cache.entries.weight() <= CACHE_BYTES as u64);
        }
        let len = cache.entries.len();
        assert!((50..400).contains(&len), "{len}");
    }

    #[test]
    fn restricted_caller_has_the_services_that_it_reaches() {
        let json = json!({"led.on": {}, "led.off": {}, "reset": {}}).to_string();
        let policy = ToolPolicy::default();
        let known = DeviceServices::parse(json.as_bytes(), Naming::Alone, &policy);
        let known = Arc::new(known.unwrap());
        let device = DeviceKey {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            device: "toy-1".parse().unwrap(),
        };
        let restrictions = Restrictions {
            services: Some(vec![ServicePattern::parse("led.*").unwrap()]),
            ..Restrictions::default()
        };
        let set = |restrictions| ToolSet {
            devices: vec![(device.clone(), Arc::clone(&known))],
            naming: Some(Naming::Alone),
            restrictions,
            approved: None,
        };
        let names = |set: &ToolSet| {
            let names = set.callables().map(|callable| callable.service.to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&set(None)), ["led.off", "led.on", "reset"]);
        let restricted = set(Some(Arc::new(restrictions)));
        assert_eq!(names(&restricted), ["led.off", "led.on"]);
        assert_eq!(restricted.tools("reset").len(), 2);
        assert!(restricted.find("reset").is_none());
        assert!(restricted.service("toy-1", "reset").is_none());
        assert_eq!(restricted.prepare()[0].1.len(), 2);
    }

    #[test]
    fn services_are_described_in_the_order_of_their_names() {
        let json = json!({
            "b": {"description": "B", "timeout_ms": 5, "parameters": {"properties": {"x": {"type": "integer"}}}},
            "a": {}, "denied": {},
        });
        let policy = ToolPolicy {
            allow: None,
            deny: vec!["denied".to_owned()],
        };
        let json = json.to_string();
        let known = DeviceServices::parse(json.as_bytes(), Naming::Alone, &policy).unwrap();
        let [a, b] = known.known.as_slice() else {
            panic!("{known:?}");
        };
        assert_eq!(
            (&*a.name, a.tool.parameters.get()),
            ("a", r#"{"type":"object"}"#)
        );
        assert_eq!((&*b.name, &*b.tool.description), ("b", "B"));
        assert_eq!(b.timeout, Some(Duration::from_millis(5)));
        let schema = r#"{"properties":{"x":{"type":"integer"}},"type":"object"}"#;
        assert_eq!(b.tool.parameters.get(), schema);
    }
}
