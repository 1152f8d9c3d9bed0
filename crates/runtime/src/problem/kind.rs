//! The kinds of problems: for each its type, status, title, and when it occurs.

use axum::http::StatusCode;

macro_rules! problem_kinds {
    ($($variant:ident: $status:literal $slug:literal, $title:literal, $when:literal;)+) => {
        /// A kind of problem document.
        ///
        /// Several kinds can share a type where their status or title differs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $(#[doc = $when] $variant),+
        }

        impl ProblemKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            const fn row(self) -> (u16, &'static str, &'static str, &'static str) {
                match self {
                    $(Self::$variant => ($status, $slug, $title, $when)),+
                }
            }
        }
    };
}

problem_kinds! {
    // Any route.
    Internal: 500 "internal", "Internal error", "the server failed; its log has the cause";
    NotFound: 404 "not_found", "Not found", "the resource does not exist or is not visible to the caller";
    MethodNotAllowed: 405 "method_not_allowed", "Method not allowed", "the path does not support this method";
    InvalidQuery: 400 "invalid_query", "Invalid query", "a query parameter is unknown or invalid";
    TooManyConnections: 503 "too_many_connections", "Too many connections", "the node is at its connection limit";
    ServiceUnavailable: 503 "service_unavailable", "Service unavailable", "the service of this path is unavailable; `service` names it";
    RateLimited: 429 "rate_limited", "Too many requests", "the caller exceeds its rate limit";
    QuotaExceeded: 409 "quota_exceeded", "Quota exceeded", "the organisation is at a quota; `quota` names it";
    DailyQuotaExceeded: 429 "quota_exceeded", "Quota exceeded", "the organisation is at a quota of a day; `quota` names it";
    StoreUnavailable: 503 "store_unavailable", "Record unavailable", "the database is unavailable";

    // Bodies.
    EmptyBody: 400 "empty_body", "Empty body", "the body is empty";
    IncompleteBody: 400 "incomplete_body", "Incomplete body", "the connection closed before the end of the body";
    BodyTimeout: 408 "body_timeout", "Body too slow", "the body did not arrive in time";
    BodyTooLarge: 413 "body_too_large", "Body too large", "the body exceeds the size limit";
    MalformedJson: 400 "malformed_json", "Malformed JSON", "the body is not JSON; `line` and `column` locate the error";
    UnsupportedMediaType: 415 "unsupported_media_type", "Unsupported media type", "the Content-Type is not JSON";
    InvalidBody: 422 "invalid_body", "Invalid body", "the JSON does not match the schema; `errors` locates the error";

    // Idempotency and preconditions.
    InvalidIdempotencyKey: 400 "invalid_idempotency_key", "Invalid idempotency key", "not exactly one key of 1 to 255 visible ASCII characters";
    IdempotencyKeyReused: 422 "idempotency_key_reused", "Idempotency key reused", "the key was used for a different request";
    RequestInProgress: 409 "request_in_progress", "Request in progress", "the request with this Idempotency-Key is still in progress";
    IdempotencyAnswerSealed: 409 "idempotency_answer_sealed", "Answer sealed", "the request was completed before, and its response holds a secret that only the original credential may read";
    PreconditionRequired: 428 "precondition_required", "Precondition required", "the If-Match header is missing";
    PreconditionFailed: 412 "precondition_failed", "Precondition failed", "the resource has another version than If-Match names";

    // Credentials.
    MissingCredentials: 401 "missing_credentials", "Missing credentials", "the `Authorization: Bearer` header is missing";
    UnknownApiKey: 401 "unknown_api_key", "Unknown API key", "the API key does not exist or was revoked";
    MalformedCredential: 401 "token_malformed", "Malformed credential", "neither an API key nor an access token";
    TokenMalformed: 401 "token_malformed", "Access token refused", "neither an API key nor an access token";
    TokenUnknownKey: 401 "token_unknown_key", "Access token refused", "the token is signed with an unknown key";
    TokenBadSignature: 401 "token_bad_signature", "Access token refused", "the signature does not match the claims";
    TokenExpired: 401 "token_expired", "Access token refused", "the token has expired";
    TokenWrongAudience: 401 "token_wrong_audience", "Access token refused", "the token was issued for another audience";
    TokenWrongIssuer: 401 "token_wrong_issuer", "Access token refused", "the token was issued by another issuer";
    TokenRevoked: 401 "token_revoked", "Access token refused", "the token was revoked";
    TokenBadKey: 401 "bad_key", "Access token refused", "the token's key is not usable";
    TokenUnknownScope: 401 "unknown_scope", "Access token refused", "the token names an unknown scope";
    TokenBadSubject: 401 "bad_subject", "Access token refused", "the token's subject is malformed";
    TokenLifetimeTooLong: 401 "token_lifetime_too_long", "Access token refused", "the token is valid for longer than any that is issued";
    OrgSuspended: 403 "org_suspended", "Organisation suspended", "the operator suspended the caller's organisation";
    TokenIssuedInFuture: 401 "token_issued_in_future", "Access token refused", "the token is issued later than now";
    CredentialsUnverifiable: 503 "credentials_unverifiable", "Credentials cannot be verified", "this node cannot verify the credential at the moment";
    InsufficientScope: 403 "insufficient_scope", "Insufficient scope", "the credential lacks the required scope";
    OperatorOnly: 403 "operator_only", "Operator only", "the operation requires the operator key";
    DevicePrefixMismatch: 403 "device_prefix_mismatch", "Device prefix mismatch", "the API key issues tokens for other devices";
    OutsideKey: 403 "outside_key", "Outside of the key", "the credential is restricted to other devices or services; `restriction` names what restricts it";
    SessionExpired: 401 "session_expired", "Session expired", "the session of the console has ended";
    CrossSiteRequest: 403 "cross_site_request", "Cross-site request", "a session was sent by something other than the console";
    OrganisationRequired: 403 "organisation_required", "Organisation required", "the operator's session has no organisation";
    InsecureSession: 400 "insecure_session", "HTTPS required", "a session begins over HTTPS, or over HTTP on the machine itself";
    SignInCodeRefused: 401 "sign_in_code_refused", "Sign-in code refused", "the one-time code was used, has expired or is wrong";
    ScopeNotHeld: 403 "scope_not_held", "Scope not held", "a caller cannot grant a scope that it does not have";
    LastAdminKey: 409 "last_admin_key", "Last admin key", "this is the last key with the scope `admin`";

    // Calls.
    UnknownDevice: 404 "unknown_device", "Unknown device", "the organisation has no such device";
    UnknownService: 404 "unknown_service", "Unknown service", "the device has not registered this service";
    InvalidParams: 422 "invalid", "Params do not match the schema", "the params do not match the schema; `errors` locates the violations";
    DeviceOffline: 409 "offline", "Device offline", "the device is not connected";
    DeviceOnline: 409 "device_online", "Device online", "the device is connected";
    ServiceChanged: 409 "service_changed", "Service changed", "the service has another digest than the one to approve";
    TooManyApprovals: 409 "too_many_approvals", "Too many approvals", "the organisation is at its limit of approvals";
    CallInProgress: 409 "call_in_progress", "Call in progress", "the call with this Idempotency-Key is still in progress";
    UnknownCall: 404 "unknown_call", "Unknown call", "the organisation has no such stored call";
    CallSent: 409 "call_sent", "Call sent", "the call is being sent or was sent";
    CallEnded: 409 "call_ended", "Call ended", "the call has ended";
    Overloaded: 429 "overloaded", "Overloaded", "too many calls are in flight for this device, or the caller's share of a budget is exhausted";
    ParamsTooLarge: 413 "overloaded", "Overloaded", "the params exceed the size limit of a device";
    QueueFull: 429 "queue_full", "Queue full", "the queue of calls is full";
    CallCancelled: 409 "cancelled", "Call cancelled", "the call was cancelled";
    CallLost: 502 "lost", "Call lost", "the connection failed; the device may have acted";
    CallTimedOut: 504 "timed_out", "Call timed out", "the device did not answer in time; it may have acted";
    CallExpired: 410 "expired", "Call expired", "the device did not connect before the call expired";
    ResultLeftOut: 413 "result_left_out", "Result left out", "in an item of a group call: the results of the group exceed what one response has";
    BusUnavailable: 503 "bus_unavailable", "Bus unavailable", "devices cannot be reached; nothing was sent";

    // MCP.
    InvalidHost: 400 "invalid_host", "Invalid host", "the Host header is missing or malformed";
    HostNotAllowed: 403 "host_not_allowed", "Not allowed here", "the host is not in the allow list";
    OriginNotAllowed: 403 "origin_not_allowed", "Not allowed here", "the origin is not in the allow list";
    NotAcceptable: 406 "not_acceptable", "Not acceptable", "the Accept header excludes the response's media type";
    ApprovalRequired: 403 "approval_required", "Approval required", "a model calls a service that is not approved as it is";
    TooManyListeners: 429 "too_many_listeners", "Too many listeners", "the caller is at its listener limit";

    // Conversations.
    UnknownNpc: 404 "unknown_npc", "Unknown NPC", "the organisation has no such NPC";
    TooManyOrgTurns: 429 "too_many_turns", "Too many turns", "the organisation is at its limit of concurrent turns";
    TooManyTurns: 503 "too_many_turns", "Too many turns", "the node is at its limit of concurrent turns";
    NoAnswer: 503 "no_answer", "No answer", "no provider answered";
    TooSlow: 503 "too_slow", "Too slow", "the client read the stream too slowly";
    Interrupted: 503 "interrupted", "Interrupted", "the turn was interrupted; its calls may have been executed";

    // Settings.
    SettingsUnavailable: 503 "store_unavailable", "Settings unavailable", "the database is unavailable";
    ObjectsUnavailable: 503 "objects_unavailable", "Objects unavailable", "the object store is unavailable";
    ObjectsNotConfigured: 503 "objects_not_configured", "No place for objects", "no object store is configured";
    PromptNameTaken: 409 "prompt_name_taken", "Prompt name taken", "another template uses this prompt name";
    TemplateInUse: 409 "template_in_use", "Template in use", "NPCs are based on the template";
    DeviceTaken: 409 "device_taken", "Device taken", "another NPC uses one of the devices";
    UriTaken: 409 "uri_taken", "URI taken", "the URI is already in use";
    PictureInUse: 409 "picture_in_use", "Picture in use", "a template or an NPC uses the picture";
    UnsupportedPicture: 415 "unsupported_picture", "Unsupported picture", "the picture's type is not supported";
    BrokenPicture: 422 "broken_picture", "Broken picture", "the picture's header has no size";
    PictureTooLarge: 422 "picture_too_large", "Picture too large", "the picture has too many pixels";
    RangeNotSatisfiable: 416 "range_not_satisfiable", "Range not satisfiable", "`Range` is outside the content";
    NoPngAvatar: 409 "no_png_avatar", "No PNG as avatar", "the template's avatar is not a complete PNG";
    BrokenCard: 422 "broken_card", "Broken card", "the PNG is incomplete or has no character card of version 2";
    InvalidPartNumber: 400 "invalid_part_number", "Invalid part number", "part numbers are 1 to 10,000";
    SkillsBookInUse: 409 "skills_book_in_use", "Skills book in use", "a template or an NPC uses the skills book";
    SkillsBookNotUploading: 409 "skills_book_not_uploading", "Skills book not uploading", "parts are accepted only in the state `uploading`";
    SkillsBookOver: 409 "skills_book_over", "Skills book over", "the skills book is in a final state";
    LargerThanDeclared: 409 "larger_than_declared", "Larger than declared", "with this part the file exceeds its declared size";
    PartsMissing: 409 "parts_missing", "Parts missing", "parts are missing; `missing_parts` lists them";
    SizeMismatch: 409 "size_mismatch", "Size mismatch", "the parts are smaller than the declared size";
    PartsChanged: 409 "parts_changed", "Parts changed", "a part was written during the check";
    Sha256Mismatch: 422 "sha256_mismatch", "SHA-256 mismatch", "the SHA-256 of the parts differs from the declared one";
    TooManyWebhooks: 409 "too_many_webhooks", "Too many webhooks", "the organisation is at its webhook limit";
    WebhookDisabled: 409 "webhook_disabled", "Webhook disabled", "the webhook is disabled";
    TooManyDeliveries: 409 "too_many_deliveries", "Too many deliveries", "the webhook's delivery queue is full";
    DeliveryNotFailed: 409 "delivery_not_failed", "Delivery not failed", "the delivery succeeded or is still being attempted";
    ConsentRequired: 422 "consent_required", "Consent required", "the consent is incomplete";
    ConsentEnded: 409 "consent_ended", "Consent ended", "the consent to use the voice has ended";
    ProviderMissing: 409 "provider_missing", "Provider missing", "the voice's provider is no longer configured";
    VoiceInUse: 409 "voice_in_use", "Voice in use", "a template or an NPC uses the voice";
    UnsupportedAudio: 415 "unsupported_audio", "Unsupported audio", "the sample's type is not supported";
    BrokenAudio: 422 "broken_audio", "Broken audio", "the sample is damaged or has no duration";
    UnsuitableAudio: 422 "unsuitable_audio", "Unsuitable audio", "the sample's length or format is outside the limits";
}

impl ProblemKind {
    /// Returns the last segment of the document's `type`, which is `/problems/<slug>`.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        self.row().1
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the title of the document.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().2
    }

    /// Returns when the problem occurs, for the API documentation.
    #[must_use]
    pub const fn when(self) -> &'static str {
        self.row().3
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn kinds_have_distinct_type_status_and_title() {
        let mut seen = HashSet::new();
        for kind in ProblemKind::ALL {
            let (status, slug, title, _) = kind.row();
            assert!(StatusCode::from_u16(status).is_ok(), "{kind:?}");
            assert!(seen.insert((status, slug, title)), "{kind:?}");
        }
    }
}
