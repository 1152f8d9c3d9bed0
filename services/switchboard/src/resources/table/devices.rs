//! Devices, their calls, and recordings of what users spoke.

use super::super::{Custom, Operation, Param, Resource, Value};
use crate::{
    commands::{calls, devices},
    output::Column,
};

pub(crate) static DEVICES: Resource = Resource {
    name: "devices",
    noun: "a device",
    about: "Shows devices, their services and whether they are connected",
    path: "/v1/devices",
    member: "devices",
    columns: &[
        Column::new("ID", "id"),
        Column::new("ONLINE", "online"),
        Column::new("LAST SEEN", "last_seen"),
        Column::new("SERVICES", "services"),
        Column::new("LABELS", "labels"),
        Column::wide("SINCE", "since"),
        Column::wide("NODE", "node"),
        Column::wide("LEFT", "left_reason"),
    ],
    operations: &[
        Operation::list(&["GET /v1/devices"], "Lists devices")
            .params(&[
                Param::of(
                    "online",
                    "online",
                    Value::Bool,
                    "Only devices that are connected; --online=false: only those that are not",
                ),
                Param::text(
                    "prefix",
                    "prefix",
                    "TEXT",
                    "Only devices whose ids begin with this text",
                ),
                Param::text(
                    "service",
                    "service",
                    "NAME",
                    "Only devices that registered this service",
                ),
                Param::of(
                    "label",
                    "label",
                    Value::Texts("LABEL"),
                    "Only devices that have this label; repeated: that have all of them",
                ),
                Param::of(
                    "services",
                    "services",
                    Value::Choice(&["full", "names", "none"]),
                    "What is read of the services of each device. Default: full",
                ),
            ])
            .examples(&[
                "",
                "--watch",
                "--online --prefix toy- --service wave",
                "--label room:kitchen --label stage:test",
            ]),
        Operation::show(
            &["GET /v1/devices/counts"],
            "Shows how many devices are connected, and how many are known",
        )
        .named("count")
        .params(&[Param::text(
            "prefix",
            "prefix",
            "TEXT",
            "Only devices whose ids begin with this text",
        )])
        .examples(&["", "--prefix toy-"]),
        Operation::show(
            &["GET /v1/devices/{id}"],
            "Shows a device and its services as JSON",
        ),
        Operation::delete(
            &["POST /v1/devices/{id}/disconnect"],
            "Ends the connection of a device, which may connect again",
            "",
        )
        .named("disconnect")
        .of_connected_devices()
        .examples(&["ID", "ID --context production"]),
        Operation::delete(
            &["DELETE /v1/devices/{id}"],
            "Forgets a device that is not connected; when it connects again, it is known again",
            "Forget {id} and its services?",
        )
        .named("forget"),
        Operation::show(
            &["GET /v1/devices/{id}/approvals"],
            "Shows which services of a device models may call, and what changed since their approval",
        )
        .named("approvals")
        .examples(&["ID", "ID --context production"]),
        Operation::list(&["GET /v1/labels"], "Lists the labels that devices have")
            .named("labels")
            .of_elements(&LABELS)
            .examples(&["", "-o json"]),
    ],
    custom: Some(Custom::of::<devices::Action>()),
    ..Resource::NONE
};

/// The labels that devices have.
static LABELS: Resource = Resource {
    name: "devices",
    noun: "a label",
    member: "items",
    id: "label",
    columns: &[
        Column::new("LABEL", "label"),
        Column::new("DEVICES", "devices"),
    ],
    ..Resource::NONE
};

/// The order of a list. On a terminal, people look for what is new.
pub(super) const ORDER: Param = Param::of(
    "order",
    "order",
    Value::Choice(&["asc", "desc"]),
    "asc: oldest first, desc: newest first. Default: desc on a terminal, otherwise asc",
)
.on_terminal("desc");

