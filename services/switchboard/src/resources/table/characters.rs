//! NPCs, and what they are made of.

use super::super::{Body, Custom, Operation, Param, Resource, Value};
use crate::{
    commands::{npcs, skills, templates, voices},
    output::Column,
};

pub(crate) static NPCS: Resource = Resource {
    name: "npcs",
    noun: "an NPC",
    about: "Manages NPCs, the characters of an organisation",
    path: "/v1/npcs",
    member: "npcs",
    page: 20,
    prefix: "npc_",
    title: "effective.name",
    columns: &[
        Column::new("ID", "id"),
        Column::new("NAME", "effective.name"),
        Column::new("TEMPLATE", "template_id"),
        Column::new("DEVICES", "device_ids"),
        Column::wide("VERSION", "version"),
        Column::wide("UPDATED", "updated_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/npcs"], "Lists NPCs")
            .params(&[
                Param::text(
                    "template",
                    "template_id",
                    "ID",
                    "Only NPCs based on this template: its id or name",
                ),
                Param::text(
                    "device-id",
                    "device_id",
                    "ID",
                    "Only the NPC of this device",
                ),
            ])
            .examples(&["", "--device-id toy-1", "-o json"]),
        Operation::show(
            &["GET /v1/npcs/{id}"],
            "Shows an NPC and the settings in effect as JSON",
        ),
        Operation::edit(
            &["PATCH /v1/npcs/{id}"],
            "Changes an NPC and prints it. `device_ids` are its devices, `overrides` the settings that differ from the template, `template_version` the pinned version or null to follow the newest",
        ),
        Operation::delete(
            &["DELETE /v1/npcs/{id}"],
            "Deletes an NPC and its memories",
            "Delete {id} and its memories?",
        ),
    ],
    custom: Some(Custom::of::<npcs::Action>()),
    ..Resource::NONE
};

pub(crate) static TEMPLATES: Resource = Resource {
    name: "templates",
    noun: "a template",
    about: "Manages templates, from which NPCs are created, and exchanges them as character cards",
    path: "/v1/templates",
    member: "templates",
    page: 20,
    prefix: "tpl_",
    title: "name",
    columns: &[
        Column::new("ID", "id"),
        Column::new("NAME", "name"),
        Column::new("VISIBILITY", "visibility"),
        Column::new("VERSION", "version"),
        Column::wide("LOCALE", "locale"),
        Column::wide("UPDATED", "updated_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/templates"], "Lists templates").params(&[Param::of(
            "public",
            "visibility",
            Value::Switch("public"),
            "Only templates visible to all organisations",
        )]),
        Operation::show(&["GET /v1/templates/{id}"], "Shows a template as JSON"),
        Operation::create(
            &["POST /v1/templates"],
            "Creates a template from its settings, including `name`, and prints its id",
        ),
        Operation::edit(
            &["PATCH /v1/templates/{id}"],
            "Changes a template and prints it",
        ),
        Operation::delete(
            &["DELETE /v1/templates/{id}"],
            "Deletes a template and its memories",
            "Delete {id} and its memories?",
        ),
        Operation::create(
            &["POST /v1/templates/import"],
            "Creates a template from a Character Card V2 (JSON or PNG) and prints its id",
        )
        .named("import")
        .body(Body::File)
        .examples(&["rex.png", "rex.json --idempotency-key rex-1"]),
    ],
    custom: Some(Custom::of::<templates::Action>()),
    ..Resource::NONE
};

const OF_MEMORIES: [&str; 2] = [
    "GET /v1/npcs/{npc}/memories",
    "GET /v1/templates/{template}/memories",
];
const NEW_MEMORIES: [&str; 2] = [
    "POST /v1/npcs/{npc}/memories",
    "POST /v1/templates/{template}/memories",
];

pub(crate) static MEMORIES: Resource = Resource {
    name: "memories",
    noun: "a memory",
    about: "Manages what NPCs and templates remember",
    member: "memories",
    prefix: "mem_",
    columns: &[
        Column::new("ID", "id"),
        Column::new("KIND", "kind"),
        Column::new("SUBJECT", "subject"),
        Column::new("TEXT", "text"),
        Column::wide("IMPORTANCE", "importance"),
        Column::wide("CREATED", "created_at"),
        Column::wide("EXPIRES", "expires_at"),
        Column::wide("VERSION", "version"),
    ],
    operations: &[
        Operation::list(&OF_MEMORIES, "Lists the memories of an NPC or a template").params(&[
            Param::text(
                "query",
                "q",
                "TEXT",
                "The best matches for this text, with their scores",
            ),
            Param::text(
                "subject",
                "subject",
                "NAME",
                "Only memories about this user or device",
            ),
            Param::text("kind", "kind", "KIND", "Only memories of this kind"),
        ]),
        Operation::send(
            &NEW_MEMORIES,
            "Creates a memory, {\"text\": …}, or several, {\"memories\": […]}, and prints them",
        )
        .body(Body::Document)
        .examples(&["memory.json", "memory.json --idempotency-key once-1"]),
        Operation::edit(
            &["PATCH /v1/memories/{id}"],
            "Changes a memory and prints it",
        ),
        Operation::delete(
            &["DELETE /v1/memories/{id}"],
            "Deletes a memory",
            "Delete {id}?",
        ),
    ],
    ..Resource::NONE
};

