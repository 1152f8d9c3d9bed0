//! Why a device's services are refused. Quotations of what the device sent are bounded.

use super::budget::VALID_TYPES;

/// Maximum bytes of a quoted name or pointer.
const MAX_QUOTE_BYTES: usize = 128;

/// Why a set of services is refused. The previous set stays in force. (S 6.1)
///
/// `Display` is one sentence: which service, where in it, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The services cannot be parsed.
    #[error("`services` cannot be read: {detail}")]
    Malformed {
        /// Where and why.
        detail: String,
    },
    /// `services` is not an object.
    #[error("`services` is an object with a member for each service")]
    NotAnObject,
    /// A service's name is repeated.
    #[error("service `{name}` is repeated in one `register`")]
    DuplicateService {
        /// The name.
        name: String,
    },
    /// A key is repeated in an object within a service.
    #[error("`{key}` is repeated at `{pointer}`")]
    DuplicateKey {
        /// JSON pointer into `services`.
        pointer: String,
        /// The key.
        key: String,
    },
    /// More services than one device may register.
    #[error("{count} services are too many: a device registers at most {limit}")]
    TooManyServices {
        /// The number of services.
        count: usize,
        /// The maximum.
        limit: usize,
    },
    /// A name that is empty, too long, or has control characters.
    #[error("`{name}` is not a service name: 1 to {limit_bytes} bytes without control characters")]
    BadName {
        /// The name, escaped and shortened.
        name: String,
        /// The maximum length in bytes.
        limit_bytes: usize,
    },
    /// An invalid field of a service other than its schemas.
    #[error("service `{service}`: {detail}")]
    BadService {
        /// The service.
        service: String,
        /// What would be right.
        detail: String,
    },
    /// A schema is refused.
    #[error("service `{service}`, at `{pointer}`: {fault}")]
    BadSchema {
        /// The service.
        service: String,
        /// JSON pointer into the service.
        pointer: String,
        /// What is wrong there.
        fault: SchemaFault,
    },
    /// Each schema is within its limits, but all of them together are not.
    #[error(
        "the schemas of all services together are too large: at most {limit} values, each `$ref` replaced by its target, and {pattern_limit} patterns"
    )]
    TooExpansive {
        /// The maximum number of values.
        limit: usize,
        /// The maximum number of patterns.
        pattern_limit: usize,
    },
}

impl RegisterError {
    /// Returns the stable name of the error, for metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed_services",
            Self::NotAnObject => "services_not_an_object",
            Self::DuplicateService { .. } => "duplicate_service",
            Self::DuplicateKey { .. } => "duplicate_key",
            Self::TooManyServices { .. } => "too_many_services",
            Self::BadName { .. } => "bad_service_name",
            Self::BadService { .. } => "bad_service",
            Self::BadSchema { .. } => "bad_schema",
            Self::TooExpansive { .. } => "schemas_too_expansive",
        }
    }
}

/// What is wrong at one place of a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// Too many bytes.
    #[error("a schema is at most {limit} bytes")]
    TooLarge {
        /// The maximum in bytes.
        limit: usize,
    },
    /// Nested too deep.
    #[error("a schema is nested at most {limit} deep")]
    TooDeep {
        /// The maximum depth.
        limit: usize,
    },
    /// Too many values.
    #[error("a schema has at most {limit} values")]
    TooManyNodes {
        /// The maximum.
        limit: usize,
    },
    /// Too many values with every `$ref` replaced by its target.
    #[error("a schema has at most {limit} values once each `$ref` is replaced by its target")]
    TooExpansive {
        /// The maximum.
        limit: usize,
    },
    /// Schemas nested too deep with `$ref`s followed.
    #[error("schemas are nested at most {limit} deep, each `$ref` followed")]
    TooDeepExpansion {
        /// The maximum depth.
        limit: usize,
    },
    /// A keyword whose evaluation is unbounded, or that refers to something outside of the schema.
    #[error(
        "`{keyword}` is not supported here; use plain draft 2020-12 with `$ref` to `#/$defs/…`"
    )]
    Forbidden {
        /// The keyword.
        keyword: &'static str,
    },
    /// An `$id` below the root, where it would change what references mean.
    #[error(
        "`$id` is allowed at the root of a schema only, and is a string; use `$ref` to `#/$defs/…`"
    )]
    InnerId,
    /// Another dialect.
    #[error("`$schema` is `https://json-schema.org/draft/2020-12/schema` or absent")]
    OtherDraft,
    /// A `$ref` that does not point into its own schema.
    #[error("a `$ref` is `#` and a JSON pointer into the same schema, like `#/$defs/name`")]
    RemoteRef,
    /// A `$ref` whose target does not exist or is not a schema.
    #[error("the `$ref` does not point to a schema; put its target below `$defs`")]
    DanglingRef,
    /// A `$ref` that leads back to itself.
    #[error("a schema must not contain itself, and this `$ref` makes it do so")]
    CyclicRef,
    /// An unknown `type`, such as the supplement's placeholder.
    #[error("a `type` is {VALID_TYPES}, or an array of these")]
    BadType,
    /// Parameters that are not an object.
    #[error("the `type` of a service's `parameters` is \"object\"")]
    NotForObjects,
    /// Too many patterns.
    #[error("a schema has at most {limit} patterns")]
    TooManyPatterns {
        /// The maximum.
        limit: usize,
    },
    /// A pattern that is too long.
    #[error("a pattern is at most {limit} bytes")]
    PatternTooLong {
        /// The maximum in bytes.
        limit: usize,
    },
    /// A pattern that does not compile.
    #[error(
        "the pattern is too large, or not a regular expression without look-around and back-references"
    )]
    BadPattern,
    /// A pattern that may match too slowly.
    #[error(
        "the pattern `{pattern}` may take {steps} steps on its longest text, and {limit} is the limit: repeat less, begin it with `^` and bound its repetitions, or set a `maxLength` of at most {max_length} beside it"
    )]
    PatternTooCostly {
        /// The pattern, escaped and shortened.
        pattern: String,
        /// The steps on the longest text.
        steps: usize,
        /// The maximum.
        limit: usize,
        /// The `maxLength` with which it is accepted.
        max_length: usize,
    },
    /// A pattern for the names of properties that is too large.
    #[error(
        "the pattern `{pattern}` in `patternProperties` has {states} states; at most {limit}, and fewer with groups: write `(?:…)` instead of `(…)`, and repeat less"
    )]
    NamePatternTooLarge {
        /// The pattern, escaped and shortened.
        pattern: String,
        /// Its states.
        states: usize,
        /// The maximum.
        limit: usize,
    },
    /// Each pattern is within its limits, but all of them together are not.
    #[error("the patterns of one `register` compile to at most {limit} bytes together")]
    PatternsTooLarge {
        /// The maximum in bytes.
        limit: usize,
    },
    /// Any other violation of the standard.
    #[error("{0}")]
    Invalid(String),
}

/// The beginning of a text on one line, for use in an error.
pub(super) fn quoted(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_QUOTE_BYTES);
    let head = text.get(..end).unwrap_or_default();
    let mut quote: String = head
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if head.len() < text.len() {
        quote.push('…');
    }
    quote
}
