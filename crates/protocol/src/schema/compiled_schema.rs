//! A compiled schema, and the bounds within which a value is checked against it.
//!
//! Invariant: errors are collected only after the value is known to be invalid, and only when their
//! total size is bounded.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use jsonschema::{Draft, PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

use super::{
    SchemaLimits,
    budget::{self, Located},
    document::Document,
    error::{SchemaFault, quoted},
    expansion::Cost,
};
use crate::outcome::Violation;

/// Violations in one answer.
const MAX_VIOLATIONS: usize = 16;
/// Bytes of a pointer or a description in an answer.
const MAX_TEXT_BYTES: usize = 256;
/// Bytes of a compiled pattern, tried in this order. A schema uses the first limit that suffices
/// for all of its patterns, and is charged that much for each.
const PATTERN_PROGRAM_BYTES: [usize; 8] = [
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
];
/// Bytes that a pattern may cache between inputs.
const MAX_PATTERN_CACHE_BYTES: usize = 64 * 1024;
/// Values of the params times values of the schema: the steps of one check.
const MAX_STEPS: usize = 2 * 1024 * 1024;
/// Bytes of the params times values of the schema: characters counted, strings compared.
const MAX_BYTE_STEPS: usize = 64 * 1024 * 1024;
/// Bytes of the params times bytes of the compiled patterns. In the worst case the engine visits
/// every state, of some 30 bytes, at every byte.
const MAX_PATTERN_STEPS: usize = 1024 * 1024 * 1024;
/// Bytes of all errors of one check. The library creates all of them before it returns the first.
const MAX_ERROR_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of one error without its quotations.
const ERROR_BYTES: usize = 256;

/// One schema, ready to check values.
#[derive(Debug)]
pub(super) struct CompiledSchema {
    validator: Validator,
    cost: Cost,
    /// Bytes of all compiled patterns.
    pattern_bytes: usize,
}

impl CompiledSchema {
    /// Measures a schema, then compiles it.
    pub(super) fn build(schema: &Value, limits: &SchemaLimits) -> Result<Self, Located> {
        let cost = budget::measure(schema, limits)?;
        let schema = &without_id(schema);
        let [first, larger @ ..] = PATTERN_PROGRAM_BYTES;
        let mut program_bytes = first;
        let mut built = compile(schema, program_bytes);
        for next in larger {
            if built.is_ok() || cost.patterns == 0 {
                break;
            }
            program_bytes = next;
            built = compile(schema, program_bytes);
        }
        let validator = built.map_err(|error| invalid(&error))?;
        let pattern_bytes = cost.patterns.saturating_mul(program_bytes);
        Ok(Self {
            validator,
            cost,
            pattern_bytes,
        })
    }

    pub(super) const fn cost(&self) -> Cost {
        self.cost
    }

    /// Checks a value whose JSON has this many bytes.
    pub(super) fn check(&self, document: &Document, bytes: usize) -> Result<(), Vec<Violation>> {
        if !self.is_affordable(document.nodes, bytes) {
            return Err(whole(
                "the params are too large for this service's schema to be checked",
            ));
        }
        if self.validator.is_valid(&document.value) {
            return Ok(());
        }
        if !self.are_errors_affordable(document) {
            return Err(whole(
                "the params do not match the schema, and are too large to list the places",
            ));
        }
        let errors = self.validator.iter_errors(&document.value);
        Err(errors
            .take(MAX_VIOLATIONS)
            .map(|error| violation(&error))
            .collect())
    }

    fn is_affordable(&self, nodes: usize, bytes: usize) -> bool {
        nodes.saturating_mul(self.cost.nodes) <= MAX_STEPS
            && bytes.saturating_mul(self.cost.nodes) <= MAX_BYTE_STEPS
            && bytes.saturating_mul(self.pattern_bytes) <= MAX_PATTERN_STEPS
    }

    /// Each value can violate each part of the schema. The error quotes that part and has a
    /// pointer.
    fn are_errors_affordable(&self, document: &Document) -> bool {
        let each = ERROR_BYTES.saturating_add(document.key_bytes);
        let quotes = self.cost.bytes;
        let per_value = self.cost.nodes.saturating_mul(each).saturating_add(quotes);
        document.nodes.saturating_mul(per_value) <= MAX_ERROR_BYTES
    }
}

/// Removes the schema's `$id`. Every reference is local, and a device cannot claim the name of a
/// schema that the library knows.
fn without_id(schema: &Value) -> Cow<'_, Value> {
    let mut schema = Cow::Borrowed(schema);
    if schema.get("$id").is_some()
        && let Value::Object(members) = schema.to_mut()
    {
        members.remove("$id");
    }
    schema
}

fn compile(schema: &Value, program_bytes: usize) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex()
        .size_limit(program_bytes)
        .dfa_size_limit(MAX_PATTERN_CACHE_BYTES);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .should_validate_formats(false)
        .with_pattern_options(patterns)
        .offline()
        .build(schema)
}

fn invalid(error: &ValidationError<'_>) -> Located {
    let pointer = error.instance_path().as_str().to_owned();
    let fault = match error.kind() {
        // Formats are not asserted, except of the patterns themselves.
        ValidationErrorKind::Format { .. } => SchemaFault::BadPattern,
        _ => SchemaFault::Invalid(explanation(error)),
    };
    Located { pointer, fault }
}

fn whole(detail: &str) -> Vec<Violation> {
    vec![Violation {
        pointer: String::new(),
        detail: detail.to_owned(),
    }]
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let pointer = error.instance_path().as_str();
    let pointer = if pointer.len() > MAX_TEXT_BYTES {
        quoted(pointer)
    } else {
        pointer.to_owned()
    };
    Violation {
        pointer,
        detail: explanation(error),
    }
}

/// The library's description of an error. Without the value in question if it would leave no room
/// for the reason.
fn explanation(error: &ValidationError<'_>) -> String {
    let mut full = Bounded::default();
    if write!(full, "{error}").is_ok() {
        return full.0;
    }
    let mut masked = Bounded::default();
    if write!(masked, "{}", error.masked()).is_err() {
        masked.0.push('…');
    }
    masked.0
}

/// Text of at most [`MAX_TEXT_BYTES`].
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_TEXT_BYTES.saturating_sub(self.0.len());
        let fits = text
            .get(..text.floor_char_boundary(room))
            .unwrap_or_default();
        self.0.push_str(fits);
        if fits.len() < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
