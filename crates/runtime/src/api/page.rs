//! The page of the API. It loads resources of this process only.

use axum::{
    Router,
    http::{HeaderValue, header},
};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::{DOCUMENT, PAGE};

/// Content security policy of the page: only resources of this process.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
                      img-src 'self' data:; font-src 'self'; connect-src 'self'; frame-ancestors 'none'";

pub(super) fn routes() -> Router {
    let page = SwaggerUi::new(PAGE).config(
        Config::from(DOCUMENT)
            .validator_url("none")
            .persist_authorization(false),
    );
    let policy = SetResponseHeaderLayer::overriding(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    Router::from(page).layer(policy)
}
