//! Organisations, their credentials, webhooks and records.

use super::{
    super::{Body, Operation, Param, Resource, Value},
    devices::ORDER,
};
use crate::output::Column;

pub(crate) static KEYS: Resource = Resource {
    name: "keys",
    noun: "an API key",
    about: "Manages the API keys of an organisation",
    path: "/v1/api-keys",
    member: "api_keys",
    id: "api_key_id",
    prefix: "key_",
    title: "name",
    columns: &[
        Column::new("ID", "api_key_id"),
        Column::new("NAME", "name"),
        Column::new("KEY", "prefix"),
        Column::new("SCOPES", "scopes"),
        Column::new("LAST USED", "last_used_at"),
        Column::new("REVOKED", "revoked_at"),
        Column::wide("DEVICES", "device_prefix"),
        Column::wide("LABEL", "device_label"),
        Column::wide("SERVICES", "services"),
        Column::wide("EXPIRES", "expires_at"),
        Column::wide("CREATED", "created_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/api-keys"], "Lists API keys without their secrets"),
        Operation::send(
            &["POST /v1/api-keys"],
            "Creates an API key and prints it with its secret, which is not shown again",
        )
        .body(Body::Members)
        .params(&[
            Param::positional("name", "NAME", "Name of the key"),
            Param::of("scope", "scopes", Value::Texts("SCOPE"), "Scope: device, call, read, admin or provision; can be repeated. Default: the scopes of the caller"),
            Param::text("device-prefix", "device_prefix", "PREFIX", "Beginning of the ids of the devices that the key reaches. Default: that of the caller"),
            Param::text("device-label", "device_label", "LABEL", "Label of the devices that the key reaches. Default: that of the caller"),
            Param::of("service", "services", Value::Texts("SERVICE"), "Service that the key reaches: a name, or a beginning of names and *; can be repeated. Default: those of the caller"),
            Param::text("expires-at", "expires_at", "TIME", "End of its validity (RFC 3339). Default: never"),
        ])
        .examples(&["ci --scope call,read", "guest --scope read --expires-at 2030-01-01T00:00:00Z", "lamps --scope call --device-prefix lamp- --service 'led.*'"]),
        Operation::delete(
            &["DELETE /v1/api-keys/{id}"],
            "Revokes an API key",
            "Revoke {id}? Its callers are refused from now on.",
        )
        .named("revoke"),
    ],
    ..Resource::NONE
};

pub(crate) static TOKENS: Resource = Resource {
    name: "tokens",
    noun: "an access token",
    about: "Lists and revokes access tokens; `switchboard token` issues them",
    path: "/v1/tokens",
    member: "tokens",
    id: "token_id",
    prefix: "tok_",
    columns: &[
        Column::new("ID", "token_id"),
        Column::new("SUBJECT", "subject"),
        Column::new("SCOPES", "scopes"),
        Column::new("EXPIRES", "expires_at"),
        Column::new("REVOKED", "revoked_at"),
        Column::wide("CREATED", "created_at"),
    ],
    operations: &[
        Operation::list(
            &["GET /v1/tokens"],
            "Lists access tokens without the tokens themselves, newest first",
        )
        .params(&[Param::text(
            "subject",
            "subject",
            "SUBJECT",
            "Only tokens of this holder, such as device:toy-1",
        )])
        .examples(&["", "--subject device:toy-1", "-o json"]),
        Operation::delete(
            &["DELETE /v1/tokens/{id}"],
            "Revokes an access token by the `token_id` of its issue",
            "Revoke {id}? Its device or client is disconnected.",
        )
        .named("revoke"),
        Operation::show(
            &["GET /.well-known/jwks.json"],
            "Shows the public keys that verify tokens",
        )
        .named("public-keys"),
    ],
    ..Resource::NONE
};

pub(crate) static ORG: Resource = Resource {
    name: "org",
    noun: "an organisation",
    about: "Shows and changes the organisation of the key",
    operations: &[
        Operation::show(&["GET /v1/org"], "Shows the organisation as JSON"),
        Operation::edit(&["PATCH /v1/org"], "Changes the organisation and prints it"),
        Operation::list(
            &["GET /v1/approvals"],
            "Lists which services models may call, whether or not a device declares them",
        )
        .named("approvals")
        .of_elements(&APPROVALS)
        .examples(&["", "-o json"]),
        Operation::delete(
            &["DELETE /v1/approvals/{id}"],
            "Revokes an approval of a service, by its id",
            "Revoke the approval {id}?",
        )
        .named("unapprove")
        .of_elements(&APPROVALS),
    ],
    ..Resource::NONE
};

