//! A device's services: parsed and measured, then compiled.

use bytes::Bytes;
use serde_json::{Map, Value, value::RawValue};

use super::{
    Digest, RegisterError, SchemaFault, SchemaLimits,
    budget::{self, Located, Measured, join},
    compiled_schema::{CompiledSchema, Deferred},
    document::{Document, DocumentError},
    error::quoted,
    expansion::Cost,
    pattern::Patterns,
};
use crate::outcome::Violation;

/// The fields of a service that are schemas.
const PARAMETERS: &str = "parameters";
const OUTPUT: &str = "output";
/// The maximum timeout of a service, in milliseconds.
const MAX_TIMEOUT_MS: u32 = 300_000;
/// The cost of all schemas of a registration, as a multiple of the limit for one: the maximum
/// number of services with some 150 values each.
const TOTAL_EXPANSION_FACTOR: usize = 12;
/// Patterns in all schemas of a registration.
const MAX_TOTAL_PATTERNS: usize = 128;
/// Params of more bytes may take half a millisecond to be parsed.
const MAX_QUICK_BYTES: usize = 16 * 1024;
/// Memory of a value of a compiled schema, and of a service with its name.
const VALUE_BYTES: usize = 384;
const SERVICE_BYTES: usize = 256;
/// What compiling a pattern costs, in values of a schema.
const PATTERN_WORK: usize = 64;

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
    /// The memory that it takes, at most.
    memory_bytes: usize,
}

/// A device's services within the limits, to be compiled.
#[derive(Debug)]
pub struct MeasuredServices {
    json: Bytes,
    services: Vec<MeasuredService>,
    cost: Cost,
}

#[derive(Debug)]
struct MeasuredService {
    name: Box<str>,
    timeout_ms: Option<u32>,
    params: Option<(Value, Measured)>,
    /// The schema of the results is published, so it must be a valid schema too.
    output: Option<(Value, Measured)>,
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

impl MeasuredServices {
    /// Parses `services` and measures every schema in it, in linear time. (S 3.2, 6.1)
    ///
    /// # Errors
    /// The first error, in the order of the services' names.
    pub fn measure(services: &RawValue, limits: &SchemaLimits) -> Result<Self, RegisterError> {
        let json = services.get();
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
        for (name, definition) in members {
            services.push(MeasuredService::measure(&name, definition, &mut total)?);
        }
        services.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(Self {
            json: Bytes::copy_from_slice(json.as_bytes()),
            services,
            cost: total.cost,
        })
    }

    /// The work of [`Self::compile`], in values of schemas.
    #[must_use]
    pub fn work(&self) -> usize {
        let patterns = self.cost.patterns.saturating_add(self.cost.name_patterns);
        let patterns = patterns.saturating_mul(PATTERN_WORK);
        let services = self.services.len();
        self.cost
            .nodes
            .saturating_add(patterns)
            .saturating_add(services)
    }

    /// The memory of the registration without its patterns, at most.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let params = self
            .services
            .iter()
            .filter_map(|service| service.params.as_ref());
        let values = params.map(|(_, measured)| measured.cost.nodes);
        let values = values
            .fold(0, usize::saturating_add)
            .saturating_mul(VALUE_BYTES);
        let services = self.services.len().saturating_mul(SERVICE_BYTES);
        self.json
            .len()
            .saturating_add(values)
            .saturating_add(services)
    }

    /// Compiles every schema.
    ///
    /// # Errors
    /// The first error, in the order of the services' names.
    pub fn compile(self) -> Result<Registration, RegisterError> {
        let memory_bytes = self.memory_bytes();
        let mut patterns = Patterns::default();
        let services = self.services.into_iter();
        let services: Vec<_> = services
            .map(|service| service.compile(&mut patterns))
            .collect::<Result<_, _>>()?;
        Ok(Registration {
            digest: Digest::compute(&self.json),
            json: self.json,
            services: services.into(),
            memory_bytes: memory_bytes.saturating_add(patterns.bytes()),
        })
    }
}

impl Registration {
    /// Measures and compiles `services`.
    ///
    /// # Errors
    /// As [`MeasuredServices::measure`] and [`MeasuredServices::compile`].
    pub fn build(services: &RawValue, limits: &SchemaLimits) -> Result<Self, RegisterError> {
        MeasuredServices::measure(services, limits)?.compile()
    }

