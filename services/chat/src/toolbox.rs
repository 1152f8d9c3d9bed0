//! The services that an answer can use: read once for each text that devices registered, in both forms in which they are needed.
//! Never: a service that the character's policy refuses.

use std::sync::Arc;

use quick_cache::{Weighter, sync::Cache};
use serde_json::{Map, Value};
use switchboard_bus::{Bus, BusError};
use switchboard_completions::Tool;
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use switchboard_store::{Npc, ToolPolicy};
use switchboard_tools::{Naming, describe, tool_name};
use tracing::info;

use crate::{
    embedded::{Abilities, Ability, speaks_of},
    question::Question,
};

/// What the registrations that a node remembers take in bytes of JSON. Protects memory: read in both forms they take some times
/// that. Devices of one firmware share one.
const REMEMBERED_BYTES: u64 = 8 * 1024 * 1024;
/// How many registrations that are, as most are.
const USUALLY: usize = 4_096;
/// Tools that a model is told of; providers refuse more.
const TOOLS: usize = 128;
/// What they take in JSON. Protects a model's context.
const TOOLS_BYTES: usize = 96 * 1024;
/// Devices whose services one answer can use. Protects a model's context.
const DEVICES: usize = 16;

/// What devices offered of late, to whom.
pub(crate) struct Registrations {
    read: Cache<Registration, Arc<Services>, Weight>,
}

/// A registration, how its services are called as tools, and the policy for them.
type Registration = (Digest, Naming, String);

#[derive(Clone)]
struct Weight;

impl Weighter<Registration, Arc<Services>> for Weight {
    fn weight(&self, key: &Registration, services: &Arc<Services>) -> u64 {
        services.json_bytes.saturating_add(key.2.len()) as u64
    }
}

/// What one device offers to a character.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// For rules.
    pub(crate) abilities: Abilities,
    /// For models, in the same order.
    tools: Vec<SizedTool>,
    json_bytes: usize,
}

/// A tool, and the length of its schema in JSON.
#[derive(Debug, Clone)]
struct SizedTool {
    tool: Tool,
    schema_bytes: usize,
}

/// What one answer can use.
#[derive(Debug, Default)]
pub(crate) struct Toolbox {
    offers: Vec<(DeviceKey, Arc<Services>)>,
    naming: Option<Naming>,
}

impl Registrations {
    pub(crate) fn new() -> Self {
        Self {
            read: Cache::with_weighter(USUALLY, REMEMBERED_BYTES, Weight),
        }
    }

    /// What the devices of a question can do for its character at this moment.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub(crate) async fn open(&self, bus: &Bus, question: &Question) -> Result<Toolbox, BusError> {
        let naming = question.naming();
        let mut offers = Vec::new();
        for device in question.devices().into_iter().take(DEVICES) {
            let services = self.of(bus, &device, (naming, question.npc.as_deref()));
            if let Some(services) = services.await? {
                offers.push((device, services));
            }
        }
        Ok(Toolbox {
            offers,
            naming: Some(naming),
        })
    }

    async fn of(
        &self,
        bus: &Bus,
        device: &DeviceKey,
        (naming, npc): (Naming, Option<&Npc>),
    ) -> Result<Option<Arc<Services>>, BusError> {
        let Some(presence) = bus.find(device).await? else {
            return Ok(None);
        };
        let Some(digest) = presence.digest else {
            return Ok(None);
        };
        let everything = ToolPolicy::default();
        let policy = npc.map_or(&everything, |npc| &npc.effective.settings.tools);
        let key = (
            digest,
            naming,
            serde_json::to_string(policy).unwrap_or_default(),
        );
        if let Some(known) = self.read.get(&key) {
            return Ok(Some(known));
        }
        let Some(json) = bus.services(&presence).await? else {
            return Ok(None);
        };
        match Services::read(&json, naming, policy) {
            Ok(services) => {
                let services = Arc::new(services);
                self.read.insert(key, Arc::clone(&services));
                Ok(Some(services))
            }
            Err(error) => {
                tracing::error!(%error, "what a device registered cannot be read");
                Ok(None)
            }
        }
    }
}

