//! What a character card says that templates have no field for.
//! Never: a meaning given to it; it is kept and given back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What a character card says that templates have no field for: kept, and given back when it is exported. 262144
/// bytes at most, written as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CardRest {
    /// Members of the card's `data`, such as `creator`, `creator_notes`, `post_history_instructions`,
    /// `character_book` and `extensions`; none for which templates have a field.
    #[schema(value_type = Object)]
    pub data: Map<String, Value>,
    /// Members beside `data`, which the specification does not know.
    #[schema(value_type = Object)]
    pub root: Map<String, Value>,
}
