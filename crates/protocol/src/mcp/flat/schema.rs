//! `schema/mcp.fbs` as data: which fields a table has, how each is stored, how it looks in JSON.
//! Never: a field, an order or a name that is not in that file; a test compares the two.

/// A table: its fields stand in the order of their slots.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// A field, under its name in the schema and its name in JSON.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) json: &'static str,
    pub(super) need: Need,
    pub(super) kind: Kind,
}

/// Whether a field may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Optional,
    /// Missing nowhere.
    Required,
    /// Never missing in JSON; missing in a buffer it is zero, since a scalar cannot be `required`.
    Implied,
}

/// How a field is stored, and what stands for it in JSON.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// `bool`; true or false.
    Bool,
    /// `bool`; an empty object stands for true, nothing for false.
    Presence,
    /// `int`.
    Int,
    /// `uint32`.
    Count,
    /// `float`; a number that is none is also kept in `extra`.
    Float,
    /// An enum over `byte`; its values in lower case.
    Choice(&'static Choice),
    /// A list of enum values.
    Choices(&'static Choice),
    /// The struct `RequestId`.
    Id,
    /// `string`; a string.
    Text,
    /// `string`; a string that is always this.
    Fixed(&'static str),
    /// `string`; any value, as JSON text.
    Json,
    /// `string`; the members that have no field, as the JSON text of an object.
    Extra,
    /// `[ubyte]`; a string in base64.
    Bytes,
    /// A table; an object.
    Table(&'static Table),
    /// A list of tables; a list of objects.
    Tables(&'static Table),
    /// A list of `Capability`; an object from names to values.
    Named(&'static Table),
    /// A union; an object whose `type` says which.
    Union(&'static Union),
    /// A union; its members stand in the object around it.
    Flat(&'static Union),
}

/// An enum over `byte` whose values count from zero.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) name: &'static str,
    pub(super) values: &'static [&'static str],
    pub(super) expected: &'static str,
}

/// A union; the tag of its first member is one, zero is nothing.
#[derive(Debug)]
pub(super) struct Union {
    pub(super) name: &'static str,
    /// The `type` of each member in JSON, and its table.
    pub(super) members: &'static [(&'static str, &'static Table)],
}

const fn field(name: &'static str, json: &'static str, need: Need, kind: Kind) -> Field {
    Field {
        name,
        json,
        need,
        kind,
    }
}

/// A field that must be there, under one name in both.
const fn must(name: &'static str, kind: Kind) -> Field {
    field(name, name, Need::Required, kind)
}

/// A field that must be there.
const fn must_as(name: &'static str, json: &'static str, kind: Kind) -> Field {
    field(name, json, Need::Required, kind)
}

/// A field that may be missing, under one name in both.
const fn may(name: &'static str, kind: Kind) -> Field {
    field(name, name, Need::Optional, kind)
}

/// A field that may be missing.
const fn may_as(name: &'static str, json: &'static str, kind: Kind) -> Field {
    field(name, json, Need::Optional, kind)
}

const EXTRA: Field = may("extra", Kind::Extra);
const ANNOTATED: Field = may("annotations", Kind::Table(&ANNOTATIONS));
const MIME_TYPE: Field = may_as("mime_type", "mimeType", Kind::Text);
const LIST_CHANGED: Field = may_as("list_changed", "listChanged", Kind::Bool);
const DESCRIPTION: Field = may("description", Kind::Text);
const CALLER: Field = field("role", "role", Need::Implied, Kind::Choice(&ROLE));
const CONTENT_FIELD: Field = must("content", Kind::Union(&CONTENT));
const JSONRPC: Field = must("jsonrpc", Kind::Fixed("2.0"));
const ID: Field = must("id", Kind::Id);
const ID_JSON: Field = may("id_json", Kind::Json);
const META: Field = may_as("meta", "_meta", Kind::Table(&METADATA));

macro_rules! tables {
    ($($constant:ident = $name:literal [$($field:expr),* $(,)?];)*) => {
        $(pub(super) static $constant: Table = Table { name: $name, fields: &[$($field),*] };)*

        /// Every table of the schema.
        #[cfg(test)]
        pub(super) static TABLES: &[&Table] = &[$(&$constant),*];
    };
}

pub(super) static ROLE: Choice = Choice {
    name: "Role",
    values: &["user", "assistant"],
    expected: "`user` or `assistant`",
};

pub(super) static LOGGING_LEVEL: Choice = Choice {
    name: "LoggingLevel",
    values: &[
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ],
    expected: "a level of syslog in lower case, from `debug` to `emergency`",
};

pub(super) static MESSAGE_TYPE: Union = Union {
    name: "MessageType",
    members: &[
        ("request", &REQUEST),
        ("response", &RESPONSE),
        ("notification", &NOTIFICATION),
        ("error", &ERROR),
    ],
};

pub(super) static CONTENT: Union = Union {
    name: "Content",
    members: &[
        ("text", &TEXT_CONTENT),
        ("image", &IMAGE_CONTENT),
        ("resource", &EMBEDDED_RESOURCE),
        ("audio", &AUDIO_CONTENT),
        ("resource_link", &RESOURCE_LINK),
        ("", &OTHER_CONTENT),
    ],
};

pub(super) static RESOURCE_DATA: Union = Union {
    name: "ResourceData",
    members: &[("", &TEXT_RESOURCE_DATA), ("", &BLOB_RESOURCE_DATA)],
};

pub(super) static TRANSPORT_TYPE: Union = Union {
    name: "TransportType",
    members: &[("stdio", &STDIO_TRANSPORT), ("sse", &SSE_TRANSPORT)],
};

tables! {
    IMPLEMENTATION = "Implementation" [must("name", Kind::Text), must("version", Kind::Text), EXTRA];
    CLIENT_CAPABILITIES = "ClientCapabilities" [
        may("experimental", Kind::Named(&CAPABILITY)),
        may("roots", Kind::Table(&ROOTS_CAPABILITY)),
        may("sampling", Kind::Table(&SAMPLING_CAPABILITY)),
        EXTRA,
    ];
    SERVER_CAPABILITIES = "ServerCapabilities" [
        may("experimental", Kind::Named(&CAPABILITY)),
        may("logging", Kind::Presence),
        may("prompts", Kind::Table(&PROMPTS_CAPABILITY)),
        may("resources", Kind::Table(&RESOURCES_CAPABILITY)),
        may("tools", Kind::Table(&TOOLS_CAPABILITY)),
        EXTRA,
    ];
    CAPABILITY = "Capability" [must("name", Kind::Text), may("value", Kind::Json)];
    ROOTS_CAPABILITY = "RootsCapability" [LIST_CHANGED, EXTRA];
    SAMPLING_CAPABILITY = "SamplingCapability" [EXTRA];
    PROMPTS_CAPABILITY = "PromptsCapability" [LIST_CHANGED, EXTRA];
    RESOURCES_CAPABILITY = "ResourcesCapability" [may("subscribe", Kind::Bool), LIST_CHANGED, EXTRA];
    TOOLS_CAPABILITY = "ToolsCapability" [LIST_CHANGED, EXTRA];
    MESSAGE = "Message" [must("type", Kind::Union(&MESSAGE_TYPE))];
    REQUEST = "Request" [
        JSONRPC, ID, must("method", Kind::Text), may("params", Kind::Json), META, ID_JSON, EXTRA,
    ];
    RESPONSE = "Response" [JSONRPC, ID, must("result", Kind::Json), META, ID_JSON, EXTRA];
    NOTIFICATION = "Notification" [
        JSONRPC, must("method", Kind::Text), may("params", Kind::Json), META,
        may("level", Kind::Choice(&LOGGING_LEVEL)), EXTRA,
    ];
    ERROR = "Error" [
        JSONRPC, ID, field("code", "code", Need::Implied, Kind::Int), must("message", Kind::Text),
        may("data", Kind::Json), ID_JSON, EXTRA, may("error_extra", Kind::Extra),
    ];
    METADATA = "Metadata" [
        may_as("progress_token", "progressToken", Kind::Text), may("additional_data", Kind::Extra),
    ];
    TEXT_CONTENT = "TextContent" [
        must("type", Kind::Fixed("text")), must("text", Kind::Text), ANNOTATED, EXTRA,
    ];
    IMAGE_CONTENT = "ImageContent" [
        must("type", Kind::Fixed("image")), must("data", Kind::Bytes),
        must_as("mime_type", "mimeType", Kind::Text), ANNOTATED, EXTRA,
    ];
    EMBEDDED_RESOURCE = "EmbeddedResource" [
        must("type", Kind::Fixed("resource")), must("resource", Kind::Table(&RESOURCE_CONTENTS)),
        ANNOTATED, EXTRA,
    ];
    ANNOTATIONS = "Annotations" [
        may("audience", Kind::Choices(&ROLE)), may("priority", Kind::Float), EXTRA,
    ];
    RESOURCE = "Resource" [
        must("uri", Kind::Text), must("name", Kind::Text), DESCRIPTION, MIME_TYPE, ANNOTATED, EXTRA,
    ];
    RESOURCE_TEMPLATE = "ResourceTemplate" [
        must_as("uri_template", "uriTemplate", Kind::Text), must("name", Kind::Text), DESCRIPTION,
        MIME_TYPE, ANNOTATED, EXTRA,
    ];
    RESOURCE_CONTENTS = "ResourceContents" [
        must("uri", Kind::Text), MIME_TYPE, may("content", Kind::Flat(&RESOURCE_DATA)), EXTRA,
    ];
    TEXT_RESOURCE_DATA = "TextResourceData" [must("text", Kind::Text)];
    BLOB_RESOURCE_DATA = "BlobResourceData" [must("blob", Kind::Bytes)];
    TOOL = "Tool" [
        must("name", Kind::Text), DESCRIPTION,
        must_as("input_schema", "inputSchema", Kind::Json), EXTRA,
    ];
    TOOL_CALL = "ToolCall" [
        must("name", Kind::Text), may("arguments", Kind::Json),
        may_as("is_error", "isError", Kind::Bool), EXTRA,
    ];
    PROMPT = "Prompt" [
        must("name", Kind::Text), DESCRIPTION, may("arguments", Kind::Tables(&PROMPT_ARGUMENT)),
        EXTRA,
    ];
    PROMPT_ARGUMENT = "PromptArgument" [
        must("name", Kind::Text), DESCRIPTION, may("required", Kind::Bool), EXTRA,
    ];
    PROMPT_MESSAGE = "PromptMessage" [CALLER, CONTENT_FIELD, EXTRA];
    MODEL_PREFERENCES = "ModelPreferences" [
        may("hints", Kind::Tables(&MODEL_HINT)),
        may_as("cost_priority", "costPriority", Kind::Float),
        may_as("speed_priority", "speedPriority", Kind::Float),
        may_as("intelligence_priority", "intelligencePriority", Kind::Float), EXTRA,
    ];
    MODEL_HINT = "ModelHint" [may("name", Kind::Text), EXTRA];
    SAMPLING_MESSAGE = "SamplingMessage" [
        CALLER, CONTENT_FIELD, may("model", Kind::Text),
        may_as("stop_reason", "stopReason", Kind::Text), EXTRA,
    ];
    TRANSPORT = "Transport" [must("type", Kind::Flat(&TRANSPORT_TYPE)), EXTRA];
    STDIO_TRANSPORT = "StdioTransport" [may_as("buffer_size", "bufferSize", Kind::Count)];
    SSE_TRANSPORT = "SSETransport" [
        must("url", Kind::Text), may("headers", Kind::Tables(&HEADER)),
        may_as("reconnect_time", "reconnectTime", Kind::Count),
    ];
    HEADER = "Header" [must("key", Kind::Text), must("value", Kind::Text), EXTRA];
    ROOT = "Root" [must("uri", Kind::Text), may("name", Kind::Text), EXTRA];
    INITIALIZE_REQUEST = "InitializeRequest" [
        must_as("protocol_version", "protocolVersion", Kind::Text),
        must("capabilities", Kind::Table(&CLIENT_CAPABILITIES)),
        must_as("client_info", "clientInfo", Kind::Table(&IMPLEMENTATION)), EXTRA,
    ];
    INITIALIZE_RESPONSE = "InitializeResponse" [
        must_as("protocol_version", "protocolVersion", Kind::Text),
        must("capabilities", Kind::Table(&SERVER_CAPABILITIES)),
        must_as("server_info", "serverInfo", Kind::Table(&IMPLEMENTATION)),
        may("instructions", Kind::Text), EXTRA,
    ];
    AUDIO_CONTENT = "AudioContent" [
        must("type", Kind::Fixed("audio")), must("data", Kind::Bytes),
        must_as("mime_type", "mimeType", Kind::Text), ANNOTATED, EXTRA,
    ];
    RESOURCE_LINK = "ResourceLink" [
        must("type", Kind::Fixed("resource_link")), must("uri", Kind::Text),
        must("name", Kind::Text), DESCRIPTION, MIME_TYPE, ANNOTATED, EXTRA,
    ];
    OTHER_CONTENT = "OtherContent" [must("json", Kind::Json)];
}

/// The tables that can stand alone; the others are parts of a message or of a table around them.
pub(super) static STANDALONE: &[&Table] = &[
    &IMPLEMENTATION,
    &CLIENT_CAPABILITIES,
    &SERVER_CAPABILITIES,
    &ANNOTATIONS,
    &TEXT_CONTENT,
    &IMAGE_CONTENT,
    &AUDIO_CONTENT,
    &EMBEDDED_RESOURCE,
    &RESOURCE_LINK,
    &RESOURCE,
    &RESOURCE_TEMPLATE,
    &RESOURCE_CONTENTS,
    &TOOL,
    &TOOL_CALL,
    &PROMPT,
    &PROMPT_ARGUMENT,
    &PROMPT_MESSAGE,
    &MODEL_PREFERENCES,
    &MODEL_HINT,
    &SAMPLING_MESSAGE,
    &TRANSPORT,
    &ROOT,
    &INITIALIZE_REQUEST,
    &INITIALIZE_RESPONSE,
];

impl Kind {
    /// How many slots of the vtable the field takes: a union has one for its tag.
    pub(super) const fn slots(self) -> usize {
        match self {
            Self::Union(_) | Self::Flat(_) => 2,
            _ => 1,
        }
    }
}

impl Table {
    /// The field that holds what has no field.
    pub(super) fn extra(&self) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|field| matches!(field.kind, Kind::Extra))
    }
}
