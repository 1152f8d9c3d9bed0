//! JSON merge patches (RFC 7396) of views.

use serde::Serialize;
use serde_json::Value;
use switchboard_catalog::merge_patch;
use switchboard_runtime::problem::Problem;

use super::documents::invalid;

/// The view after a patch, without its read-only members. The patch must not change those.
pub(crate) fn apply(
    view: &impl Serialize,
    patch: Value,
    read_only: &[&str],
) -> Result<Value, Problem> {
    let before = serde_json::to_value(view).unwrap_or(Value::Null);
    apply_to_value(&before, patch, read_only)
}

fn apply_to_value(before: &Value, patch: Value, read_only: &[&str]) -> Result<Value, Problem> {
    if !patch.is_object() {
        return Err(invalid(
            "",
            "A merge patch must be an object with the members to change.",
        ));
    }
    let mut after = before.clone();
    merge_patch::apply(&mut after, patch);
    if let Some(members) = after.as_object_mut() {
        for name in read_only {
            // A read-only member that is null may be missing.
            let value = members.remove(*name).unwrap_or(Value::Null);
            if before.get(*name) != Some(&value) {
                let detail = format!("`/{name}` is read-only; omit it.");
                return Err(invalid(&format!("/{name}"), detail));
            }
        }
    }
    Ok(after)
}
