//! The services that an answer can use, for models and for rules.
//! Invariant: services that the NPC's policy denies are not in the set.

use std::{sync::Arc, time::Duration};

use quick_cache::{Weighter, sync::Cache};
use serde_json::{Map, Value};
use switchboard_bus::{Bus, BusError};
use switchboard_catalog::ToolPolicy;
use switchboard_completions::Tool;
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use switchboard_rule_responder::{Offer, Service};
use switchboard_store::Npc;
use switchboard_tools::{Naming, describe, tool_name};
use tracing::info;

use crate::{
    answer::{overlap::overlap, phrases},
    user_message::UserMessage,
};

/// Capacity of the cache in bytes of registered JSON. Parsed, a registration takes several times
/// its JSON. Devices with the same firmware share an entry.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// Expected number of cached registrations.
const CACHE_ENTRIES: usize = 4_096;
/// Maximum number of tools in a request to a model; providers reject more.
const MAX_TOOLS: usize = 128;
/// Maximum size of these tools as JSON. Protects the model's context.
const MAX_TOOLS_BYTES: usize = 96 * 1024;
/// Maximum number of devices whose services one answer can use. Protects the model's context.
const MAX_DEVICES: usize = 16;

/// Cache of parsed registrations.
pub(crate) struct ServiceCache {
    entries: Cache<CacheKey, Arc<DeviceServices>, Weight>,
}

/// A registration, the naming of its services as tools, and the tool policy as JSON.
type CacheKey = (Digest, Naming, String);

#[derive(Clone)]
struct Weight;

impl Weighter<CacheKey, Arc<DeviceServices>> for Weight {
    fn weight(&self, key: &CacheKey, services: &Arc<DeviceServices>) -> u64 {
        services.json_bytes.saturating_add(key.2.len()) as u64
    }
}

/// The services of one device that an NPC may use.
#[derive(Debug, Default)]
struct DeviceServices {
    services: Vec<Service>,
    /// The same as tools, in the same order.
    tools: Vec<ServiceTool>,
    json_bytes: usize,
}

#[derive(Debug, Clone)]
struct ServiceTool {
    tool: Tool,
    /// Length of the schema as JSON.
    schema_bytes: usize,
    /// The device's own timeout for this service.
    timeout: Option<Duration>,
}

/// The services that one answer can use.
#[derive(Debug, Default)]
pub(crate) struct ToolSet {
    devices: Vec<(DeviceKey, Arc<DeviceServices>)>,
    naming: Option<Naming>,
}

/// A service that can be called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callable<'a> {
    pub(crate) device: &'a DeviceKey,
    pub(crate) service: &'a str,
    pub(crate) description: &'a str,
    /// The device's own timeout for this service.
    pub(crate) timeout: Option<Duration>,
}

impl ServiceCache {
    pub(crate) fn new() -> Self {
        Self {
            entries: Cache::with_weighter(CACHE_ENTRIES, CACHE_BYTES, Weight),
        }
    }

    /// The services that the answer to this message can use now.
    ///
    /// # Errors
    /// When the directory is unavailable.
    pub(crate) async fn tool_set(
        &self,
        bus: &Bus,
        message: &UserMessage,
    ) -> Result<ToolSet, BusError> {
        let naming = message.naming();
        let mut devices = Vec::new();
        for device in message.devices().into_iter().take(MAX_DEVICES) {
            let services = self.find(bus, &device, (naming, message.npc.as_deref()));
            if let Some(services) = services.await? {
                devices.push((device, services));
            }
        }
        Ok(ToolSet {
            devices,
            naming: Some(naming),
        })
    }

