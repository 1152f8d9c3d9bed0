//! A compiled schema, and the bounds within which a value is checked against it.
//!
//! Invariant: errors are collected only after the value is known to be invalid, and only when their
//! total size is bounded. The bounds hold for both passes together.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use jsonschema::{Draft, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

use super::{
    budget::{Located, Measured},
    document::Document,
    error::{SchemaFault, quoted},
    expansion::Cost,
    pattern::{PatternSteps, Patterns, StepBudget},
};
use crate::outcome::Violation;

/// Violations in one answer.
const MAX_VIOLATIONS: usize = 16;
/// Bytes of a pointer or a description in an answer.
const MAX_TEXT_BYTES: usize = 256;
/// The cost of one check.
const MAX_CHECK: CheckCost = CheckCost {
    values: 2 * 1024 * 1024,
    bytes: 64 * 1024 * 1024,
    // Bounded exactly, by a `StepBudget`.
    text_steps: usize::MAX,
    name_steps: 1024 * 1024,
};
/// The cost of a check that takes less than half a millisecond, without its errors.
const MAX_QUICK_CHECK: CheckCost = CheckCost {
    values: 16 * 1024,
    bytes: 512 * 1024,
    text_steps: 32 * 1024,
    name_steps: 16 * 1024,
};
/// Bytes of all errors of one check. The library creates all of them before it returns the first.
const MAX_ERROR_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of all errors that are created in less than half a millisecond.
const MAX_QUICK_ERROR_BYTES: usize = 1024 * 1024;
/// Bytes of one error without its quotations.
const ERROR_BYTES: usize = 256;
const TOO_LARGE: &str = "the value is too large for this service's schema to be checked";

/// One schema, ready to check values.
#[derive(Debug)]
pub(super) struct CompiledSchema {
    validator: Validator,
    cost: Cost,
    /// The most that a byte costs in one of the patterns.
    steps: PatternSteps,
}

/// What is left of a check, because it may take more than half a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deferred {
    /// All of it.
    Check,
    /// The params are invalid; their violations are to be found.
    Places,
}

/// Upper bounds of what a check costs, without its errors.
struct CheckCost {
    /// Values of the params times values of the schema.
    values: usize,
    /// Bytes of the params times values of the schema: characters counted, strings compared.
    bytes: usize,
    /// Bytes of the params times the states of the patterns.
    text_steps: usize,
    /// Bytes of the names of the params times the states of the patterns for names.
    name_steps: usize,
}

impl CheckCost {
    const fn is_within(&self, limit: &Self) -> bool {
        self.values <= limit.values
            && self.bytes <= limit.bytes
            && self.text_steps <= limit.text_steps
            && self.name_steps <= limit.name_steps
    }
}

/// A measured schema of which some patterns are compiled.
#[derive(Debug)]
pub(super) struct SchemaCompilation {
    schema: Value,
    measured: Measured,
    compiled_patterns: usize,
    steps: PatternSteps,
}

impl SchemaCompilation {
    pub(super) fn new(schema: Value, measured: Measured) -> Self {
        Self {
            schema,
            measured,
            compiled_patterns: 0,
            steps: PatternSteps::default(),
        }
    }

    pub(super) const fn cost(&self) -> Cost {
        self.measured.cost
    }

    /// Compiles the next pattern, or the schema if there is none.
    pub(super) fn step(
        &mut self,
        patterns: &mut Patterns,
    ) -> Result<Option<CompiledSchema>, Located> {
        let Some(used) = self.measured.patterns.get(self.compiled_patterns) else {
            return self.build(patterns).map(Some);
        };
        let found = patterns.add(used).map_err(|fault| Located {
            pointer: used.pointer.clone(),
            fault,
        })?;
        self.steps.text = self.steps.text.max(found.text);
        self.steps.name = self.steps.name.max(found.name);
        self.compiled_patterns = self.compiled_patterns.saturating_add(1);
        Ok(None)
    }

    fn build(&self, patterns: &Patterns) -> Result<CompiledSchema, Located> {
        let mut options = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(false);
        if !self.measured.patterns.is_empty() {
            options = patterns.apply_to(options);
        }
        let validator = options
            .offline()
            .build(&without_id(&self.schema))
            .map_err(|error| invalid(&error))?;
        Ok(CompiledSchema {
            validator,
            cost: self.measured.cost,
            steps: self.steps,
        })
    }
}

