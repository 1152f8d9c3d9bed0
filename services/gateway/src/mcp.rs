//! Devices and NPCs as Model Context Protocol servers over Streamable HTTP, in both revisions and without sessions.
//! Never: state that a second replica would miss, or a request taken before its sender is known.

mod access;
mod binding;
mod book_uri;
mod books;
mod catalogues;
mod changes;
mod content;
mod encoding;
mod era;
mod input;
mod knowledge;
mod listeners;
mod listing;
mod metadata;
mod notices;
mod npc;
mod npc_changes;
mod param_headers;
mod pictures;
mod plain_call;
mod prompts;
mod resources;
mod server;
mod session;
mod sites;
mod stream;
mod subscription;
mod target;
mod tool_call;
mod toolset;
mod toolsets;
mod trace;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Request, State},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderValue, StatusCode, header};
use http_body_util::Full;
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::never::NeverSessionManager,
};
use switchboard_identity::Caller;
use switchboard_protocol::id::{DeviceId, DeviceKey};
use switchboard_runtime::{
    problem::{self, Path, Problem},
    shutdown::Shutdown,
};

use crate::{Config, Gateway};
use access::{Reach, Visit};
use catalogues::Catalogues;
use encoding::Encoding;
use input::Seal;
use listeners::Listeners;
use metadata::Publication;
use pictures::{Pictures, Share};
use server::Server;
use session::{Errand, Session, UnderWay};
use sites::Sites;
use target::NamedDevices;
use tool_call::Pace;
use toolsets::Toolsets;

pub(crate) use listeners::watch as watch_listeners;
pub use sites::{AllowedHost, AllowedOrigin};

type Service = StreamableHttpService<Server, NeverSessionManager>;

/// The protocol's own implementation, for callers with the scope `read` and for those without.
struct Services {
    reading: Service,
    calling: Service,
}

/// What the MCP endpoints of one gateway share.
pub(crate) struct Mcp {
    sites: Arc<Sites>,
    publication: Publication,
    toolsets: Toolsets,
    named_devices: NamedDevices,
    pictures: Pictures,
    seal: Seal,
    catalogues: Catalogues,
    listeners: Arc<Listeners>,
    followed_limit: usize,
    under_way: UnderWay,
    /// Listeners have nothing to finish: they go when draining begins, so that requests can end in peace.
    shutdown: Shutdown,
}

impl Mcp {
    pub(crate) fn new(config: &Config, shutdown: &Shutdown) -> Self {
        let sites = Sites::new(config);
        Self {
            publication: Publication::new(config, &sites),
            sites,
            toolsets: Toolsets::new(),
            named_devices: NamedDevices::new(),
            pictures: Pictures::new(),
            seal: Seal::default(),
            catalogues: Catalogues::default(),
            listeners: Listeners::new(config.mcp_listeners_per_caller),
            followed_limit: config.mcp_resources_per_listener,
            under_way: UnderWay::default(),
            shutdown: shutdown.clone(),
        }
    }
}

/// The routes of the MCP endpoints.
pub(crate) fn router(config: &Config, gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let admit = middleware::from_fn_with_state(Arc::clone(gateway), access::admit);
    let endpoints = Router::new()
        .route("/mcp", get(listen_all).post(serve_all))
        .route("/mcp/devices/{id}", get(listen_device).post(serve_device))
        .route("/mcp/npcs/{id}", get(listen_npc).post(serve_npc))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(Extension(Arc::new(services(config, gateway))))
        .layer(admit);
    let published = format!("{}/{{*path}}", metadata::WELL_KNOWN);
    let routes = endpoints
        .route(metadata::WELL_KNOWN, get(metadata::show))
        .route(&published, get(metadata::show));
    // Outside of the gate: a browser sends no credential with its preflight, and a page is to read why it was refused.
    match gateway.mcp.sites.cors() {
        Some(cors) => routes.layer(cors),
        None => routes,
    }
}

fn services(config: &Config, gateway: &Arc<Gateway>) -> Services {
    let service = |reads| {
        // Hosts and origins are looked at by the gate, whatever the method.
        let settings = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(config.http_body_limit_bytes)
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let server = Server::new(Arc::clone(gateway), reads);
        let sessions = Arc::new(NeverSessionManager::default());
        StreamableHttpService::new(move || Ok(server.clone()), sessions, settings)
    };
    Services {
        reading: service(true),
        calling: service(false),
    }
}

