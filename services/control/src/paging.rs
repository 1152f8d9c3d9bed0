//! The query string that lists have in common.
//! Never: a page without an end.

use serde::Deserialize;
pub(crate) use switchboard_runtime::paging::{Limit, default_limit};
use utoipa::{IntoParams, ToSchema};

/// The query string of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paging<Id: ToSchema> {
    /// The most elements of the page.
    #[param(minimum = 1, maximum = 200, example = 50)]
    #[serde(default = "default_limit")]
    pub(crate) limit: u16,
    /// `next_cursor` of the page before.
    pub(crate) cursor: Option<Id>,
}