    /// The memory that the registration takes, at most.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.memory_bytes
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
    /// is checked here. (S 4.2) Takes up to some 100 ms.
    ///
    /// # Errors
    /// Where the params violate the schema: 1 to 16 places, each with a description of some 256
    /// bytes at most.
    pub fn check(&self, params: &RawValue) -> Result<(), Vec<Violation>> {
        let document = parse_params(params)?;
        match &self.params {
            Some(schema) => schema.check(&document, params.get().len()),
            None => Ok(()),
        }
    }

    /// Like [`Self::check`], as far as it takes less than half a millisecond: that params are valid
    /// is found sooner than where they are not.
    ///
    /// # Errors
    /// What is left to do; see [`Self::finish_check`].
    pub fn try_check(&self, params: &RawValue) -> Result<Result<(), Vec<Violation>>, Deferred> {
        let bytes = params.get().len();
        if bytes > MAX_QUICK_BYTES {
            return Err(Deferred::Check);
        }
        let document = match parse_params(params) {
            Ok(document) => document,
            Err(violations) => return Ok(Err(violations)),
        };
        match &self.params {
            Some(schema) => schema.try_check(&document, bytes),
            None => Ok(Ok(())),
        }
    }

    /// Completes [`Self::try_check`] of the same params. Takes up to some 100 ms.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn finish_check(&self, params: &RawValue, left: Deferred) -> Result<(), Vec<Violation>> {
        match (left, &self.params) {
            (Deferred::Places, Some(schema)) => {
                let document = parse_params(params)?;
                Err(schema.explain(&document, params.get().len()))
            }
            _ => self.check(params),
        }
    }
}

fn parse_params(params: &RawValue) -> Result<Document, Vec<Violation>> {
    let document = Document::parse(params.get()).map_err(|error| vec![unread_params(error)])?;
    if document.value.is_object() {
        return Ok(document);
    }
    let detail = "the params must be a JSON object".to_owned();
    Err(vec![Violation {
        pointer: String::new(),
        detail,
    }])
}

impl MeasuredService {
    fn measure(
        name: &str,
        definition: Value,
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
        let Value::Object(mut fields) = definition else {
            return Err(bad_service(name, "a service is an object"));
        };
        let timeout_ms = read_fields(name, &fields, limits)?;
        Ok(Self {
            name: name.into(),
            timeout_ms,
            params: measure_schema(name, PARAMETERS, &mut fields, total)?,
            output: measure_schema(name, OUTPUT, &mut fields, total)?,
        })
    }

    fn compile(self, patterns: &mut Patterns) -> Result<Service, RegisterError> {
        let name = self.name;
        let mut compile = |field, schema: Option<(Value, Measured)>| {
            let Some((schema, measured)) = schema else {
                return Ok(None);
            };
            let compiled = CompiledSchema::build(&schema, &measured, patterns);
            compiled
                .map(Some)
                .map_err(|located| bad_schema(&name, field, located))
        };
        let params = compile(PARAMETERS, self.params)?;
        compile(OUTPUT, self.output)?;
        Ok(Service {
            name,
            timeout_ms: self.timeout_ms,
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
        let patterns = self.cost.patterns.saturating_add(self.cost.name_patterns);
        if self.cost.nodes > limit || patterns > MAX_TOTAL_PATTERNS {
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

/// Takes a schema out of the fields and measures it.
fn measure_schema(
    service: &str,
    field: &str,
    fields: &mut Map<String, Value>,
    total: &mut TotalCost<'_>,
) -> Result<Option<(Value, Measured)>, RegisterError> {
    let Some(schema) = fields.remove(field) else {
        return Ok(None);
    };
    let refuse = |located| bad_schema(service, field, located);
    if field == PARAMETERS {
        check_accepts_objects(&schema).map_err(refuse)?;
    }
    let measured = budget::measure(&schema, total.limits).map_err(refuse)?;
    total.add(measured.cost)?;
    Ok(Some((schema, measured)))
}

fn bad_schema(service: &str, field: &str, Located { pointer, fault }: Located) -> RegisterError {
    RegisterError::BadSchema {
        service: quoted(service),
        pointer: quoted(&format!("/{field}{pointer}")),
        fault,
    }
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
