//! Pages of lists: how many, and where the next one begins.
//! Never: a page without an end.

use http::StatusCode;
use serde::Deserialize;
use switchboard_runtime::problem::Problem;
use utoipa::{IntoParams, ToSchema};

const DEFAULT_LIMIT: u16 = 50;
pub(crate) const LARGEST_LIMIT: u16 = 200;

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

/// The number of elements of a page, checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(u16);

impl Limit {
    pub(crate) fn new(limit: u16) -> Result<Self, Problem> {
        if (1..=LARGEST_LIMIT).contains(&limit) {
            return Ok(Self(limit));
        }
        Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid_query",
            "Invalid query",
            format!("`limit` must be from 1 to {LARGEST_LIMIT}."),
        ))
    }

    /// How many a list without a next page has.
    pub(crate) fn most(self) -> u32 {
        self.0.into()
    }

    /// How many to ask for: one more than a page tells whether another page follows.
    pub(crate) fn probe(self) -> u32 {
        u32::from(self.0).saturating_add(1)
    }

    /// The page out of what was found, and where the next one begins.
    pub(crate) fn cut<T, Id>(
        self,
        mut found: Vec<T>,
        id: impl Fn(&T) -> Id,
    ) -> (Vec<T>, Option<Id>) {
        let more = found.len() > usize::from(self.0);
        found.truncate(self.0.into());
        let next = found.last().filter(|_| more).map(id);
        (found, next)
    }
}

pub(crate) const fn default_limit() -> u16 {
    DEFAULT_LIMIT
}
