//! The cases of `tests/corpus`: a value in MCP's JSON and in `flatc`'s JSON.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use switchboard_mcp_flatbuffers::RootType;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) json: Box<RawValue>,
    pub(crate) flatc: Value,
}

impl Case {
    pub(crate) fn root_type(&self) -> RootType {
        RootType::named(&self.table).unwrap_or_else(|| panic!("no root type {}", self.table))
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let list: Vec<Case> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        cases.extend(list);
    }
    assert!(cases.len() > 50, "only {} cases", cases.len());
    cases
}

/// JSON with its numbers as written and its members sorted by name.
pub(crate) fn exact(json: &str) -> String {
    if json.starts_with('{') {
        let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json).unwrap();
        let members: Vec<_> = members
            .iter()
            .map(|(name, value)| format!("{name:?}:{}", exact(value.get())))
            .collect();
        format!("{{{}}}", members.join(","))
    } else if json.starts_with('[') {
        let items: Vec<Box<RawValue>> = serde_json::from_str(json).unwrap();
        let items: Vec<_> = items.iter().map(|item| exact(item.get())).collect();
        format!("[{}]", items.join(","))
    } else if json.starts_with('"') {
        let text: String = serde_json::from_str(json).unwrap();
        format!("{text:?}")
    } else {
        json.to_owned()
    }
}
