//! Why a device's services are not taken.
//! Never: an unbounded quotation of what the device sent.

use super::budget::VALID_TYPES;

/// The most of a name or a pointer that an error repeats, in bytes.
const MAX_QUOTE_BYTES: usize = 128;

/// Why a whole set of services is refused; the former set stays in force. (S 6.1)
///
/// `Display` is one sentence: which service, where in it, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The services cannot be read as JSON values.
    #[error("`services` cannot be read: {detail}")]
    Malformed {
        /// Where and why.
        detail: String,
    },
    /// `services` is something else than an object.
    #[error("`services` is an object with a member for each service")]
    NotAnObject,
    /// The same name twice in one message.
    #[error("service `{name}` stands twice in one `register`")]
    DuplicateService {
        /// The name.
        name: String,
    },
    /// The same key twice in an object somewhere inside a service.
    #[error("`{key}` stands twice at `{pointer}`")]
    DuplicateKey {
        /// JSON pointer into `services`.
        pointer: String,
        /// The key.
        key: String,
    },
    /// More services than one device may have.
    #[error("{count} services are too many: a device registers at most {limit}")]
    TooManyServices {
        /// How many came.
        count: usize,
        /// How many may come.
        limit: usize,
    },
    /// A name that is empty, too long, or not one line of text.
    #[error("`{name}` is no service name: 1 to {limit_bytes} bytes without control characters")]
    BadName {
        /// The name, escaped and shortened.
        name: String,
        /// The longest name, in bytes.
        limit_bytes: usize,
    },
    /// Something about a service other than its schemas.
    #[error("service `{service}`: {detail}")]
    BadService {
        /// Which service.
        service: String,
        /// What would be right.
        detail: String,
    },
    /// A schema that is refused, or is none.
    #[error("service `{service}`, at `{pointer}`: {fault}")]
    BadSchema {
        /// Which service.
        service: String,
        /// JSON pointer into the service.
        pointer: String,
        /// What is wrong there.
        fault: SchemaFault,
    },
    /// Each schema is small enough, but not all of them together.
    #[error(
        "the schemas of all services together are too large: at most {limit} values, each `$ref` replaced by what it names, and {pattern_limit} patterns"
    )]
    TooExpansive {
        /// The most values.
        limit: usize,
        /// The most patterns.
        pattern_limit: usize,
    },
}

impl RegisterError {
    /// The stable name of the error, for metrics.
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
        /// The most bytes.
        limit: usize,
    },
    /// Nested too deep.
    #[error("a schema is nested at most {limit} deep")]
    TooDeep {
        /// The most levels.
        limit: usize,
    },
    /// Too many values.
    #[error("a schema has at most {limit} values")]
    TooManyNodes {
        /// The most values.
        limit: usize,
    },
    /// Too many values once every `$ref` is replaced by what it names.
    #[error("a schema has at most {limit} values once each `$ref` is replaced by what it names")]
    TooExpansive {
        /// The most values.
        limit: usize,
    },
    /// Too many schemas inside each other once `$ref`s are followed.
    #[error("at most {limit} schemas are inside each other, each `$ref` followed")]
    TooDeepExpansion {
        /// The most schemas.
        limit: usize,
    },
    /// A keyword that makes checking unbounded, or that names things beyond the schema.
    #[error(
        "`{keyword}` is not supported here; use plain draft 2020-12 with `$ref` to `#/$defs/…`"
    )]
    Forbidden {
        /// The keyword.
        keyword: &'static str,
    },
    /// An `$id` further in, where it would change what references mean.
    #[error(
        "`$id` stands at the root of a schema only, and is a string; use `$ref` to `#/$defs/…`"
    )]
    InnerId,
    /// Another dialect.
    #[error("`$schema` is `https://json-schema.org/draft/2020-12/schema` or absent")]
    OtherDraft,
    /// A `$ref` that does not point into its own schema.
    #[error("a `$ref` is `#` and a JSON pointer into the same schema, like `#/$defs/name`")]
    RemoteRef,
    /// A `$ref` to nothing, or to something that is no schema.
    #[error("the `$ref` points to no schema; put what it names below `$defs`")]
    DanglingRef,
    /// A `$ref` that leads back to itself.
    #[error("a schema must not contain itself, and this `$ref` makes it do so")]
    CyclicRef,
    /// A `type` that does not exist, such as the supplement's own placeholder.
    #[error("a `type` is {VALID_TYPES}, or an array of these")]
    BadType,
    /// Parameters that are not an object.
    #[error("the `type` of a service's `parameters` is \"object\"")]
    NotForObjects,
    /// Too many patterns.
    #[error("a schema has at most {limit} patterns")]
    TooManyPatterns {
        /// The most patterns.
        limit: usize,
    },
    /// A pattern too long to be compiled.
    #[error("a pattern is at most {limit} bytes")]
    PatternTooLong {
        /// The most bytes.
        limit: usize,
    },
    /// A pattern that does not compile.
    #[error(
        "the pattern is too large, or no regular expression without look-around and back-references"
    )]
    BadPattern,
    /// Whatever else the standard forbids.
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
