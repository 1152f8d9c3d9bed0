//! A device's services, parsed, measured and compiled.

use bytes::Bytes;
use serde_json::{Map, Value, value::RawValue};

use super::{
    Digest, RegisterError, SchemaFault, SchemaLimits,
    budget::{Located, join},
    compiled_schema::CompiledSchema,
    document::{Document, DocumentError},
    error::quoted,
    expansion::Cost,
};
use crate::outcome::Violation;

/// The maximum timeout of a service, in milliseconds.
const MAX_TIMEOUT_MS: u32 = 300_000;
/// The cost of all schemas of a registration, as a multiple of the limit for one: the maximum
/// number of services with some 150 values each.
const TOTAL_EXPANSION_FACTOR: usize = 12;
/// Patterns in all schemas of a registration.
const MAX_TOTAL_PATTERNS: usize = 128;

/// A device's services, shared by all connections that sent the same bytes.
///
/// Invariant: complete or refused. One invalid service refuses the whole set.
#[derive(Debug)]
pub struct Registration {
    /// The digest of `json`.
    pub digest: Digest,
    /// The services object as sent, JSON text.
    pub json: Bytes,
    /// Sorted by name.
    services: Box<[Service]>,
}

/// One callable service.
#[derive(Debug)]
pub struct Service {
    /// The service's name.
    pub name: Box<str>,
    /// The service's timeout in milliseconds, 1 to 300,000.
    pub timeout_ms: Option<u32>,
    /// `None` accepts any object.
    params: Option<CompiledSchema>,
}

impl Registration {
    /// Parses `services`, and measures and compiles every schema in it. (S 3.2, 6.1)
    ///
    /// # Errors
    /// The first error, in the order of the services' names.
    pub fn build(services: &RawValue, limits: &SchemaLimits) -> Result<Self, RegisterError> {
        let json = services.get();
        let digest = Digest::compute(json.as_bytes());
        let document = Document::parse(json).map_err(unreadable)?;
        let Value::Object(members) = document.value else {
            return Err(RegisterError::NotAnObject);
        };
        if members.len() > limits.max_services {
            let (count, limit) = (members.len(), limits.max_services);
            return Err(RegisterError::TooManyServices { count, limit });
        }
        let mut total = TotalCost {
            limits,
            cost: Cost::default(),
        };
        let mut services = Vec::with_capacity(members.len());
        for (name, definition) in &members {
            services.push(Service::build(name, definition, &mut total)?);
        }
        services.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let json = Bytes::copy_from_slice(json.as_bytes());
        Ok(Self {
            digest,
            json,
            services: services.into(),
        })
    }

    /// Returns the service with this name.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&Service> {
        let found = self
            .services
            .binary_search_by(|service| (*service.name).cmp(name));
        self.services.get(found.ok()?)
    }

    /// Iterates over the services in the order of their names.
    pub fn services(&self) -> impl ExactSizeIterator<Item = &Service> {
        self.services.iter()
    }

    /// Returns the number of services.
    #[must_use]
    pub fn len(&self) -> usize {
        self.services.len()
    }

    /// Returns whether the device has no services, which is valid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }
}

impl Service {
    /// Checks the params of a call: an object without repeated keys, as the device must read what
    /// is checked here. (S 4.2)
    ///
    /// # Errors
    /// Where the params violate the schema: 1 to 16 places, each with a description of some 256
    /// bytes at most.
    pub fn check(&self, params: &RawValue) -> Result<(), Vec<Violation>> {
        let document = Document::parse(params.get()).map_err(|error| vec![unread_params(error)])?;
        if !document.value.is_object() {
            let detail = "the params must be a JSON object".to_owned();
            return Err(vec![Violation {
                pointer: String::new(),
                detail,
            }]);
        }
        match &self.params {
            Some(gate) => gate.check(&document, params.get().len()),
            None => Ok(()),
        }
    }

    fn build(
        name: &str,
        definition: &Value,
        total: &mut TotalCost<'_>,
    ) -> Result<Self, RegisterError> {
        let limits = total.limits;
        let is_name = (1..=limits.max_name_bytes).contains(&name.len());
        if !is_name || name.chars().any(char::is_control) {
            let limit_bytes = limits.max_name_bytes;
            return Err(RegisterError::BadName {
                name: quoted(name),
                limit_bytes,
            });
        }
        let Value::Object(fields) = definition else {
            return Err(bad_service(name, "a service is an object"));
        };
        let timeout_ms = read_fields(name, fields, limits)?;
        let params = read_schema(name, "parameters", fields, total)?;
        // The schema of the results is published, so it must be a valid schema too.
        read_schema(name, "output", fields, total)?;
        Ok(Self {
            name: name.into(),
            timeout_ms,
            params,
        })
    }
}