/// The approvals of services of an organisation.
static APPROVALS: Resource = Resource {
    name: "org",
    noun: "an approval",
    path: "/v1/approvals",
    member: "items",
    id: "id",
    prefix: "apv_",
    columns: &[
        Column::new("ID", "id"),
        Column::new("SERVICE", "service"),
        Column::new("DEVICE", "device_id"),
        Column::new("BY", "by"),
        Column::new("AT", "at"),
        Column::wide("DIGEST", "digest"),
    ],
    ..Resource::NONE
};

pub(crate) static ORGS: Resource = Resource {
    name: "orgs",
    noun: "an organisation",
    about: "Manages organisations, with the operator's key",
    path: "/v1/orgs",
    member: "orgs",
    id: "org_id",
    prefix: "org_",
    title: "name",
    columns: &[
        Column::new("ID", "org_id"),
        Column::new("NAME", "name"),
        Column::new("SUSPENDED", "suspended"),
        Column::new("CREATED", "created_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/orgs"], "Lists organisations"),
        Operation::send(
            &["POST /v1/orgs"],
            "Creates an organisation and prints it with its first API key, which is not shown again",
        )
        .body(Body::Members)
        .params(&[Param::positional("name", "NAME", "Name of the organisation")])
        .examples(&["Toys", "Toys --idempotency-key toys-1"]),
        Operation::send(
            &["PATCH /v1/orgs/{id}"],
            "Suspends an organisation or sets its quotas, and prints it",
        )
        .named("edit")
        .body(Body::Members)
        .params(&[
            Param::of("suspended", "suspended", Value::Json, "Whether its credentials are refused: true or false"),
            Param::of("quotas", "quotas", Value::Json, "Quotas by name; 0 is unlimited, null the default"),
        ])
        .examples(&["ID --suspended true", "ID --quotas '{\"api_keys\":10}'"]),
    ],
    is_for_operators: true,
    ..Resource::NONE
};

pub(crate) static WEBHOOKS: Resource = Resource {
    name: "webhooks",
    noun: "a webhook",
    about: "Manages webhooks, which receive the events of an organisation",
    path: "/v1/webhooks",
    member: "webhooks",
    prefix: "whk_",
    title: "url",
    columns: &[
        Column::new("ID", "id"),
        Column::new("URL", "url"),
        Column::new("EVENTS", "events"),
        Column::new("ENABLED", "enabled"),
        Column::new("FAILING SINCE", "failing_since"),
        Column::wide("DROPPED", "dropped"),
        Column::wide("DESCRIPTION", "description"),
    ],
    operations: &[
        Operation::list(&["GET /v1/webhooks"], "Lists webhooks"),
        Operation::show(&["GET /v1/webhooks/{id}"], "Shows a webhook as JSON"),
        Operation::send(
            &["POST /v1/webhooks"],
            "Creates a webhook and prints it with its secret, which is not shown again",
        )
        .body(Body::Members)
        .params(&[
            Param::positional("url", "URL", "https URL with a public address"),
            Param::of("event", "events", Value::Texts("EVENT"), "device.online, device.offline, device.event, call.finished or quota.warning; can be repeated").required(),
            Param::text("description", "description", "TEXT", "Description for people"),
        ])
        .examples(&["https://example.com/hook --event call.finished", "https://example.com/hook --event device.online,device.offline"]),
        Operation::edit(&["PATCH /v1/webhooks/{id}"], "Changes a webhook and prints it"),
        Operation::delete(
            &["DELETE /v1/webhooks/{id}"],
            "Deletes a webhook and its deliveries",
            "Delete {id} and its deliveries?",
        ),
        Operation::send(
            &["POST /v1/webhooks/{id}/rotate-secret"],
            "Replaces the secret of a webhook and prints the new one; the old one remains valid for a while",
        )
        .named("rotate-secret")
        .asks("Replace the secret of {id}?")
        .examples(&["ID", "ID --yes"]),
        Operation::send(&["POST /v1/webhooks/{id}/test"], "Sends a test event and prints its delivery")
            .named("test"),
    ],
    ..Resource::NONE
};

