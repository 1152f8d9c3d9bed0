//! The resources of the API, and the routes that serve them.

pub(crate) mod api_keys;
pub(crate) mod audit_log;
mod jwks;
pub(crate) mod memories;
mod nodes;
pub(crate) mod npcs;
pub(crate) mod orgs;
mod pictures;
mod recordings;
pub(crate) mod session;
pub(crate) mod skills_books;
pub(crate) mod templates;
pub(crate) mod tokens;
mod usage;
pub(crate) mod voices;
pub(crate) mod webhooks;

use std::{sync::Arc, time::Duration};

use axum::extract::DefaultBodyLimit;
use switchboard_runtime::http::LargerBody;
use utoipa::OpenApi;
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouterExt},
    routes,
};

use crate::Control;

pub use session::SignInCode;

/// How long a client may take to send a body that is larger than usual.
const LARGER_BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The paths whose bodies may be larger than those of other requests. The server that serves the
/// router applies these limits.
pub const LARGER_BODIES: &[LargerBody] = &[
    LargerBody {
        path: pictures::PATH,
        bytes: pictures::MAX_BYTES,
        read_timeout: LARGER_BODY_READ_TIMEOUT,
    },
    LargerBody {
        path: templates::cards::PATH,
        bytes: templates::cards::MAX_BYTES,
        read_timeout: LARGER_BODY_READ_TIMEOUT,
    },
    LargerBody {
        path: skills_books::PART_PATHS,
        bytes: skills_books::MAX_PART_BYTES,
        read_timeout: LARGER_BODY_READ_TIMEOUT,
    },
    LargerBody {
        path: voices::PATH,
        bytes: voices::MAX_BYTES,
        read_timeout: LARGER_BODY_READ_TIMEOUT,
    },
];

/// Schemas that only query parameters use; no request or response body refers to them.
#[derive(OpenApi)]
#[openapi(components(schemas(skills_books::query::SearchQuery)))]
struct ParameterSchemas;

/// All routes, each with its part of the OpenAPI document.
pub(crate) fn routes() -> OpenApiRouter<Arc<Control>> {
    let pictures = routes!(pictures::create).layer(DefaultBodyLimit::max(pictures::MAX_BYTES));
    let import = routes!(templates::cards::import);
    let import = import.layer(DefaultBodyLimit::max(templates::cards::MAX_BYTES));
    let parts = routes!(skills_books::upload_part)
        .layer(DefaultBodyLimit::max(skills_books::MAX_PART_BYTES));
    let voices = routes!(voices::create).layer(DefaultBodyLimit::max(voices::MAX_BYTES));
    let sign_in = routes!(session::create, session::get, session::delete)
        .layer(DefaultBodyLimit::max(session::MAX_BYTES));
    OpenApiRouter::with_openapi(ParameterSchemas::openapi())
        .routes(sign_in)
        .routes(routes!(orgs::create, orgs::operator::list))
        .routes(routes!(orgs::operator::update))
        .routes(routes!(orgs::get, orgs::update))
        .routes(routes!(api_keys::create, api_keys::list))
        .routes(routes!(api_keys::revoke))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(audit_log::list))
        .routes(routes!(jwks::get))
        .routes(routes!(nodes::list))
        .routes(routes!(usage::get))
        .routes(routes!(usage::by::get))
        .routes(routes!(templates::create, templates::list))
        .routes(routes!(
            templates::get,
            templates::update,
            templates::delete
        ))
        .routes(import)
        .routes(routes!(templates::cards::export))
        .routes(routes!(memories::create, memories::list))
        .routes(routes!(memories::update, memories::delete))
        .routes(routes!(npcs::create, npcs::list))
        .routes(routes!(npcs::get, npcs::update, npcs::delete))
        .routes(routes!(npcs::memories::create, npcs::memories::list))
        .routes(pictures)
        .routes(routes!(pictures::list))
        .routes(routes!(pictures::get, pictures::delete))
        .routes(routes!(pictures::content))
        .routes(routes!(recordings::list, recordings::delete_all))
        .routes(routes!(recordings::get, recordings::delete))
        .routes(routes!(recordings::content))
        .routes(routes!(skills_books::create, skills_books::list))
        .routes(routes!(skills_books::get, skills_books::delete))
        .routes(parts)
        .routes(routes!(skills_books::finish))
        .routes(routes!(skills_books::cancel))
        .routes(routes!(skills_books::search))
        .routes(voices)
        .routes(routes!(voices::list::list))
        .routes(routes!(voices::get, voices::update, voices::delete))
        .routes(routes!(voices::preview::preview))
        .routes(routes!(voices::train))
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::get, webhooks::update, webhooks::delete))
        .routes(routes!(webhooks::rotation::rotate))
        .routes(routes!(webhooks::deliveries::test))
        .routes(routes!(webhooks::deliveries::list))
        .routes(routes!(webhooks::deliveries::get))
        .routes(routes!(webhooks::deliveries::redeliver))
}
