//! `schema/mcp.fbs` as data: the fields of each table, how each is stored, and how it looks in
//! JSON. A test compares the two.

/// A table. Its fields are in the order of their slots.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// A field, with its name in the schema and its name in JSON.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) json: &'static str,
    pub(crate) need: Need,
    pub(crate) kind: Kind,
}

/// Whether a field optional be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Optional,
    /// Required in both forms.
    Required,
    /// Required in JSON. In a buffer it is zero if missing, because a scalar cannot be `required`.
    Implied,
}

/// How a field is stored, and its form in JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `bool`; true or false.
    Bool,
    /// `bool`; an empty object for true, nothing for false.
    Presence,
    /// `int`.
    Int,
    /// `uint32`.
    Count,
    /// `float`; a number that it does not hold exactly is also in `extra`.
    Float,
    /// An enum over `byte`; its values in lower case.
    Choice(&'static Choice),
    /// A list of enum values.
    Choices(&'static Choice),
    /// The struct `RequestId`.
    Id,
    /// `string`; a string.
    Text,
    /// `string`; always this string.
    Fixed(&'static str),
    /// `string`; any value, as JSON text.
    Json,
    /// `string`; the members without a field, as the JSON text of an object.
    Extra,
    /// `[ubyte]`; a string in base64.
    Bytes,
    /// A table; an object.
    Table(&'static Table),
    /// A list of tables; a list of objects.
    Tables(&'static Table),
    /// A list of `Capability`; an object from names to values.
    Named(&'static Table),
    /// A union; an object whose `type` selects the variant.
    Union(&'static Union),
    /// A union; its members are in the surrounding object.
    Flat(&'static Union),
}

/// An enum over `byte` whose values count from zero.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [&'static str],
    pub(crate) expected: &'static str,
}

/// A union. The tag of its first variant is one; zero is none.
#[derive(Debug)]
pub(crate) struct Union {
    pub(crate) name: &'static str,
    /// The `type` of each variant in JSON, and its table.
    pub(crate) members: &'static [(&'static str, &'static Table)],
}

const fn field(name: &'static str, json: &'static str, need: Need, kind: Kind) -> Field {
    Field {
        name,
        json,
        need,
        kind,
    }
}

/// A required field with the same name in both forms.
const fn required(name: &'static str, kind: Kind) -> Field {
    field(name, name, Need::Required, kind)
}

/// A required field.
const fn required_as(name: &'static str, json: &'static str, kind: Kind) -> Field {
    field(name, json, Need::Required, kind)
}

/// An optional field with the same name in both forms.
const fn optional(name: &'static str, kind: Kind) -> Field {
    field(name, name, Need::Optional, kind)
}

/// An optional field.
const fn optional_as(name: &'static str, json: &'static str, kind: Kind) -> Field {
    field(name, json, Need::Optional, kind)
}

const EXTRA: Field = optional("extra", Kind::Extra);
const ANNOTATED: Field = optional("annotations", Kind::Table(&ANNOTATIONS));
const MIME_TYPE: Field = optional_as("mime_type", "mimeType", Kind::Text);
const LIST_CHANGED: Field = optional_as("list_changed", "listChanged", Kind::Bool);
const DESCRIPTION: Field = optional("description", Kind::Text);
const CALLER: Field = field("role", "role", Need::Implied, Kind::Choice(&ROLE));
const CONTENT_FIELD: Field = required("content", Kind::Union(&CONTENT));
const JSONRPC: Field = required("jsonrpc", Kind::Fixed("2.0"));
const ID: Field = required("id", Kind::Id);
const ID_JSON: Field = optional("id_json", Kind::Json);
const META: Field = optional_as("meta", "_meta", Kind::Table(&METADATA));

macro_rules! tables {
    ($($constant:ident = $name:literal [$($field:expr),* $(,)?];)*) => {
        $(pub(crate) static $constant: Table = Table { name: $name, fields: &[$($field),*] };)*

        /// Every table of the schema.
        #[cfg(test)]
        pub(crate) static TABLES: &[&Table] = &[$(&$constant),*];
    };
}

pub(crate) static ROLE: Choice = Choice {
    name: "Role",
    values: &["user", "assistant"],
    expected: "`user` or `assistant`",
};

pub(crate) static LOGGING_LEVEL: Choice = Choice {
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

pub(crate) static MESSAGE_TYPE: Union = Union {
    name: "MessageType",
    members: &[
        ("request", &REQUEST),
        ("response", &RESPONSE),
        ("notification", &NOTIFICATION),
        ("error", &ERROR),
    ],
};

pub(crate) static CONTENT: Union = Union {
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

pub(crate) static RESOURCE_DATA: Union = Union {
    name: "ResourceData",
    members: &[("", &TEXT_RESOURCE_DATA), ("", &BLOB_RESOURCE_DATA)],
};

pub(crate) static TRANSPORT_TYPE: Union = Union {
    name: "TransportType",
    members: &[("stdio", &STDIO_TRANSPORT), ("sse", &SSE_TRANSPORT)],
};

tables! {
    IMPLEMENTATION = "Implementation" [required("name", Kind::Text), required("version", Kind::Text), EXTRA];
    CLIENT_CAPABILITIES = "ClientCapabilities" [
        optional("experimental", Kind::Named(&CAPABILITY)),
        optional("roots", Kind::Table(&ROOTS_CAPABILITY)),
        optional("sampling", Kind::Table(&SAMPLING_CAPABILITY)),
        EXTRA,
    ];
    SERVER_CAPABILITIES = "ServerCapabilities" [
        optional("experimental", Kind::Named(&CAPABILITY)),
        optional("logging", Kind::Presence),
        optional("prompts", Kind::Table(&PROMPTS_CAPABILITY)),
        optional("resources", Kind::Table(&RESOURCES_CAPABILITY)),
        optional("tools", Kind::Table(&TOOLS_CAPABILITY)),
        EXTRA,
    ];
    CAPABILITY = "Capability" [required("name", Kind::Text), optional("value", Kind::Json)];
    ROOTS_CAPABILITY = "RootsCapability" [LIST_CHANGED, EXTRA];
    SAMPLING_CAPABILITY = "SamplingCapability" [EXTRA];
    PROMPTS_CAPABILITY = "PromptsCapability" [LIST_CHANGED, EXTRA];
    RESOURCES_CAPABILITY = "ResourcesCapability" [optional("subscribe", Kind::Bool), LIST_CHANGED, EXTRA];
    TOOLS_CAPABILITY = "ToolsCapability" [LIST_CHANGED, EXTRA];
    MESSAGE = "Message" [required("type", Kind::Union(&MESSAGE_TYPE))];
    REQUEST = "Request" [
        JSONRPC, ID, required("method", Kind::Text), optional("params", Kind::Json), META, ID_JSON, EXTRA,
    ];
    RESPONSE = "Response" [JSONRPC, ID, required("result", Kind::Json), META, ID_JSON, EXTRA];
    NOTIFICATION = "Notification" [
        JSONRPC, required("method", Kind::Text), optional("params", Kind::Json), META,
        optional("level", Kind::Choice(&LOGGING_LEVEL)), EXTRA,
    ];
    ERROR = "Error" [
        JSONRPC, ID, field("code", "code", Need::Implied, Kind::Int), required("message", Kind::Text),
        optional("data", Kind::Json), ID_JSON, EXTRA, optional("error_extra", Kind::Extra),
    ];
    METADATA = "Metadata" [
        optional_as("progress_token", "progressToken", Kind::Text), optional("additional_data", Kind::Extra),
    ];
    TEXT_CONTENT = "TextContent" [
        required("type", Kind::Fixed("text")), required("text", Kind::Text), ANNOTATED, EXTRA,
    ];
    IMAGE_CONTENT = "ImageContent" [
        required("type", Kind::Fixed("image")), required("data", Kind::Bytes),
        required_as("mime_type", "mimeType", Kind::Text), ANNOTATED, EXTRA,
    ];
    EMBEDDED_RESOURCE = "EmbeddedResource" [
        required("type", Kind::Fixed("resource")), required("resource", Kind::Table(&RESOURCE_CONTENTS)),
        ANNOTATED, EXTRA,
    ];
    ANNOTATIONS = "Annotations" [
        optional("audience", Kind::Choices(&ROLE)), optional("priority", Kind::Float), EXTRA,
    ];
    RESOURCE = "Resource" [
        required("uri", Kind::Text), required("name", Kind::Text), DESCRIPTION, MIME_TYPE, ANNOTATED, EXTRA,
    ];
    RESOURCE_TEMPLATE = "ResourceTemplate" [
        required_as("uri_template", "uriTemplate", Kind::Text), required("name", Kind::Text), DESCRIPTION,
        MIME_TYPE, ANNOTATED, EXTRA,
    ];
    RESOURCE_CONTENTS = "ResourceContents" [
        required("uri", Kind::Text), MIME_TYPE, optional("content", Kind::Flat(&RESOURCE_DATA)), EXTRA,
    ];
    TEXT_RESOURCE_DATA = "TextResourceData" [required("text", Kind::Text)];
    BLOB_RESOURCE_DATA = "BlobResourceData" [required("blob", Kind::Bytes)];
    TOOL = "Tool" [
        required("name", Kind::Text), DESCRIPTION,
        required_as("input_schema", "inputSchema", Kind::Json), EXTRA,
    ];
    TOOL_CALL = "ToolCall" [
        required("name", Kind::Text), optional("arguments", Kind::Json),
        optional_as("is_error", "isError", Kind::Bool), EXTRA,
    ];
    PROMPT = "Prompt" [
        required("name", Kind::Text), DESCRIPTION, optional("arguments", Kind::Tables(&PROMPT_ARGUMENT)),
        EXTRA,
    ];
    PROMPT_ARGUMENT = "PromptArgument" [
        required("name", Kind::Text), DESCRIPTION, optional("required", Kind::Bool), EXTRA,
    ];
    PROMPT_MESSAGE = "PromptMessage" [CALLER, CONTENT_FIELD, EXTRA];
    MODEL_PREFERENCES = "ModelPreferences" [
        optional("hints", Kind::Tables(&MODEL_HINT)),
        optional_as("cost_priority", "costPriority", Kind::Float),
        optional_as("speed_priority", "speedPriority", Kind::Float),
        optional_as("intelligence_priority", "intelligencePriority", Kind::Float), EXTRA,
    ];
    MODEL_HINT = "ModelHint" [optional("name", Kind::Text), EXTRA];
    SAMPLING_MESSAGE = "SamplingMessage" [
        CALLER, CONTENT_FIELD, optional("model", Kind::Text),
        optional_as("stop_reason", "stopReason", Kind::Text), EXTRA,
    ];
    TRANSPORT = "Transport" [required("type", Kind::Flat(&TRANSPORT_TYPE)), EXTRA];
    STDIO_TRANSPORT = "StdioTransport" [optional_as("buffer_size", "bufferSize", Kind::Count)];
    SSE_TRANSPORT = "SSETransport" [
        required("url", Kind::Text), optional("headers", Kind::Tables(&HEADER)),
        optional_as("reconnect_time", "reconnectTime", Kind::Count),
    ];
    HEADER = "Header" [required("key", Kind::Text), required("value", Kind::Text), EXTRA];
    ROOT = "Root" [required("uri", Kind::Text), optional("name", Kind::Text), EXTRA];
    INITIALIZE_REQUEST = "InitializeRequest" [
        required_as("protocol_version", "protocolVersion", Kind::Text),
        required("capabilities", Kind::Table(&CLIENT_CAPABILITIES)),
        required_as("client_info", "clientInfo", Kind::Table(&IMPLEMENTATION)), EXTRA,
    ];
    INITIALIZE_RESPONSE = "InitializeResponse" [
        required_as("protocol_version", "protocolVersion", Kind::Text),
        required("capabilities", Kind::Table(&SERVER_CAPABILITIES)),
        required_as("server_info", "serverInfo", Kind::Table(&IMPLEMENTATION)),
        optional("instructions", Kind::Text), EXTRA,
    ];
    AUDIO_CONTENT = "AudioContent" [
        required("type", Kind::Fixed("audio")), required("data", Kind::Bytes),
        required_as("mime_type", "mimeType", Kind::Text), ANNOTATED, EXTRA,
    ];
    RESOURCE_LINK = "ResourceLink" [
        required("type", Kind::Fixed("resource_link")), required("uri", Kind::Text),
        required("name", Kind::Text), DESCRIPTION, MIME_TYPE, ANNOTATED, EXTRA,
    ];
    OTHER_CONTENT = "OtherContent" [required("json", Kind::Json)];
}

/// The tables that can be a root. The others are parts of a message or of another table.
pub(crate) static STANDALONE: &[&Table] = &[
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
    /// The slots of the field in the vtable: a union has one more for its tag.
    pub(crate) const fn slots(self) -> usize {
        match self {
            Self::Union(_) | Self::Flat(_) => 2,
            _ => 1,
        }
    }
}

impl Table {
    /// The field for members without a field.
    pub(crate) fn extra(&self) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|field| matches!(field.kind, Kind::Extra))
    }
}
