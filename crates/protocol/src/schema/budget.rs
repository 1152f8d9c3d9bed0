//! Measures a schema before it is compiled: its size, depth, patterns and references.
//!
//! Invariant: an unknown keyword is measured as data, and a property's name is never taken for a
//! keyword.

use std::{collections::HashMap, io};

use serde_json::{Map, Value};

use super::{
    SchemaLimits,
    error::SchemaFault,
    expansion::{self, Cost},
    pattern::{self, PatternKind, PatternUse},
};

/// The values of `type`.
pub(super) const VALID_TYPES: &str =
    "\"string\", \"number\", \"integer\", \"boolean\", \"array\", \"object\" or \"null\"";
const TYPES: [&str; 7] = [
    "string", "number", "integer", "boolean", "array", "object", "null",
];
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Patterns in one schema. Each takes memory for the lifetime of its registration.
const MAX_PATTERNS: usize = 16;
/// Bytes of one pattern.
const MAX_PATTERN_BYTES: usize = 256;

/// A fault and the JSON pointer to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) pointer: String,
    pub(super) fault: SchemaFault,
}

/// A schema within its limits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// Its cost with the references followed.
    pub(super) cost: Cost,
    /// Its patterns, each as often as it is written.
    pub(super) patterns: Vec<PatternUse>,
}

/// Returns the cost and the patterns of a schema, or why it is refused.
pub(super) fn measure(schema: &Value, limits: &SchemaLimits) -> Result<Measured, Located> {
    let bytes = json_bytes(schema);
    if bytes > limits.max_schema_bytes {
        let fault = SchemaFault::TooLarge {
            limit: limits.max_schema_bytes,
        };
        return Err(Located {
            pointer: String::new(),
            fault,
        });
    }
    let mut survey = SchemaSurvey {
        limits,
        schemas: Vec::new(),
        by_pointer: HashMap::new(),
        nodes: 0,
        patterns: Vec::new(),
    };
    survey.schema(schema, String::new(), 1)?;
    let cost = expansion::expand(&survey.schemas, &survey.by_pointer, limits.max_expansion)?;
    Ok(Measured {
        cost,
        patterns: survey.patterns,
    })
}

/// A schema within the measured schema.
#[derive(Debug, Default)]
pub(super) struct Subschema {
    pub(super) pointer: String,
    /// Its cost without the schemas within it.
    pub(super) own: Cost,
    /// The schemas directly within it, as indices.
    pub(super) inner: Vec<usize>,
    /// The JSON pointer of its `$ref`.
    pub(super) reference: Option<String>,
}

/// What the value of a keyword is.
#[derive(Clone, Copy)]
enum KeywordValue {
    Schema,
    ListOfSchemas,
    NamedSchemas,
    Data,
}

fn keyword_value(keyword: &str) -> KeywordValue {
    match keyword {
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "not"
        | "propertyNames"
        | "then" => KeywordValue::Schema,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => KeywordValue::ListOfSchemas,
        "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties"
        | "properties" => KeywordValue::NamedSchemas,
        _ => KeywordValue::Data,
    }
}

/// Keywords whose evaluation is unbounded, or that name a place other than by its pointer.
const FORBIDDEN: [&str; 8] = [
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$anchor",
    "$vocabulary",
];

/// Only the root may have an `$id`. Inner schemas are referenced by pointer.
const ROOT_ID: &str = "/$id";

struct SchemaSurvey<'l> {
    limits: &'l SchemaLimits,
    schemas: Vec<Subschema>,
    by_pointer: HashMap<String, usize>,
    /// Values so far.
    nodes: usize,
    patterns: Vec<PatternUse>,
}

