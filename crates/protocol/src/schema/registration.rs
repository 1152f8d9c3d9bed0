//! A device's services: parsed and measured, then compiled in short steps.

use std::{collections::BTreeMap, vec};

use bytes::Bytes;
use serde_json::{Map, Value, value::RawValue};

use super::{
    Digest, RegisterError, SchemaFault, SchemaLimits,
    budget::{self, Located, join},
    compiled_schema::{CompiledSchema, Deferred, SchemaCompilation, whole},
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
    params: Option<Schema>,
    output: Option<Schema>,
}

#[derive(Debug)]
enum Schema {
    Measured(Box<SchemaCompilation>),
    Compiled(CompiledSchema),
}

/// A device's services, of which some schemas and patterns are compiled.
#[derive(Debug)]
pub struct Compilation {
    json: Bytes,
    memory_bytes: usize,
    patterns: Patterns,
    left: vec::IntoIter<MeasuredService>,
    services: Vec<Service>,
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
    /// The schema of the data of results; `None` accepts anything.
    output: Option<CompiledSchema>,
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

    /// The work of compiling all of it, in values of schemas.
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
        let services = self.services.iter();
        let values = services.map(MeasuredService::nodes);
        let values = values
            .fold(0, usize::saturating_add)
            .saturating_mul(VALUE_BYTES);
        let services = self.services.len().saturating_mul(SERVICE_BYTES);
        self.json
            .len()
            .saturating_add(values)
            .saturating_add(services)
    }

    /// Begins to compile every schema.
    #[must_use]
    pub fn into_compilation(self) -> Compilation {
        Compilation {
            memory_bytes: self.memory_bytes(),
            json: self.json,
            patterns: Patterns::default(),
            services: Vec::with_capacity(self.services.len()),
            left: self.services.into_iter(),
        }
    }
}

impl Compilation {
    /// Compiles one pattern, or one schema whose patterns are compiled, which takes some
    /// milliseconds at most. Returns whether anything was left to compile.
    ///
    /// # Errors
    /// The first error, in the order of the services' names. The compilation has failed then.
    pub fn step(&mut self) -> Result<bool, RegisterError> {
        let Some(service) = self.left.as_mut_slice().first_mut() else {
            return Ok(false);
        };
        if !service.step(&mut self.patterns)? {
            self.services.extend(self.left.next().map(Service::from));
        }
        Ok(true)
    }

    /// Completes the steps that are left.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn finish(mut self) -> Result<Registration, RegisterError> {
        while self.step()? {}
        Ok(Registration {
            digest: Digest::compute(&self.json),
            json: self.json,
            services: self.services.into(),
            memory_bytes: self.memory_bytes.saturating_add(self.patterns.bytes()),
        })
    }
}

