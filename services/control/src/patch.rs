//! Merge patches (RFC 7396) of what is shown.
//! Never: a change of what nobody sets.

use serde::Serialize;
use serde_json::Value;
use switchboard_runtime::problem::Problem;

use crate::{document::invalid, merge_patch};

/// What is shown after a patch, without what is shown and not set, which must be as it was.
pub(crate) fn merged(
    shown: &impl Serialize,
    patch: Value,
    read_only: &[&str],
) -> Result<Value, Problem> {
    if !patch.is_object() {
        return Err(invalid(
            "",
            "A merge patch is an object with the members to change.",
        ));
    }
    let before = serde_json::to_value(shown).unwrap_or(Value::Null);
    let mut after = before.clone();
    merge_patch::apply(&mut after, patch);
    if let Some(members) = after.as_object_mut() {
        for name in read_only {
            // A member that is null may be left out as well.
            let kept = members.remove(*name).unwrap_or(Value::Null);
            if before.get(*name) != Some(&kept) {
                let detail = format!("`/{name}` cannot be changed; leave it out.");
                return Err(invalid(&format!("/{name}"), detail));
            }
        }
    }
    Ok(after)
}