impl SchemaSurvey<'_> {
    /// Measures the schema at `pointer` and returns its index. Recurses at most `max_depth` deep.
    fn schema(&mut self, schema: &Value, pointer: String, depth: usize) -> Result<usize, Located> {
        self.spend_node(&pointer, depth)?;
        let index = self.schemas.len();
        self.by_pointer.insert(pointer.clone(), index);
        self.schemas.push(Subschema {
            pointer: pointer.clone(),
            own: Cost::NODE,
            ..Default::default()
        });
        let members = match schema {
            Value::Bool(_) => return Ok(index),
            Value::Object(members) => members,
            _ => {
                let detail = "a schema is an object, or true or false".to_owned();
                return Err(Located {
                    pointer,
                    fault: SchemaFault::Invalid(detail),
                });
            }
        };
        let mut found = Subschema {
            own: Cost::NODE,
            ..Default::default()
        };
        for (keyword, value) in members {
            let at = join(&pointer, keyword);
            if keyword == "pattern"
                && let Value::String(text) = value
            {
                let max_length = pattern::max_length(members);
                self.pattern(text, &at, PatternKind::Text { max_length })?;
                found.own.patterns = found.own.patterns.saturating_add(1);
            }
            self.keyword(keyword, value, at, depth, &mut found)?;
        }
        if let Some(entry) = self.schemas.get_mut(index) {
            *entry = Subschema { pointer, ..found };
        }
        Ok(index)
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &Value,
        at: String,
        depth: usize,
        found: &mut Subschema,
    ) -> Result<(), Located> {
        let inner_depth = depth.saturating_add(1);
        match (keyword_value(keyword), value) {
            (KeywordValue::Schema, _) => found.inner.push(self.schema(value, at, inner_depth)?),
            (KeywordValue::ListOfSchemas, Value::Array(list)) => {
                self.spend_node(&at, inner_depth)?;
                found.own.add(Cost::NODE);
                for (position, schema) in list.iter().enumerate() {
                    let at = join(&at, &position.to_string());
                    found
                        .inner
                        .push(self.schema(schema, at, inner_depth.saturating_add(1))?);
                }
            }
            (KeywordValue::NamedSchemas, Value::Object(named)) => {
                self.named_schemas(keyword, named, &at, inner_depth, found)?;
            }
            _ => {
                check_special(keyword, value, &at, found)?;
                found.own.add(self.data(value, &at, inner_depth)?);
            }
        }
        Ok(())
    }

    fn named_schemas(
        &mut self,
        keyword: &str,
        named: &Map<String, Value>,
        at: &str,
        depth: usize,
        found: &mut Subschema,
    ) -> Result<(), Located> {
        self.spend_node(at, depth)?;
        found.own.add(Cost::NODE);
        let inner_depth = depth.saturating_add(1);
        for (name, schema) in named {
            let at = join(at, name);
            found.own.bytes = found.own.bytes.saturating_add(name.len());
            if keyword == "patternProperties" {
                self.pattern(name, &at, PatternKind::Name)?;
                found.own.name_patterns = found.own.name_patterns.saturating_add(1);
            }
            match schema {
                // `dependencies` of older drafts holds lists of property names as well as schemas.
                Value::Array(_) if keyword == "dependencies" => {
                    found.own.add(self.data(schema, &at, inner_depth)?);
                }
                _ => found.inner.push(self.schema(schema, at, inner_depth)?),
            }
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &str, at: &str, kind: PatternKind) -> Result<(), Located> {
        let fault = if self.patterns.len() >= MAX_PATTERNS {
            SchemaFault::TooManyPatterns {
                limit: MAX_PATTERNS,
            }
        } else if pattern.len() > MAX_PATTERN_BYTES {
            SchemaFault::PatternTooLong {
                limit: MAX_PATTERN_BYTES,
            }
        } else {
            self.patterns.push(PatternUse {
                pointer: at.to_owned(),
                pattern: pattern.to_owned(),
                kind,
            });
            return Ok(());
        };
        Err(Located {
            pointer: at.to_owned(),
            fault,
        })
    }

    /// Counts a value that is not a schema, whatever it looks like.
    fn data(&mut self, value: &Value, at: &str, depth: usize) -> Result<Cost, Located> {
        let before = self.nodes;
        self.data_nodes(value, at, depth)?;
        Ok(Cost {
            nodes: self.nodes.saturating_sub(before),
            bytes: json_bytes(value),
            ..Cost::default()
        })
    }

    fn data_nodes(&mut self, value: &Value, at: &str, depth: usize) -> Result<(), Located> {
        let is_leaf = !(value.is_array() || value.is_object());
        self.spend_node(at, if is_leaf { 0 } else { depth })?;
        let inner_depth = depth.saturating_add(1);
        match value {
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| self.data_nodes(item, at, inner_depth)),
            Value::Object(members) => members
                .values()
                .try_for_each(|member| self.data_nodes(member, at, inner_depth)),
            _ => Ok(()),
        }
    }

    fn spend_node(&mut self, at: &str, depth: usize) -> Result<(), Located> {
        self.nodes = self.nodes.saturating_add(1);
        let fault = if depth > self.limits.max_depth {
            SchemaFault::TooDeep {
                limit: self.limits.max_depth,
            }
        } else if self.nodes > self.limits.max_nodes {
            SchemaFault::TooManyNodes {
                limit: self.limits.max_nodes,
            }
        } else {
            return Ok(());
        };
        Err(Located {
            pointer: at.to_owned(),
            fault,
        })
    }
}

/// Checks the keywords whose values are not schemas but restricted.
fn check_special(
    keyword: &str,
    value: &Value,
    at: &str,
    found: &mut Subschema,
) -> Result<(), Located> {
    let fault = match (keyword, value) {
        ("$ref", Value::String(reference)) => match local_pointer(reference) {
            Ok(pointer) => {
                found.reference = Some(pointer);
                return Ok(());
            }
            Err(fault) => fault,
        },
        ("type", _) if !is_type(value) => SchemaFault::BadType,
        ("$schema", _) if !is_dialect(value) => SchemaFault::OtherDraft,
        ("$id", Value::String(_)) if at == ROOT_ID => return Ok(()),
        ("$id", _) => SchemaFault::InnerId,
        _ => match FORBIDDEN
            .into_iter()
            .find(|forbidden| *forbidden == keyword)
        {
            Some(keyword) => SchemaFault::Forbidden { keyword },
            None => return Ok(()),
        },
    };
    Err(Located {
        pointer: at.to_owned(),
        fault,
    })
}

/// Returns the JSON pointer after the `#` of a local reference.
fn local_pointer(reference: &str) -> Result<String, SchemaFault> {
    let pointer = reference.strip_prefix('#').ok_or(SchemaFault::RemoteRef)?;
    if !(pointer.is_empty() || pointer.starts_with('/')) {
        return Err(SchemaFault::RemoteRef);
    }
    percent_decoded(pointer).ok_or(SchemaFault::DanglingRef)
}

/// Decodes `%XX` in a URI fragment. Names outside ASCII are written that way.
fn percent_decoded(fragment: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())?
                .saturating_mul(16)
                .saturating_add(digit(rest.next())?);
            decoded.push(u8::try_from(value).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

fn is_type(value: &Value) -> bool {
    let named = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(named),
        _ => named(value),
    }
}

fn is_dialect(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|uri| uri.strip_suffix('#').unwrap_or(uri) == DIALECT)
}

/// Appends a step to a JSON pointer.
pub(super) fn join(pointer: &str, step: &str) -> String {
    let step = step.replace('~', "~0").replace('/', "~1");
    format!("{pointer}/{step}")
}

/// The length of a value without white space.
fn json_bytes(value: &Value) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Counting cannot fail, and every key of a value is a string.
    serde_json::to_writer(&mut counter, value).ok();
    counter.0
}

#[cfg(test)]
mod tests;
