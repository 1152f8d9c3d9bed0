//! Compares the schema as data with `schema/mcp.fbs`, and checks the writer's alignment and depth
//! limit. `tests/flatbuffers.rs` compares whole messages with `flatc`.

#[path = "../tests/flatbuffers/fbs.rs"]
mod fbs;

use super::{
    EncodeError,
    node::{Cell, Node},
    reader,
    schema::{self, Choice, Kind, Need, TABLES, Union},
    writer,
};
use fbs::{Definition, definitions};

/// A field's type as the schema writes it, and whether it is a list.
fn schema_type(kind: Kind) -> (&'static str, bool) {
    match kind {
        Kind::Bool | Kind::Presence => ("bool", false),
        Kind::Int => ("int", false),
        Kind::Count => ("uint32", false),
        Kind::Float => ("float", false),
        Kind::Choice(choice) => (choice.name, false),
        Kind::Choices(choice) => (choice.name, true),
        Kind::Id => ("RequestId", false),
        Kind::Text | Kind::Fixed(_) | Kind::Json | Kind::Extra => ("string", false),
        Kind::Bytes => ("ubyte", true),
        Kind::Table(table) => (table.name, false),
        Kind::Tables(table) | Kind::Named(table) => (table.name, true),
        Kind::Union(union) | Kind::Flat(union) => (union.name, false),
    }
}

fn names(definition: &Definition) -> Vec<&str> {
    let parts = definition.parts.iter();
    parts.map(|part| part.name.as_str()).collect()
}

#[test]
fn tables_match_the_schema() {
    let definitions = definitions();
    let tables = definitions.iter().filter(|found| found.keyword == "table");
    let tables: Vec<_> = tables.collect();
    assert_eq!(tables.len(), TABLES.len());
    for definition in tables {
        let name = &definition.name;
        let Some(table) = TABLES.iter().find(|table| table.name == name) else {
            panic!("{name} is in the schema only");
        };
        let ours = table.fields.iter().map(|field| {
            let (kind, list) = schema_type(field.kind);
            (field.name, kind, list, field.need == Need::Required)
        });
        let theirs = definition.parts.iter().map(|part| {
            let (name, kind) = (part.name.as_str(), part.kind.as_str());
            (name, kind, part.list, part.required)
        });
        assert_eq!(
            ours.collect::<Vec<_>>(),
            theirs.collect::<Vec<_>>(),
            "{name}"
        );
    }
}

#[test]
fn unions_and_enums_match_the_schema() {
    static UNIONS: [&Union; 4] = [
        &schema::MESSAGE_TYPE,
        &schema::CONTENT,
        &schema::RESOURCE_DATA,
        &schema::TRANSPORT_TYPE,
    ];
    static CHOICES: [&Choice; 2] = [&schema::ROLE, &schema::LOGGING_LEVEL];
    let mut compared = 0;
    for definition in definitions() {
        if let Some(union) = UNIONS.iter().find(|union| union.name == definition.name) {
            let members = union.members.iter().map(|(_, table)| table.name);
            assert_eq!(names(&definition), members.collect::<Vec<_>>());
        } else if let Some(choice) = CHOICES.iter().find(|choice| choice.name == definition.name) {
            let theirs = names(&definition).into_iter().map(str::to_lowercase);
            assert_eq!(theirs.collect::<Vec<_>>(), choice.values);
        } else {
            assert!(
                matches!(&*definition.keyword, "table" | "struct"),
                "{definition:?}"
            );
            continue;
        }
        compared += 1;
    }
    assert_eq!(compared, UNIONS.len() + CHOICES.len());
}

#[test]
fn id_is_aligned_with_and_without_a_size_prefix() {
    for lead in [0, 4] {
        for length in 0..16 {
            let mut node = Node::new(&schema::RESPONSE);
            node.set("jsonrpc", Cell::Text("2.0".into()));
            node.set("id", Cell::Id(u64::MAX - 1));
            node.set("result", Cell::Text("1".repeat(length).into()));
            let mut message = Node::new(&schema::MESSAGE);
            message.set("type", Cell::Union(2, Box::new(node)));
            let bytes = writer::write(&message, lead).unwrap();
            let id = (u64::MAX - 1).to_le_bytes();
            let at = bytes.windows(8).position(|window| window == id).unwrap();
            assert_eq!((at + lead) % 8, 0, "{length} bytes, {lead} before them");
            assert!(reader::read(&bytes, lead, &schema::MESSAGE).is_ok());
            assert!(reader::read(&bytes, lead ^ 4, &schema::MESSAGE).is_err());
        }
    }
}

#[test]
fn too_deep_node_is_not_written() {
    let mut node = Node::new(&schema::MODEL_PREFERENCES);
    for _ in 0..super::MAX_DEPTH {
        let mut outer = Node::new(&schema::MODEL_PREFERENCES);
        outer.set("hints", Cell::Tables(vec![node]));
        node = outer;
    }
    assert_eq!(writer::write(&node, 0), Err(EncodeError::TooDeep));
}
