//! JSON merge patches (RFC 7396).

use serde_json::{Map, Value};

/// Applies the patch: null members are removed, objects are merged, all other values are replaced.
/// The recursion is as deep as the patch, whose depth its parser limits.
pub fn apply(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(members) = target else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(&name);
        } else {
            apply(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// The patch that turns `from` into `to`; `None` if they are equal. A member that is null in `to`
/// is absent after the patch, because a patch cannot set null. The recursion is as deep as both
/// values.
#[must_use]
pub fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Some(to.clone());
    };
    let removed = from.keys().filter(|name| !to.contains_key(*name));
    let mut patch: Map<String, Value> = removed.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in to {
        let change = match from.get(name) {
            Some(before) => difference(before, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn difference_applied_yields_target() {
        fn check(from: Value, to: Value, expected: Option<Value>) {
            let patch = difference(&from, &to);
            assert_eq!(patch, expected);
            let mut patched = from;
            if let Some(patch) = patch {
                apply(&mut patched, patch);
            }
            assert_eq!(patched, to);
        }
        check(json!({"a": [1]}), json!({"a": [1]}), None);
        check(
            json!({"a": 1}),
            json!({"b": 1}),
            Some(json!({"a": null, "b": 1})),
        );
        check(
            json!({"a": {"b": 1, "c": 2}, "d": 3}),
            json!({"a": {"b": 1, "c": 4}, "d": 3}),
            Some(json!({"a": {"c": 4}})),
        );
        check(
            json!({"a": [1, 2]}),
            json!({"a": [1]}),
            Some(json!({"a": [1]})),
        );
        check(
            json!({"a": 1}),
            json!({"a": {"b": 1}}),
            Some(json!({"a": {"b": 1}})),
        );
    }

    /// The cases of RFC 7396, appendix A.
    #[test]
    fn patch_applied_matches_rfc_examples() {
        fn check(mut target: Value, patch: Value, expected: Value) {
            apply(&mut target, patch);
            assert_eq!(target, expected);
        }
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(
            json!({"a": "b"}),
            json!({"b": "c"}),
            json!({"a": "b", "b": "c"}),
        );
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(
            json!({"a": "b", "b": "c"}),
            json!({"a": null}),
            json!({"b": "c"}),
        );
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        );
        check(
            json!({"a": [{"b": "c"}]}),
            json!({"a": [1]}),
            json!({"a": [1]}),
        );
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a": "b"}), json!(["c"]), json!(["c"]));
        check(json!({"a": "foo"}), json!(null), json!(null));
        check(
            json!({"e": null}),
            json!({"a": 1}),
            json!({"e": null, "a": 1}),
        );
        check(
            json!([1, 2]),
            json!({"a": "b", "c": null}),
            json!({"a": "b"}),
        );
        check(
            json!({}),
            json!({"a": {"bb": {"ccc": null}}}),
            json!({"a": {"bb": {}}}),
        );
    }
}
