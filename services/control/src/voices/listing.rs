//! The list of voices, and what it can be narrowed to.
//! Never: a page without an end.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::VoiceId;
use switchboard_runtime::problem::Query;
use switchboard_store::{VoiceFilter, VoiceState};
use utoipa::{IntoParams, ToSchema};

use super::shape::ShownVoice;
use crate::{
    Control,
    access::Reader,
    error::ControlError,
    paging::{self, Limit},
};

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Voices {
    /// In the order of their sending.
    #[schema(max_items = 200)]
    voices: Vec<ShownVoice>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<VoiceId>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the page before.
    cursor: Option<VoiceId>,
    /// Only those in this state.
    #[param(inline, example = "ready")]
    state: Option<VoiceState>,
    /// Only those that speak this language: `de` finds `de-AT` as well.
    #[param(max_length = 35, example = "de")]
    language: Option<String>,
    /// Only those that this provider makes.
    #[param(max_length = 64, example = "embedded")]
    provider: Option<String>,
}

/// Lists own voices and public ones.
#[utoipa::path(
    get, path = "/v1/voices", tag = "Voices", operation_id = "listVoices",
    params(Listing),
    responses((status = 200, body = Voices, description = "A page of voices")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(listing): Query<Listing>,
) -> Result<axum::Json<Voices>, ControlError> {
    let limit = Limit::new(listing.limit)?;
    // No voice has a language or a provider with this character, which the database does not take.
    let text = |asked: Option<String>| asked.map(|text| text.replace('\0', "\u{fffd}"));
    let filter = VoiceFilter {
        state: listing.state,
        language: text(listing.language),
        provider: text(listing.provider),
    };
    let found = control
        .store
        .voices(reader, &filter, listing.cursor, limit.probe())
        .await?;
    let (page, next_cursor) = limit.cut(found, |voice| voice.id);
    Ok(axum::Json(Voices {
        voices: page.into_iter().map(ShownVoice::from).collect(),
        next_cursor,
    }))
}
