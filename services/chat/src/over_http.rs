//! `POST /v1/npcs/{id}/chat`: words to an NPC from somebody without a device, and its answer while it is given.
//! Never: an answer that goes on when nobody listens any more.

pub(crate) mod asked;
mod events;

use std::sync::Arc;

use axum::{
    Router,
    extract::{FromRequestParts, State},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use switchboard_identity::{Authenticator, Caller};
use switchboard_protocol::{access::Scope, id::NpcId};
use switchboard_runtime::{
    problem::{self, Json, Path, Problem},
    shutdown::Shutdown,
    span,
};
use switchboard_store::{Npc, StoreError};
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    Chat,
    answering::{self, End},
    conversation::{Conversation, Exchange},
    hearer::Hearer,
    learning,
    line::{Line, line},
    lines::Busy,
    metrics::{Metrics, Shed, TurnEnd},
    question::{Asker, Question},
    turns_under_way::Counted,
};
use asked::{Asked, NewWords};
use events::{Ended, Events};

/// What the routes are answered from.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) chat: Arc<Chat>,
    pub(crate) authenticator: Authenticator,
    pub(crate) shutdown: Shutdown,
}

/// A caller with the scope `call`: an answer may call devices.
pub(crate) struct MayTalk(Caller);

impl FromRequestParts<Site> for MayTalk {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Problem> {
        let caller = site.authenticator.authenticate(&parts.headers).await?;
        caller.require(Scope::Call)?;
        let admitted = site.chat.rates.take(&caller.id());
        admitted.inspect_err(|_| site.chat.metrics.shed.inc(Shed::CallerRate))?;
        Ok(Self(caller))
    }
}

pub(crate) fn router(site: Site) -> Router {
    let (routes, _) = routes().split_for_parts();
    routes
        .method_not_allowed_fallback(problem::method_not_allowed)
        .with_state(site)
}

/// What only parameters are made of.
#[derive(OpenApi)]
#[openapi(components(schemas(NpcId)))]
struct OfParameters;

pub(crate) fn routes() -> OpenApiRouter<Site> {
    OpenApiRouter::with_openapi(OfParameters::openapi()).routes(routes!(talk))
}

/// Says something to an NPC, and hears its answer as it is given: server-sent events `text`, `call`, and one `end` or `error`.
///
/// What was said before belongs to it under the same `conversation_id`. The NPC uses the services of its devices. Whoever stops
/// listening stops the answer.
#[utoipa::path(
    post, path = "/v1/npcs/{id}/chat", tag = "Conversations", operation_id = "talkToNpc",
    params(("id" = NpcId, Path, description = "The NPC")),
    request_body(content = NewWords),
    responses((status = 200, content_type = "text/event-stream", body = String, description = "The answer, event by event")),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["invalid_path", "unknown_npc", "too_many_turns", "rate_limited", "store_unavailable"]))),
)]
pub(crate) async fn talk(
    State(site): State<Site>,
    MayTalk(caller): MayTalk,
    Path(id): Path<NpcId>,
    Json(words): Json<NewWords>,
) -> Result<Response, Problem> {
    let asked = Asked::try_from(words)?;
    let npc = npc(&site, &caller, id).await?;
    let taken = site.chat.lines.take(caller.org);
    let taken = taken.map_err(|busy| too_many_turns(&site.chat.metrics, busy))?;
    let question = Question {
        org: caller.org,
        asker: Asker::Person {
            conversation: asked.conversation,
            subject: asked.subject,
        },
        text: asked.text,
        npc: Some(Arc::new(npc)),
    };
    let hung_up = CancellationToken::new();
    let (line, listener) = line(hung_up.clone());
    let events = Events::new(listener, asked.conversation, hung_up);
    let ended = events.end();
    let (chat, ending) = (Arc::clone(&site.chat), site.shutdown.clone());
    let span = span!(
        "turn",
        otel.status_code = Empty,
        switchboard.org.id = %caller.org,
        switchboard.npc.id = %id,
        switchboard.turn.end = Empty,
        gen_ai.operation.name = "invoke_agent",
    );
    site.shutdown.spawn_in(span, async move {
        let (end, conversation) = tokio::select! {
            end = answer(&chat, &question, &line) => end,
            () = ending.stopping() => (Ended::Stopping, None),
        };
        ended.tell(end);
        drop((line, taken));
        if let Some(conversation) = conversation {
            let key = question.key();
            tokio::select! {
                () = learning::condense(&chat, &key, &conversation) => {}
                () = ending.stopping() => {}
            }
        }
    });
    let mut response = events.into_response();
    let headers = response.headers_mut();
    // A proxy that gathers what it passes on would gather the whole answer.
    headers.insert("x-accel-buffering", header::HeaderValue::from_static("no"));
    Ok(response)
}

/// How the answer ended, and the conversation with it.
async fn answer(chat: &Chat, question: &Question, line: &Line) -> (Ended, Option<Conversation>) {
    let under_way = Counted::new(&chat.metrics.under_way);
    let exchange = Exchange::begin(Uuid::now_v7().to_string(), &question.text);
    let hearer = Hearer::caller(line, exchange.clone());
    let end = tokio::select! {
        end = answering::answer(chat, question, &exchange, &hearer) => Some(end),
        () = line.hung_up.cancelled() => None,
    };
    drop(under_way);
    chat.metrics.ended(match end {
        Some(End::Answered | End::LetGo) => TurnEnd::Answered,
        Some(End::Failed) => TurnEnd::Failed,
        None => TurnEnd::Stopped,
    });
    let conversation = answering::close(chat, question, hearer, end.is_none()).await;
    let ended = match end {
        Some(End::Answered | End::LetGo) => Ended::Whole,
        Some(End::Failed) => Ended::NoAnswer,
        None => Ended::TooSlow,
    };
    (ended, conversation)
}

async fn npc(site: &Site, caller: &Caller, id: NpcId) -> Result<Npc, Problem> {
    let found = site.chat.store.npc(caller.org, id).await;
    let found = found.map_err(|error| unreadable(&error))?;
    found.ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "unknown_npc",
            "Unknown NPC",
            format!("There is no NPC {id} in this organisation."),
        )
    })
}

fn unreadable(error: &StoreError) -> Problem {
    problem::record_failed(
        error.is_unavailable(),
        &error.report(),
        "an NPC could not be looked up",
        "Who the NPC is cannot be read at the moment; nothing was said, and a retry is safe.",
    )
}

fn too_many_turns(metrics: &Metrics, busy: Busy) -> Problem {
    let (shed, status, detail) = match busy {
        Busy::Org => (
            Shed::OrgLines,
            StatusCode::TOO_MANY_REQUESTS,
            "As much is being answered here for this organisation as may be at a time; nothing was said, and a retry is safe.",
        ),
        Busy::All => (
            Shed::Lines,
            StatusCode::SERVICE_UNAVAILABLE,
            "As much is being answered here as can be at a time; nothing was said, and a retry is safe.",
        ),
    };
    metrics.shed.inc(shed);
    Problem::new(status, "too_many_turns", "Too many turns", detail).header(header::RETRY_AFTER, 1)
}