    async fn find(
        &self,
        bus: &Bus,
        device: &DeviceKey,
        (naming, npc): (Naming, Option<&Npc>),
    ) -> Result<Option<Arc<DeviceServices>>, BusError> {
        let Some(presence) = bus.find(device).await? else {
            return Ok(None);
        };
        let Some(digest) = presence.digest else {
            return Ok(None);
        };
        let allow_all = ToolPolicy::default();
        let policy = npc.map_or(&allow_all, |npc| &npc.effective.settings.tools);
        let key = (
            digest,
            naming,
            serde_json::to_string(policy).unwrap_or_default(),
        );
        if let Some(cached) = self.entries.get(&key) {
            return Ok(Some(cached));
        }
        let Some(json) = bus.services(&presence).await? else {
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
    /// Parses a services object that passed schema validation.
    fn parse(json: &[u8], naming: Naming, policy: &ToolPolicy) -> Result<Self, serde_json::Error> {
        let mut services: Map<String, Value> = serde_json::from_slice(json)?;
        services.retain(|service, _| {
            switchboard_tools::permits(policy.allow.as_deref(), &policy.deny, service)
        });
        let tools = services.iter().map(|(service, definition)| {
            let described = describe(service, definition, naming);
            let parameters = Value::Object(described.parameters);
            let timeout = definition.get("timeout_ms").and_then(Value::as_u64);
            ServiceTool {
                schema_bytes: parameters.to_string().len(),
                tool: Tool {
                    name: described.name,
                    description: described.description.unwrap_or_default(),
                    parameters,
                },
                timeout: timeout.map(Duration::from_millis),
            }
        });
        let parsed = services
            .iter()
            .map(|(name, definition)| Service::read(name, definition));
        Ok(Self {
            json_bytes: json.len(),
            tools: tools.collect(),
            services: parsed.collect(),
        })
    }
}

impl Callable<'_> {
    /// Its description as a part of a sentence.
    pub(crate) fn describe(&self) -> String {
        phrases::describe(self.service, self.description)
    }
}

impl ServiceTool {
    fn bytes(&self) -> usize {
        self.tool.name.len() + self.tool.description.len() + self.schema_bytes
    }
}

impl ToolSet {
    /// The services of each device, for the rule responder.
    pub(crate) fn offers(&self) -> Vec<Offer<'_>> {
        let offers = self.devices.iter().map(|(device, known)| Offer {
            device: device.device.as_str(),
            services: &known.services,
        });
        offers.collect()
    }

    /// All services, in the order of the devices and of the names.
    pub(crate) fn callables(&self) -> impl Iterator<Item = Callable<'_>> {
        self.entries().map(|(callable, _)| callable)
    }

    /// The tools for a model: all that fit the limits, else those with the most words in common
    /// with the message.
    pub(crate) fn tools(&self, message: &str) -> Vec<Tool> {
        let all = self.all_tools();
        let bytes = all.iter().map(ServiceTool::bytes).sum::<usize>();
        if all.len() <= MAX_TOOLS && bytes <= MAX_TOOLS_BYTES {
            return all.into_iter().map(|service| service.tool).collect();
        }
        let score = |tool: &Tool| {
            let text = format!("{}\n{}", tool.name, tool.description);
            overlap(message, &text)
        };
        let mut ranked: Vec<_> = all
            .into_iter()
            .map(|service| (score(&service.tool), service))
            .collect();
        ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let (mut left, offered) = (MAX_TOOLS_BYTES, ranked.len());
        let selected: Vec<_> = ranked
            .into_iter()
            .map(|(_, service)| service)
            .take_while(|service| match left.checked_sub(service.bytes()) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            })
            .take(MAX_TOOLS)
            .map(|service| service.tool)
            .collect();
        info!(
            offered,
            selected = selected.len(),
            "too many tools for a model; sending those closest to the message"
        );
        selected
    }

    fn all_tools(&self) -> Vec<ServiceTool> {
        let tools = self.entries().map(|(callable, service)| {
            let mut service = service.clone();
            service.tool.name = self.name(callable.device, &service.tool.name);
            service.tool.description = self.description(callable.device, &service.tool.description);
            service
        });
        tools.collect()
    }

    /// The service with this tool name.
    pub(crate) fn find(&self, name: &str) -> Option<Callable<'_>> {
        let mut entries = self.entries();
        let found = entries
            .find(|(callable, service)| self.name(callable.device, &service.tool.name) == name);
        found.map(|(callable, _)| callable)
    }

    /// The service with this name of the device with this id.
    pub(crate) fn service(&self, device: &str, name: &str) -> Option<Callable<'_>> {
        let is_wanted = |callable: &Callable<'_>| {
            callable.device.device.as_str() == device && callable.service == name
        };
        self.callables().find(is_wanted)
    }

    fn entries(&self) -> impl Iterator<Item = (Callable<'_>, &ServiceTool)> {
        self.devices.iter().flat_map(|(device, known)| {
            let entries = known.services.iter().zip(&known.tools);
            entries.map(move |(service, tool)| {
                let callable = Callable {
                    device,
                    service: &service.name,
                    description: &tool.tool.description,
                    timeout: tool.timeout,
                };
                (callable, tool)
            })
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