impl CompiledSchema {
    /// Checks a value whose JSON has this many bytes, as far as that takes less than half a
    /// millisecond.
    ///
    /// # Errors
    /// What is left to do.
    pub(super) fn try_check(
        &self,
        document: &Document,
        bytes: usize,
    ) -> Result<Result<(), Vec<Violation>>, Deferred> {
        if !self.check_cost(document, bytes).is_within(&MAX_QUICK_CHECK) {
            return Err(Deferred::Check);
        }
        let steps = StepBudget::start();
        Ok(match self.is_valid(document, &steps) {
            Ok(true) => Ok(()),
            Ok(false) if self.error_bytes(document, bytes) > MAX_QUICK_ERROR_BYTES => {
                return Err(Deferred::Places);
            }
            Ok(false) => Err(self.places(document, bytes, &steps)),
            Err(violations) => Err(violations),
        })
    }

    /// Checks a value whose JSON has this many bytes.
    pub(super) fn check(&self, document: &Document, bytes: usize) -> Result<(), Vec<Violation>> {
        if !self.check_cost(document, bytes).is_within(&MAX_CHECK) {
            return Err(whole(TOO_LARGE));
        }
        let steps = StepBudget::start();
        if self.is_valid(document, &steps)? {
            return Ok(());
        }
        Err(self.places(document, bytes, &steps))
    }

    /// Finds the violations of a value that is known to be invalid, by a check that was within the
    /// bounds.
    pub(super) fn explain(&self, document: &Document, bytes: usize) -> Vec<Violation> {
        self.places(document, bytes, &StepBudget::start())
    }

    fn is_valid(&self, document: &Document, steps: &StepBudget) -> Result<bool, Vec<Violation>> {
        let is_valid = self.validator.is_valid(&document.value);
        if steps.is_exhausted() {
            return Err(whole(TOO_LARGE));
        }
        Ok(is_valid)
    }

    fn places(&self, document: &Document, bytes: usize, steps: &StepBudget) -> Vec<Violation> {
        const NO_PLACES: &str =
            "the value does not match the schema, and is too large to list the places";
        if self.error_bytes(document, bytes) > MAX_ERROR_BYTES {
            return whole(NO_PLACES);
        }
        let errors = self.validator.iter_errors(&document.value);
        let violations = errors.take(MAX_VIOLATIONS).map(|error| violation(&error));
        let violations: Vec<_> = violations.collect();
        if steps.is_exhausted() {
            return whole(NO_PLACES);
        }
        violations
    }

    fn check_cost(&self, document: &Document, bytes: usize) -> CheckCost {
        let cost = &self.cost;
        let text_steps = cost.patterns.saturating_mul(self.steps.text);
        let name_steps = cost.name_patterns.saturating_mul(self.steps.name);
        CheckCost {
            values: document.nodes.saturating_mul(cost.nodes),
            bytes: bytes.saturating_mul(cost.nodes),
            text_steps: bytes.saturating_mul(text_steps),
            name_steps: document.key_bytes.saturating_mul(name_steps),
        }
    }

    /// An upper bound of the bytes of all errors. Each value can violate each part of the schema.
    /// The error quotes that part and has a pointer; that of a pattern has a copy of the value.
    fn error_bytes(&self, document: &Document, bytes: usize) -> usize {
        let cost = &self.cost;
        let each = ERROR_BYTES.saturating_add(document.key_bytes);
        let of_a_value = cost.nodes.saturating_mul(each).saturating_add(cost.bytes);
        let copies = cost.patterns.saturating_mul(bytes);
        document
            .nodes
            .saturating_mul(of_a_value)
            .saturating_add(copies)
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

fn invalid(error: &ValidationError<'_>) -> Located {
    let pointer = error.instance_path().as_str().to_owned();
    let fault = match error.kind() {
        // Formats are not asserted, except of the patterns themselves.
        ValidationErrorKind::Format { .. } => SchemaFault::BadPattern,
        _ => SchemaFault::Invalid(explanation(error)),
    };
    Located { pointer, fault }
}

/// A violation of the whole value.
pub(super) fn whole(detail: &str) -> Vec<Violation> {
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