pub(crate) static PICTURES: Resource = Resource {
    name: "pictures",
    noun: "a picture",
    about: "Manages pictures",
    path: "/v1/pictures",
    member: "pictures",
    prefix: "pic_",
    title: "name",
    columns: &[
        Column::new("ID", "id"),
        Column::new("NAME", "name"),
        Column::new("TYPE", "mime_type"),
        Column::new("PIXELS", "width×height"),
        Column::new("BYTES", "size_bytes"),
        Column::wide("URI", "uri"),
    ],
    operations: &[
        Operation::create(
            &["POST /v1/pictures"],
            "Uploads a picture (PNG, JPEG, GIF or WebP) and prints its id",
        )
        .named("upload")
        .body(Body::File)
        .params(&[
            Param::text(
                "name",
                "name",
                "NAME",
                "Name of the picture. Default: its id",
            ),
            Param::text(
                "uri",
                "uri",
                "URI",
                "URI of the picture for agents. Default: derived from its id",
            ),
        ])
        .examples(&["rex.png", "rex.png --name Rex --uri pics://rex"]),
        Operation::list(&["GET /v1/pictures"], "Lists pictures"),
        Operation::show(
            &["GET /v1/pictures/{id}"],
            "Shows the metadata of a picture as JSON",
        ),
        Operation::download(&["GET /v1/pictures/{id}/content"], "Downloads a picture"),
        Operation::delete(
            &["DELETE /v1/pictures/{id}"],
            "Deletes a picture that no template or NPC uses",
            "Delete {id}?",
        ),
    ],
    ..Resource::NONE
};

pub(crate) static SKILLS: Resource = Resource {
    name: "skills",
    noun: "a skills book",
    about: "Manages skills books, the documents that NPCs search",
    path: "/v1/skills-books",
    member: "skills_books",
    prefix: "skb_",
    title: "name",
    columns: &[
        Column::new("ID", "id"),
        Column::new("STATE", "state"),
        Column::new("PERCENT", "progress%"),
        Column::new("NAME", "name"),
        Column::wide("TYPE", "mime_type"),
        Column::wide("BYTES", "size_bytes"),
        Column::wide("UPDATED", "updated_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/skills-books"], "Lists skills books").examples(&["", "--watch"]),
        Operation::show(
            &["GET /v1/skills-books/{id}"],
            "Shows a skills book as JSON",
        ),
        Operation::send(
            &["POST /v1/skills-books/{id}/cancel"],
            "Cancels the upload or the indexing of a skills book, and prints it",
        )
        .named("cancel"),
        Operation::delete(
            &["DELETE /v1/skills-books/{id}"],
            "Deletes a skills book that no template uses",
            "Delete {id}?",
        ),
    ],
    custom: Some(Custom::of::<skills::Action>()),
    ..Resource::NONE
};

pub(crate) static VOICES: Resource = Resource {
    name: "voices",
    noun: "a voice",
    about: "Manages voices, created from recorded samples",
    path: "/v1/voices",
    member: "voices",
    prefix: "voice_",
    title: "name",
    columns: &[
        Column::new("ID", "id"),
        Column::new("STATE", "state"),
        Column::new("PROVIDER", "provider"),
        Column::new("LANGUAGES", "languages"),
        Column::new("NAME", "name"),
        Column::wide("LABELS", "labels"),
        Column::wide("MS", "duration_ms"),
        Column::wide("UPDATED", "updated_at"),
    ],
    operations: &[
        Operation::list(&["GET /v1/voices"], "Lists voices")
            .params(&[
                Param::text(
                    "state",
                    "state",
                    "STATE",
                    "Only voices in this state: uploaded, training, ready, failed or expired",
                ),
                Param::text(
                    "language",
                    "language",
                    "TAG",
                    "Only voices with this language; de includes de-AT",
                ),
                Param::text(
                    "provider",
                    "provider",
                    "NAME",
                    "Only voices of this provider",
                ),
            ])
            .examples(&["", "--language de --state ready", "--watch"]),
        Operation::show(&["GET /v1/voices/{id}"], "Shows a voice as JSON"),
        Operation::edit(
            &["PATCH /v1/voices/{id}"],
            "Changes the name, languages or labels of a voice and prints it",
        ),
        Operation::download(
            &["GET /v1/voices/{id}/preview"],
            "Downloads the sample of a voice",
        )
        .named("preview"),
        Operation::delete(
            &["DELETE /v1/voices/{id}"],
            "Deletes a voice that no template or NPC uses, and its sample",
            "Delete {id} and its sample?",
        ),
    ],
    custom: Some(Custom::of::<voices::Action>()),
    ..Resource::NONE
};