pub(crate) static DELIVERIES: Resource = Resource {
    name: "deliveries",
    noun: "a delivery",
    about: "Shows and repeats the deliveries of webhooks",
    member: "deliveries",
    prefix: "whd_",
    columns: &[
        Column::new("ID", "id"),
        Column::new("EVENT", "event"),
        Column::new("STATE", "state"),
        Column::new("ATTEMPTS", "attempts"),
        Column::new("STATUS", "last_status"),
        Column::new("CREATED", "created_at"),
        Column::wide("ERROR", "last_error"),
        Column::wide("NEXT", "next_attempt_at"),
    ],
    operations: &[
        Operation::list(
            &["GET /v1/webhooks/{webhook}/deliveries"],
            "Lists the deliveries of a webhook",
        )
        .params(&[Param::of(
            "state",
            "state",
            Value::Choice(&["pending", "delivered", "failed"]),
            "Only deliveries in this state",
        )]),
        Operation::show(
            &["GET /v1/webhook-deliveries/{id}"],
            "Shows a delivery as JSON",
        ),
        Operation::send(
            &["POST /v1/webhook-deliveries/{id}/redeliver"],
            "Delivers an event again and prints the new delivery",
        )
        .named("repeat"),
    ],
    ..Resource::NONE
};

pub(crate) static USAGE: Resource = Resource {
    name: "usage",
    noun: "usage",
    about: "Shows the calls, turns, tokens and quotas of the organisation as JSON",
    operations: &[Operation::show(
        &["GET /v1/usage", "GET /v1/usage/by"],
        "Shows the calls, turns, tokens and quotas of the organisation as JSON",
    )
    .named("")
    .params(&[
        Param::time(
            "from",
            "Start of the period: a day (2026-01-31), a time of RFC 3339, or a duration before now (2h, 7d). Default: 30 days ago",
        ),
        Param::time("to", "End of the period, given as the start. Default: now"),
        Param::of(
            "by",
            "dimension",
            Value::Choice(&["device", "service", "npc"]),
            "Sums of each device, service or NPC, instead of hours or days",
        )
        .chooses(1),
        Param::text(
            "limit",
            "limit",
            "COUNT",
            "With --by: the maximum number of sums. Default: 50",
        ),
        Param::of(
            "granularity",
            "granularity",
            Value::Choice(&["day", "hour"]),
            "Length of a period. Default: day",
        ),
    ])
    .examples(&[
        "-o table",
        "--from 7d",
        "--from 2026-01-01 --to 2026-02-01 --granularity day",
        "--by device --limit 20",
    ])],
    ..Resource::NONE
};

pub(crate) static NODES: Resource = Resource {
    name: "nodes",
    noun: "a node",
    about: "Shows the nodes of the installation, with the operator's key",
    operations: &[Operation::show(
        &["GET /v1/nodes"],
        "Shows the nodes of the installation and their states as JSON",
    )
    .named("list")
    .examples(&["", "-o table"])],
    is_for_operators: true,
    ..Resource::NONE
};

pub(crate) static WHOAMI: Resource = Resource {
    name: "whoami",
    noun: "a caller",
    about: "Shows whose key is used, what it may do and what restricts it",
    operations: &[Operation::show(
        &["GET /v1/session"],
        "Shows whose key is used, what it may do and what restricts it",
    )
    .named("")
    .examples(&["", "--context production"])],
    ..Resource::NONE
};

pub(crate) static AUDIT: Resource = Resource {
    name: "audit",
    noun: "an entry",
    about: "Lists the changes of settings: who changed what",
    member: "entries",
    prefix: "aud_",
    columns: &[
        Column::new("TIME", "at"),
        Column::new("ACTOR", "actor"),
        Column::new("ACTION", "action"),
        Column::new("RESOURCE", "resource"),
        Column::new("ID", "resource_id"),
        Column::new("CHANGED", "changed"),
        Column::wide("ENTRY", "id"),
    ],
    operations: &[Operation::list(
        &["GET /v1/audit-log"],
        "Lists the changes of settings: who changed what",
    )
    .named("")
    .params(&[
        Param::text(
            "actor",
            "actor",
            "ID",
            "Only changes by this key, token or operator",
        ),
        Param::of(
            "action",
            "action",
            Value::Choice(&["created", "changed", "removed", "revoked"]),
            "Only changes of this kind",
        ),
        Param::text(
            "resource",
            "resource",
            "KIND",
            "Only changes of this kind of resource, such as npc",
        ),
        Param::text(
            "resource-id",
            "resource_id",
            "ID",
            "Only changes of the resource with this id",
        ),
        Param::time(
            "since",
            "Only changes at this time or later: a day (2026-01-31), a time of RFC 3339, or a duration before now (2h, 7d)",
        ),
        Param::time("until", "Only changes before this time, given as --since"),
        ORDER,
    ])
    .examples(&[
        "",
        "--resource npc --action removed",
        "--since 7d -o json",
    ])],
    ..Resource::NONE
};
