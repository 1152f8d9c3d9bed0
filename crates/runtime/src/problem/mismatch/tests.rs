//! What callers read about bodies that do not fit.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the test only needs the shape")]
struct Order {
    name: String,
    #[serde(default)]
    lines: Vec<u8>,
    size: Option<Size>,
    pair: Option<(u8, u8)>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Size {
    Small,
    Large,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "the test only needs the shape")]
enum Either {
    Number(u8),
    Text(String),
}

fn check<T: DeserializeOwned + std::fmt::Debug>(body: &str, pointer: &str, detail: &str) {
    let mut source = serde_json::Deserializer::from_str(body);
    let error = serde_path_to_error::deserialize::<_, T>(&mut source).unwrap_err();
    let problem = mismatch("", error.path(), error.inner());
    assert_eq!(problem.pointer(), Some(pointer), "{body}");
    assert_eq!(problem.detail, detail, "{body}");
}

#[test]
fn mismatch_is_explained_in_the_terms_of_json() {
    check::<Order>("{}", "/name", "`/name` is required.");
    check::<Order>("[]", "", "The body must be an object, and has 0 elements.");
    check::<Order>(
        "3",
        "",
        "The body must be an object, and is the number `3`.",
    );
    check::<Order>(
        r#"{"name":3}"#,
        "/name",
        "`/name` must be a string, and is the number `3`.",
    );
    check::<Order>(
        r#"{"name":null}"#,
        "/name",
        "`/name` must be a string, and is null.",
    );
    check::<Order>(
        r#"{"name":"","lines":[1,300]}"#,
        "/lines/1",
        "`/lines/1` must be an integer from 0 to 255, and is the number `300`.",
    );
    check::<Order>(
        r#"{"name":"","lines":{"a":1}}"#,
        "/lines",
        "`/lines` must be an array, and is an object.",
    );
    check::<Order>(
        r#"{"name":"","size":"huge"}"#,
        "/size",
        "`/size` must be `small` or `large`, and is `huge`.",
    );
    check::<Order>(
        r#"{"name":"","pair":[1]}"#,
        "/pair",
        "`/pair` must be an array, and has 1 elements.",
    );
    check::<Order>(
        r#"{"nmae":""}"#,
        "/nmae",
        "`/nmae` is not known; expected one of `name`, `lines`, `size`, `pair`.",
    );
    check::<Order>(
        r#"{"name":"","name":""}"#,
        "",
        "The body has the member `name` twice.",
    );
    check::<Either>(
        "[]",
        "",
        "The body has none of the forms that are accepted here.",
    );
    check::<BTreeMap<String, u8>>(
        r#"{"a/b~c":true}"#,
        "/a~1b~0c",
        "`/a~1b~0c` must be an integer from 0 to 255, and is `true`.",
    );
}
