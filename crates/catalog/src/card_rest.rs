//! The members of a character card that templates have no field for.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The members of an imported character card that templates have no field for. They are stored
/// uninterpreted and included in exports. At most 262144 bytes of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CardRest {
    /// Members of the card's `data` without a corresponding field, such as `creator`,
    /// `creator_notes`, `post_history_instructions`, `character_book` and `extensions`.
    #[schema(value_type = Object)]
    pub data: Map<String, Value>,
    /// Members beside `data`, outside the card specification.
    #[schema(value_type = Object)]
    pub root: Map<String, Value>,
}