impl Services {
    fn of(&self, visit: &Visit) -> &Service {
        match visit.reads() {
            Some(_) => &self.reading,
            None => &self.calling,
        }
    }
}

async fn serve_device(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(services): Extension<Arc<Services>>,
    Path(device): Path<DeviceId>,
    request: Request,
) -> Result<Response, Problem> {
    serve(&gateway, &services, at_device(caller, device), request).await
}

async fn serve_all(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(services): Extension<Arc<Services>>,
    request: Request,
) -> Result<Response, Problem> {
    serve(&gateway, &services, at_all(caller), request).await
}

async fn serve_npc(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Extension(services): Extension<Arc<Services>>,
    Path(npc): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let visit = at_npc(&gateway, caller, &npc).await?;
    serve(&gateway, &services, visit, request).await
}

async fn listen_device(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Path(device): Path<DeviceId>,
    request: Request,
) -> Result<Response, Problem> {
    let visit = at_device(caller, device);
    stream::open(&gateway, &visit, request.uri().clone(), request.headers()).await
}

async fn listen_all(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let visit = at_all(caller);
    stream::open(&gateway, &visit, request.uri().clone(), request.headers()).await
}

async fn listen_npc(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Path(npc): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let visit = at_npc(&gateway, caller, &npc).await?;
    stream::open(&gateway, &visit, request.uri().clone(), request.headers()).await
}

const fn at_all(caller: Caller) -> Visit {
    Visit {
        caller,
        reach: Reach::All,
    }
}

fn at_device(caller: Caller, device: DeviceId) -> Visit {
    let org = caller.org;
    Visit {
        caller,
        reach: Reach::Device(DeviceKey { org, device }),
    }
}

async fn at_npc(gateway: &Gateway, caller: Caller, npc: &str) -> Result<Visit, Problem> {
    let reach = Reach::Npc(npc::find(gateway, caller.org, npc).await?);
    Ok(Visit { caller, reach })
}

/// Hands the request to the protocol's own implementation, with what it needs to know of the sender.
async fn serve(
    gateway: &Arc<Gateway>,
    services: &Services,
    visit: Visit,
    request: Request,
) -> Result<Response, Problem> {
    let encoding = Encoding::of(request.headers())?;
    let (mut head, body) = problem::read_whole(request).await?;
    if let Some(answer) = plain_call::answer(gateway, &visit, &head, &body).await {
        return Ok(answer);
    }
    let body = match encoding.read(&mut head.headers, body) {
        Ok(body) => body,
        Err(error) => return encoding.write(encoding::unreadable(&error)).await,
    };
    let errand = if era::is_modern_head(&head.headers) {
        Errand::None
    } else {
        Errand::of(&body)
    };
    if let Some(session) = Session::of(&head.headers) {
        if let Errand::TakeBack(request) = &errand {
            session::take_back(gateway, &visit, &session, request).await;
        }
        head.extensions.insert(session);
    }
    if subscription::is_meant(&head.headers) {
        let how = (&head.headers, encoding);
        match subscription::admit(gateway, &visit, how, &body).await {
            Ok(subscription) => head.extensions.insert(subscription),
            Err(refused) => return encoding.write(refused).await,
        };
    }
    let (pace, share) = (Pace::default(), Share::default());
    let service = services.of(&visit);
    head.extensions.insert(encoding);
    head.extensions.insert(visit);
    head.extensions.insert(pace.clone());
    head.extensions.insert(share.clone());
    let request = Request::from_parts(head, Full::new(body.clone()));
    let response = service.handle(request).await;
    let mut response = if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        encoding::no_message(&body)
    } else {
        response.into_response()
    };
    if errand == Errand::Begin && response.status() == StatusCode::OK {
        response.headers_mut().extend([Session::begin()]);
    }
    if let Some(refused) = pace.refused() {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let seconds = HeaderValue::from(refused.retry_after_s());
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    share.until_sent(encoding.write(response).await?).await
}
