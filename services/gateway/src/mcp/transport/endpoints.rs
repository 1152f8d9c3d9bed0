//! The routes of the MCP endpoints.
//!
//! A POST is answered by [`fast_path`] if it can, otherwise by rmcp. A GET opens the notification
//! [`stream`] of the revisions with a handshake.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{FromRequestParts as _, Request, State},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, request::Parts};
use http_body_util::Full;
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::never::NeverSessionManager,
};
use switchboard_identity::Caller;
use switchboard_protocol::id::DeviceId;
use switchboard_runtime::problem::{self, Path, Problem};

use super::{
    auth::{self, ClientContext, Endpoint},
    encoding::{self, Encoding},
    fast_path::{self, FastPath},
    metadata, protocol_version,
    reservation::Reservation,
    session::{self, SessionAction, SessionId},
    stream,
};
use crate::{
    Config, Gateway,
    mcp::{
        npc,
        server::Server,
        subscriptions::subscribe,
        tools::call::{RateLimitSignal, UnresolvedTool},
    },
};

type Service = StreamableHttpService<Server, NeverSessionManager>;

/// rmcp's services. A server declares its capabilities without knowing the caller, so callers
/// with the scope `read` have one of their own.
struct Services {
    with_read: Service,
    without_read: Service,
}

/// The path of an endpoint.
#[derive(Debug, Clone, Copy)]
enum Route {
    All,
    Device,
    Npc,
}

/// The routes of the MCP endpoints.
pub(crate) fn router(config: &Config, gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let admit = middleware::from_fn_with_state(Arc::clone(gateway), auth::admit);
    let services = Arc::new(Services::new(config, gateway));
    let endpoints = Router::new()
        .route("/mcp", endpoint(Route::All, &services))
        .route("/mcp/devices/{id}", endpoint(Route::Device, &services))
        .route("/mcp/npcs/{id}", endpoint(Route::Npc, &services))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(admit);
    let metadata_paths = format!("{}/{{*path}}", metadata::WELL_KNOWN);
    let routes = endpoints
        .route(metadata::WELL_KNOWN, get(metadata::get))
        .route(&metadata_paths, get(metadata::get));
    // Outside of `admit`: a preflight request has no credential, and pages can read refusals.
    match gateway.mcp.host_policy.cors() {
        Some(cors) => routes.layer(cors),
        None => routes,
    }
}

fn endpoint(route: Route, services: &Arc<Services>) -> MethodRouter<Arc<Gateway>> {
    let listen =
        move |State(gateway), Extension(caller), request| listen(gateway, caller, route, request);
    let services = Arc::clone(services);
    let serve = move |State(gateway), Extension(caller), request| {
        serve(gateway, caller, (route, services), request)
    };
    get(listen).post(serve)
}

impl Services {
    fn new(config: &Config, gateway: &Arc<Gateway>) -> Self {
        let service = |can_read| {
            // `auth::admit` checks hosts and origins for every method.
            let settings = StreamableHttpServerConfig::default()
                .with_legacy_session_mode(false)
                .with_json_response(true)
                .with_max_request_body_bytes(config.http_body_limit_bytes)
                .disable_allowed_hosts()
                .disable_allowed_origins();
            let server = Server::new(Arc::clone(gateway), can_read);
            let sessions = Arc::new(NeverSessionManager::default());
            StreamableHttpService::new(move || Ok(server.clone()), sessions, settings)
        };
        Self {
            with_read: service(true),
            without_read: service(false),
        }
    }

    fn select(&self, client: &ClientContext) -> &Service {
        match client.readable() {
            Some(_) => &self.with_read,
            None => &self.without_read,
        }
    }
}