pub(crate) static CALLS: Resource = Resource {
    name: "calls",
    noun: "a call",
    about: "Shows the latest calls; manages those made with `call --async` or `--queued`",
    path: "/v1/calls",
    member: "calls",
    id: "call_id",
    prefix: "call_",
    columns: &[
        Column::new("ID", "call_id"),
        Column::new("DEVICE", "device_id"),
        Column::new("SERVICE", "service"),
        Column::new("STATE", "state"),
        Column::new("OUTCOME", "outcome"),
        Column::new("CREATED", "created_at"),
        Column::wide("MODE", "mode"),
        Column::wide("DELIVERED", "delivered"),
        Column::wide("MS", "elapsed_ms"),
    ],
    operations: &[
        Operation::list(&["GET /v1/calls"], "Lists asynchronous and queued calls")
            .params(&[
                Param::text("device-id", "device_id", "ID", "Only calls of this device"),
                Param::of(
                    "state",
                    "state",
                    Value::Choice(&["queued", "sent", "ended"]),
                    "Only calls in this state",
                ),
                ORDER,
            ])
            .examples(&["", "--device-id toy-1 --state queued", "--watch"]),
        Operation::list(
            &["GET /v1/calls/recent"],
            "Lists the latest synchronous calls, newest first",
        )
        .named("recent")
        .of_elements(&RECENT_CALLS)
        .params(&[
            Param::text("device", "device", "ID", "Only calls of this device"),
            Param::text("service", "service", "NAME", "Only calls of this service"),
            Param::text(
                "outcome",
                "outcome",
                "OUTCOME",
                "Only calls with this outcome",
            ),
            Param::text(
                "caller",
                "caller",
                "ID",
                "Only calls of the API key, access token or NPC with this id",
            ),
        ])
        .examples(&["--device toy-1 --outcome timed_out", "--watch"]),
        Operation::delete(
            &["DELETE /v1/calls/{id}"],
            "Cancels a call that has not ended",
            "",
        )
        .named("cancel")
        .examples(&["ID", "ID --context production"]),
    ],
    custom: Some(Custom::of::<calls::Action>()),
    ..Resource::NONE
};

/// The journal, which `calls recent` lists.
static RECENT_CALLS: Resource = Resource {
    name: "calls",
    noun: "a call",
    path: "/v1/calls/recent",
    member: "items",
    columns: &[
        Column::new("ENDED", "ended_at"),
        Column::new("DEVICE", "device_id"),
        Column::new("SERVICE", "service"),
        Column::new("OUTCOME", "outcome"),
        Column::new("MS", "elapsed_ms"),
        Column::new("VIA", "via"),
        Column::new("CALLER", "caller.id"),
        Column::wide("ID", "call_id"),
        Column::wide("DELIVERED", "delivered"),
        Column::wide("NAME", "caller.name"),
        Column::wide("PARAMS", "params_bytes"),
        Column::wide("RESULT", "result_bytes"),
    ],
    ..Resource::NONE
};

pub(crate) static RECORDINGS: Resource = Resource {
    name: "recordings",
    noun: "a recording",
    about: "Manages recordings of what users spoke to devices",
    path: "/v1/recordings",
    member: "recordings",
    prefix: "rec_",
    columns: &[
        Column::new("ID", "id"),
        Column::new("DEVICE", "device_id"),
        Column::new("MS", "duration_ms"),
        Column::new("BYTES", "size_bytes"),
        Column::new("CREATED", "created_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/recordings"], "Lists recordings").params(&[Param::text(
            "device-id",
            "device_id",
            "ID",
            "Only recordings of this device",
        )]),
        Operation::show(
            &["GET /v1/recordings/{id}"],
            "Shows the metadata of a recording as JSON",
        ),
        Operation::download(
            &["GET /v1/recordings/{id}/content"],
            "Downloads a recording (Opus in Ogg)",
        ),
        Operation::delete(
            &["DELETE /v1/recordings/{id}"],
            "Deletes a recording",
            "Delete {id}?",
        ),
        Operation::send(
            &["DELETE /v1/recordings"],
            "Deletes many recordings and prints how many; to be repeated while `has_more` is true",
        )
        .named("clear")
        .params(&[Param::text(
            "device-id",
            "device_id",
            "ID",
            "Only recordings of this device. Default: those of all devices",
        )])
        .asks("Delete all of these recordings?")
        .examples(&["--device-id toy-1", "--yes"]),
    ],
    ..Resource::NONE
};