/// The cost of all schemas so far.
struct TotalCost<'l> {
    limits: &'l SchemaLimits,
    cost: Cost,
}

impl TotalCost<'_> {
    fn add(&mut self, cost: Cost) -> Result<(), RegisterError> {
        self.cost.add(cost);
        let limit = self
            .limits
            .max_expansion
            .saturating_mul(TOTAL_EXPANSION_FACTOR);
        if self.cost.nodes > limit || self.cost.patterns > MAX_TOTAL_PATTERNS {
            return Err(RegisterError::TooExpansive {
                limit,
                pattern_limit: MAX_TOTAL_PATTERNS,
            });
        }
        Ok(())
    }
}

/// Checks the fields that are not schemas, and returns the timeout. Unknown fields stay in the JSON
/// and are ignored.
fn read_fields(
    name: &str,
    fields: &Map<String, Value>,
    limits: &SchemaLimits,
) -> Result<Option<u32>, RegisterError> {
    match fields.get("description") {
        None => {}
        Some(Value::String(text)) if text.len() <= limits.max_description_bytes => {}
        Some(_) => {
            let limit_bytes = limits.max_description_bytes;
            let detail = format!("its `description` is a string of at most {limit_bytes} bytes");
            return Err(bad_service(name, &detail));
        }
    }
    if fields
        .get("annotations")
        .is_some_and(|annotations| !annotations.is_object())
    {
        return Err(bad_service(name, "its `annotations` are an object"));
    }
    let Some(timeout) = fields.get("timeout_ms") else {
        return Ok(None);
    };
    let timeout_ms = timeout
        .as_u64()
        .and_then(|timeout_ms| u32::try_from(timeout_ms).ok());
    match timeout_ms {
        Some(timeout_ms @ 1..=MAX_TIMEOUT_MS) => Ok(Some(timeout_ms)),
        _ => {
            let detail = format!("its `timeout_ms` is an integer from 1 to {MAX_TIMEOUT_MS}");
            Err(bad_service(name, &detail))
        }
    }
}

fn read_schema(
    service: &str,
    field: &str,
    fields: &Map<String, Value>,
    total: &mut TotalCost<'_>,
) -> Result<Option<CompiledSchema>, RegisterError> {
    let Some(schema) = fields.get(field) else {
        return Ok(None);
    };
    let bad_schema = |Located { pointer, fault }| RegisterError::BadSchema {
        service: quoted(service),
        pointer: quoted(&format!("/{field}{pointer}")),
        fault,
    };
    if field == "parameters" {
        check_accepts_objects(schema).map_err(bad_schema)?;
    }
    let gate = CompiledSchema::build(schema, total.limits).map_err(bad_schema)?;
    total.add(gate.cost())?;
    Ok(Some(gate))
}

/// Parameters are named, so their schema must accept objects. (S 3.2)
fn check_accepts_objects(schema: &Value) -> Result<(), Located> {
    let Value::Object(members) = schema else {
        let fault = SchemaFault::Invalid("the schema of the parameters is an object".to_owned());
        return Err(Located {
            pointer: String::new(),
            fault,
        });
    };
    match members.get("type") {
        None => Ok(()),
        Some(Value::String(name)) if name == "object" => Ok(()),
        Some(_) => Err(Located {
            pointer: "/type".to_owned(),
            fault: SchemaFault::NotForObjects,
        }),
    }
}

fn bad_service(name: &str, detail: &str) -> RegisterError {
    RegisterError::BadService {
        service: quoted(name),
        detail: detail.to_owned(),
    }
}

fn unreadable(error: DocumentError) -> RegisterError {
    match error {
        DocumentError::Malformed(detail) => RegisterError::Malformed { detail },
        DocumentError::Duplicate { path, key } if path.is_empty() => {
            RegisterError::DuplicateService { name: quoted(&key) }
        }
        DocumentError::Duplicate { path, key } => RegisterError::DuplicateKey {
            pointer: join_all(&path),
            key: quoted(&key),
        },
    }
}

fn unread_params(error: DocumentError) -> Violation {
    match error {
        DocumentError::Malformed(detail) => Violation {
            pointer: String::new(),
            detail,
        },
        DocumentError::Duplicate { path, key } => {
            let detail = format!("`{}` is repeated here", quoted(&key));
            Violation {
                pointer: join_all(&path),
                detail,
            }
        }
    }
}

fn join_all(path: &[String]) -> String {
    quoted(
        &path
            .iter()
            .fold(String::new(), |pointer, step| join(&pointer, step)),
    )
}

#[cfg(test)]
mod tests;
