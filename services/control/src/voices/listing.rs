//! The list of voices, and what it can be narrowed to.
//! Never: a page without an end.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use switchboard_runtime::{
    paging::{self, Cursor, Limit, List},
    problem::{Problem, Query},
};
use switchboard_store::{VoiceFilter, VoiceState};
use utoipa::{IntoParams, ToSchema};

use super::shape::ShownVoice;
use crate::{Control, access::Reader, error::ControlError};

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Voices {
    /// In the order of their sending.
    #[schema(max_items = 200)]
    voices: Vec<ShownVoice>,
    /// The `cursor` of the next page; null after the last one.
    next_cursor: Option<Cursor>,
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
    cursor: Option<Cursor>,
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

/// The longest tag and the longest name of a provider that are asked for, in characters.
const LONGEST_LANGUAGE: usize = 35;
const LONGEST_PROVIDER: usize = 64;

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
    for (name, asked, longest) in [
        ("language", &listing.language, LONGEST_LANGUAGE),
        ("provider", &listing.provider, LONGEST_PROVIDER),
    ] {
        if asked
            .as_ref()
            .is_some_and(|text| text.chars().count() > longest)
        {
            let detail = format!("`{name}` must have {longest} characters at most.");
            return Err(Problem::invalid_query(detail).into());
        }
    }
    let list = List::of("/v1/voices", reader);
    let after = list.after(listing.cursor)?;
    // No voice has a language or a provider with this character, which the database does not take.
    let text = |asked: Option<String>| asked.map(|text| text.replace('\0', "\u{fffd}"));
    let filter = VoiceFilter {
        state: listing.state,
        language: text(listing.language),
        provider: text(listing.provider),
    };
    let found = control
        .store
        .voices(reader, &filter, after, limit.probe())
        .await?;
    let (page, next_cursor) = limit.cut(found, |voice| list.behind(voice.id));
    Ok(axum::Json(Voices {
        voices: page.into_iter().map(ShownVoice::from).collect(),
        next_cursor,
    }))
}