impl Registration {
    /// Measures and compiles `services`.
    ///
    /// # Errors
    /// As [`MeasuredServices::measure`] and [`Compilation::step`].
    pub fn build(services: &RawValue, limits: &SchemaLimits) -> Result<Self, RegisterError> {
        MeasuredServices::measure(services, limits)?
            .into_compilation()
            .finish()
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

    /// Whether the service declares a schema of its results' data.
    #[must_use]
    pub const fn has_output(&self) -> bool {
        self.output.is_some()
    }

    /// Checks the `data` of a result object against the declared schema, as far as it takes less
    /// than half a millisecond. Absent data counts as `null`; of repeated members the last one counts.
    ///
    /// # Errors
    /// What is left to do; see [`Self::finish_result_check`].
    pub fn try_check_result(
        &self,
        result: &RawValue,
    ) -> Result<Result<(), Vec<Violation>>, Deferred> {
        let Some(schema) = &self.output else {
            return Ok(Ok(()));
        };
        if result.get().len() > MAX_QUICK_BYTES {
            return Err(Deferred::Check);
        }
        match parse_data(result) {
            Ok((document, bytes)) => schema.try_check(&document, bytes),
            Err(violations) => Ok(Err(violations)),
        }
    }

    /// Completes [`Self::try_check_result`] of the same result. Takes up to some 100 ms.
    ///
    /// # Errors
    /// As [`Self::check`], for the data.
    pub fn finish_result_check(
        &self,
        result: &RawValue,
        left: Deferred,
    ) -> Result<(), Vec<Violation>> {
        let Some(schema) = &self.output else {
            return Ok(());
        };
        let (document, bytes) = parse_data(result)?;
        match left {
            Deferred::Places => Err(schema.explain(&document, bytes)),
            Deferred::Check => schema.check(&document, bytes),
        }
    }
}

/// The data of a result, and the bytes of its JSON.
fn parse_data(result: &RawValue) -> Result<(Document, usize), Vec<Violation>> {
    const DATA: &str = "data";
    const ABSENT: &str = "null";
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(result.get());
    let members = members
        .map_err(|_| whole("the keys of a result are strings without half of a surrogate pair"))?;
    let data = members.get(DATA).map_or(ABSENT, |data| data.get());
    let document = Document::parse(data).map_err(|error| vec![unread_value(error)])?;
    Ok((document, data.len()))
}

fn parse_params(params: &RawValue) -> Result<Document, Vec<Violation>> {
    let document = Document::parse(params.get()).map_err(|error| vec![unread_value(error)])?;
    if document.value.is_object() {
        return Ok(document);
    }
    Err(whole("the params must be a JSON object"))
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

    /// The values of both schemas.
    fn nodes(&self) -> usize {
        let schemas = [&self.params, &self.output].into_iter().flatten();
        let nodes = schemas.map(|schema| match schema {
            Schema::Measured(schema) => schema.cost().nodes,
            Schema::Compiled(_) => 0,
        });
        nodes.fold(0, usize::saturating_add)
    }

    /// Compiles one pattern or schema. Returns whether anything was left to compile.
    fn step(&mut self, patterns: &mut Patterns) -> Result<bool, RegisterError> {
        let fields = [(PARAMETERS, &mut self.params), (OUTPUT, &mut self.output)];
        for (field, schema) in fields {
            let Some(Schema::Measured(compilation)) = schema else {
                continue;
            };
            let compiled = compilation.step(patterns);
            let compiled = compiled.map_err(|located| bad_schema(&self.name, field, located))?;
            if let Some(compiled) = compiled {
                *schema = Some(Schema::Compiled(compiled));
            }
            return Ok(true);
        }
        Ok(false)
    }
}

impl From<MeasuredService> for Service {
    fn from(service: MeasuredService) -> Self {
        let compiled = |schema| match schema {
            Some(Schema::Compiled(compiled)) => Some(compiled),
            _ => None,
        };
        Self {
            name: service.name,
            timeout_ms: service.timeout_ms,
            params: compiled(service.params),
            output: compiled(service.output),
        }
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
) -> Result<Option<Schema>, RegisterError> {
    let Some(schema) = fields.remove(field) else {
        return Ok(None);
    };
    let refuse = |located| bad_schema(service, field, located);
    if field == PARAMETERS {
        check_accepts_objects(&schema).map_err(refuse)?;
    }
    let measured = budget::measure(&schema, total.limits).map_err(refuse)?;
    total.add(measured.cost)?;
    let compilation = SchemaCompilation::new(schema, measured);
    Ok(Some(Schema::Measured(Box::new(compilation))))
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
        DocumentError::Malformed { path, detail } if path.is_empty() => {
            RegisterError::Malformed { detail }
        }
        DocumentError::Malformed { path, detail } => RegisterError::Malformed {
            detail: format!("at `{}`: {detail}", join_all(&path)),
        },
        DocumentError::Duplicate { path, key } if path.is_empty() => {
            RegisterError::DuplicateService { name: quoted(&key) }
        }
        DocumentError::Duplicate { path, key } => RegisterError::DuplicateKey {
            pointer: join_all(&path),
            key: quoted(&key),
        },
    }
}

fn unread_value(error: DocumentError) -> Violation {
    match error {
        DocumentError::Malformed { path, detail } => Violation {
            pointer: join_all(&path),
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