/// The client of a request on this route.
async fn client(
    gateway: &Gateway,
    caller: Caller,
    route: Route,
    head: &mut Parts,
) -> Result<ClientContext, Problem> {
    let endpoint = match route {
        Route::All => Endpoint::All,
        Route::Device => {
            let Path(device) = Path::<DeviceId>::from_request_parts(head, &()).await?;
            Endpoint::Device(caller.device(device)?)
        }
        Route::Npc => {
            let Path(npc) = Path::<String>::from_request_parts(head, &()).await?;
            // Boxed: the future is large, and that of every request contains it.
            Endpoint::Npc(Box::pin(npc::find(gateway, caller.org, &npc)).await?)
        }
    };
    Ok(ClientContext { caller, endpoint })
}

async fn listen(
    gateway: Arc<Gateway>,
    caller: Caller,
    route: Route,
    request: Request,
) -> Result<Response, Problem> {
    let (mut head, _) = request.into_parts();
    let client = client(&gateway, caller, route, &mut head).await?;
    stream::open(&gateway, &client, &head).await
}

async fn serve(
    gateway: Arc<Gateway>,
    caller: Caller,
    (route, services): (Route, Arc<Services>),
    request: Request,
) -> Result<Response, Problem> {
    let (mut head, body) = request.into_parts();
    let client = client(&gateway, caller, route, &mut head).await?;
    let encoding = Encoding::negotiate(&head.headers)?;
    let (mut head, body) = problem::read_body(Request::from_parts(head, body)).await?;
    match fast_path::respond(&gateway, &client, &head, &body).await {
        FastPath::Answered(response) => return Ok(response),
        FastPath::Unresolved(error) => {
            head.extensions.insert(UnresolvedTool(error));
        }
        FastPath::NotTaken => {}
    }
    // Boxed: the future is large, and that of every request contains it.
    Box::pin(serve_by_rmcp(
        &gateway,
        client,
        &services,
        encoding,
        (head, body),
    ))
    .await
}

/// Serves a request that is not on the fast path.
async fn serve_by_rmcp(
    gateway: &Arc<Gateway>,
    client: ClientContext,
    services: &Services,
    encoding: Encoding,
    (mut head, body): (Parts, Bytes),
) -> Result<Response, Problem> {
    let body = match encoding.decode(&mut head.headers, body) {
        Ok(body) => body,
        Err(error) => return encoding.encode(encoding::undecodable(&error)).await,
    };
    let action = if protocol_version::is_stateless_head(&head.headers) {
        SessionAction::None
    } else {
        SessionAction::parse(&body)
    };
    if let Some(session) = SessionId::from_headers(&head.headers) {
        if let SessionAction::Cancel(request) = &action {
            session::cancel(gateway, &client, &session, request).await;
        }
        head.extensions.insert(session);
    }
    let service = services.select(&client);
    if subscribe::is_subscription(&head.headers) {
        let request = (&head, encoding);
        match subscribe::admit(gateway, &client, request, &body).await {
            Ok(subscription) => {
                // Without the client, whose NPC would stay in memory as long as the stream.
                head.extensions.insert(subscription);
                drop(client);
            }
            Err(refusal) => return encoding.encode(refusal).await,
        }
    } else {
        head.extensions.insert(client);
    }
    let starts_session = action == SessionAction::Start;
    head.extensions.insert(encoding);
    forward(service, encoding, starts_session, (head, body)).await
}

/// Lets rmcp answer a request.
async fn forward(
    service: &Service,
    encoding: Encoding,
    starts_session: bool,
    (mut head, body): (Parts, Bytes),
) -> Result<Response, Problem> {
    let (rate_limit, reservation) = (RateLimitSignal::default(), Reservation::default());
    head.extensions.insert(rate_limit.clone());
    head.extensions.insert(reservation.clone());
    let request = Request::from_parts(head, Full::new(body.clone()));
    let response = service.handle(request).await;
    let mut response = if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        encoding::invalid_message(&body)
    } else {
        response.into_response()
    };
    if starts_session && response.status() == StatusCode::OK {
        response.headers_mut().extend([SessionId::generate()]);
    }
    if let Some(refused) = rate_limit.refusal() {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let seconds = HeaderValue::from(refused.retry_after_s());
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    let response = encoding.encode(response).await?;
    reservation.hold_until_sent(response).await
}