impl Services {
    /// Reads a services object that passed the schema gate.
    fn read(json: &[u8], naming: Naming, policy: &ToolPolicy) -> Result<Self, serde_json::Error> {
        let mut services: Map<String, Value> = serde_json::from_slice(json)?;
        services.retain(|service, _| {
            switchboard_tools::permits(policy.allow.as_deref(), &policy.deny, service)
        });
        let tools = services.iter().map(|(service, definition)| {
            let described = describe(service, definition, naming);
            let parameters = Value::Object(described.parameters);
            SizedTool {
                schema_bytes: parameters.to_string().len(),
                tool: Tool {
                    name: described.name,
                    description: described.description.unwrap_or_default(),
                    parameters,
                },
            }
        });
        Ok(Self {
            json_bytes: json.len(),
            tools: tools.collect(),
            abilities: Abilities::read(services),
        })
    }
}

impl SizedTool {
    fn bytes(&self) -> usize {
        self.tool.name.len() + self.tool.description.len() + self.schema_bytes
    }
}

impl Toolbox {
    pub(crate) fn offers(&self) -> impl Iterator<Item = (&DeviceKey, &Services)> {
        let offers = self.offers.iter();
        offers.map(|(device, services)| (device, &**services))
    }

    pub(crate) fn abilities(&self) -> impl Iterator<Item = &Ability> {
        self.offers()
            .flat_map(|(_, services)| services.abilities.iter())
    }

    /// What a model is told of them: all that fit, and when they do not, those that speak of the question most.
    pub(crate) fn tools(&self, question: &str) -> Vec<Tool> {
        let all = self.all_tools();
        if all.len() <= TOOLS && all.iter().map(SizedTool::bytes).sum::<usize>() <= TOOLS_BYTES {
            return all.into_iter().map(|sized| sized.tool).collect();
        }
        let fit =
            |tool: &Tool| speaks_of(question, &format!("{}\n{}", tool.name, tool.description));
        let mut ranked: Vec<_> = all
            .into_iter()
            .map(|sized| (fit(&sized.tool), sized))
            .collect();
        ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let (mut left, offered) = (TOOLS_BYTES, ranked.len());
        let told: Vec<_> = ranked
            .into_iter()
            .map(|(_, sized)| sized)
            .take_while(|sized| match left.checked_sub(sized.bytes()) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            })
            .take(TOOLS)
            .map(|sized| sized.tool)
            .collect();
        info!(
            offered,
            told = told.len(),
            "a model is not told of all tools"
        );
        told
    }

    fn all_tools(&self) -> Vec<SizedTool> {
        let tools = self.offers().flat_map(|(device, services)| {
            let own = services.tools.iter().cloned();
            own.map(|SizedTool { tool, schema_bytes }| SizedTool {
                tool: Tool {
                    name: self.name(device, &tool.name),
                    description: self.description(device, &tool.description),
                    ..tool
                },
                schema_bytes,
            })
        });
        tools.collect()
    }

    /// What stands behind a tool's name.
    pub(crate) fn find(&self, name: &str) -> Option<(&DeviceKey, &Ability)> {
        self.offers().find_map(|(device, services)| {
            let both = services.tools.iter().zip(services.abilities.iter());
            let mut named = both.filter(|(sized, _)| self.name(device, &sized.tool.name) == name);
            named.next().map(|(_, ability)| (device, ability))
        })
    }

    fn is_prefixed(&self) -> bool {
        self.naming == Some(Naming::Prefixed)
    }

    /// What a model calls a service of a device.
    fn name(&self, device: &DeviceKey, service: &str) -> String {
        if self.is_prefixed() {
            let device = tool_name::device_part(device.device.as_str());
            tool_name::join(&device, service)
        } else {
            service.to_owned()
        }
    }

    /// The tool's name of a service that rules called.
    pub(crate) fn tool_of(&self, device: &DeviceKey, service: &str) -> String {
        let naming = self.naming.unwrap_or(Naming::Alone);
        self.name(device, &naming.service(service))
    }

    fn description(&self, device: &DeviceKey, own: &str) -> String {
        if self.is_prefixed() {
            format!("On the device {}: {own}", device.device)
        } else {
            own.to_owned()
        }
    }
}
