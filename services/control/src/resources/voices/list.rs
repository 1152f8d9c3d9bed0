//! `GET /v1/voices`: the list of voices, with filters.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use switchboard_runtime::{
    paging::{self, Cursor, JsonElements, Limit, List},
    problem::{Problem, Query},
};
use switchboard_store::{VoiceFilter, VoiceState};
use utoipa::{IntoParams, ToSchema};

use super::schema::VoiceView;
use crate::{
    Control,
    http::{auth::Reader, error::ControlError, response::JsonResponse},
};

/// A page of the list.
#[derive(Serialize, ToSchema)]
pub(crate) struct Voices {
    /// Oldest first.
    #[schema(max_items = 200, value_type = Vec<VoiceView>)]
    voices: JsonElements,
    /// The `cursor` of the next page; null on the last page.
    next_cursor: Option<Cursor>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Maximum number of elements in the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "paging::default_limit")]
    limit: u16,
    /// `next_cursor` of the previous page.
    cursor: Option<Cursor>,
    /// Only voices in this state.
    #[param(inline, example = "ready")]
    state: Option<VoiceState>,
    /// Only voices with this language; `de` includes `de-AT`.
    #[param(max_length = 35, example = "de")]
    language: Option<String>,
    /// Only voices of this provider.
    #[param(max_length = 64, example = "embedded")]
    provider: Option<String>,
}

/// The maximum lengths of filters, in characters.
const MAX_LANGUAGE_CHARS: usize = 35;
const MAX_PROVIDER_CHARS: usize = 64;

/// Lists the voices of the caller, and public ones.
#[utoipa::path(
    get, path = "/v1/voices", tag = "Voices", operation_id = "listVoices",
    params(ListParams),
    responses((status = 200, body = Voices, description = "A page of voices")),
    security(("credential" = ["read"]), ("operator" = [])),
    extensions(("x-problems" = json!(["overloaded", "store_unavailable"]))),
)]
pub(crate) async fn list(
    State(control): State<Arc<Control>>,
    Reader(reader): Reader,
    Query(params): Query<ListParams>,
) -> Result<JsonResponse, ControlError> {
    let limit = Limit::new(params.limit)?;
    for (name, filter, max) in [
        ("language", &params.language, MAX_LANGUAGE_CHARS),
        ("provider", &params.provider, MAX_PROVIDER_CHARS),
    ] {
        if filter
            .as_ref()
            .is_some_and(|text| text.chars().count() > max)
        {
            let detail = format!("`{name}` must have at most {max} characters.");
            return Err(Problem::invalid_query(detail).into());
        }
    }
    let list = List::new("/v1/voices", reader);
    let after = list.position(params.cursor)?;
    // The database rejects U+0000, and no voice has a language or provider with it.
    let text = |filter: Option<String>| filter.map(|text| text.replace('\0', "\u{fffd}"));
    let filter = VoiceFilter {
        state: params.state,
        language: text(params.language),
        provider: text(params.provider),
    };
    let found = control
        .store
        .voices(reader, &filter, after, limit.fetch_count())
        .await?;
    let (voices, next_cursor) =
        limit.json_page(found, |voice| list.cursor(voice.id), VoiceView::from);
    Ok(JsonResponse::page(
        &control,
        reader,
        &Voices {
            voices,
            next_cursor,
        },
    )?)
}
