//! `POST /v1/npcs/{id}/chat`: a message to an NPC, answered as a stream of server-sent events.

pub(crate) mod channel;
pub(crate) mod document;
mod events;
pub(crate) mod request;

use std::sync::Arc;

use axum::{
    Router,
    extract::{FromRequestParts, State},
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use switchboard_identity::{Authenticator, Caller};
use switchboard_phrases::Language;
use switchboard_protocol::{id::NpcId, message::Picture, token::Scope};
use switchboard_runtime::{
    budget::{self, Exhausted, Owner},
    problem::{self, Json, Path, Problem, ProblemKind},
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
    active_turns::InFlightGuard,
    answer::{self, AnswerEnd, sink::TurnSink},
    conversation::model::Conversation,
    memory::job,
    metrics::{Metrics, RejectReason, TurnEnd},
    picture::ShownPicture,
    user_message::{self, Participant, UserMessage},
};

use channel::{SseSender, channel};
use events::{Events, StreamEnd};
use request::{ChatRequest, ValidRequest};

/// State of the routes.
#[derive(Clone)]
pub(crate) struct HttpState {
    pub(crate) chat: Arc<Chat>,
    pub(crate) authenticator: Authenticator,
    pub(crate) shutdown: Shutdown,
}

/// A caller with the scope `call`, within its rate limit and the one of its organisation. The scope is required because an answer
/// can call devices.
pub(crate) struct ChatCaller(Caller);

impl FromRequestParts<HttpState> for ChatCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, Problem> {
        let caller = state
            .authenticator
            .authenticate(&parts.headers, &parts.extensions);
        let caller = caller.await?;
        caller.require(Scope::Call)?;
        let (chat, rejected) = (&state.chat, &state.chat.metrics.rejected);
        let admitted = chat.caller_rates.take(&caller.id());
        admitted.inspect_err(|_| rejected.inc(RejectReason::CallerRate))?;
        let admitted = chat.org_rates.take(&caller.org);
        admitted.inspect_err(|_| rejected.inc(RejectReason::OrgRate))?;
        Ok(Self(caller))
    }
}

pub(crate) fn router(state: HttpState) -> Router {
    let (routes, _) = routes().split_for_parts();
    let routes = routes.method_not_allowed_fallback(problem::method_not_allowed);
    let routes = state.authenticator.accept_sessions(routes);
    routes.with_state(state)
}

/// Schemas that only parameters refer to.
#[derive(OpenApi)]
#[openapi(components(schemas(NpcId)))]
struct ParameterSchemas;

pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::with_openapi(ParameterSchemas::openapi()).routes(routes!(chat))
}

/// Sends a message to an NPC and streams the answer as server-sent events.
///
/// The events are `text`, `call`, and one `end` or `error`. Messages with the same
/// `conversation_id` belong to one conversation. The NPC can use the services of its devices.
/// Closing the connection stops the answer.
#[utoipa::path(
    post, path = "/v1/npcs/{id}/chat", tag = "Conversations", operation_id = "chatWithNpc",
    params(("id" = NpcId, Path, description = "The NPC"), ("Accept-Language" = Option<String>, Header, max_length = 1024, example = "de-CH, en;q=0.8", description = "Languages of the service's own messages, where the text does not decide")),
    request_body(content = ChatRequest),
    responses((status = 200, content_type = "text/event-stream", body = String, description = "The answer, event by event", headers(("Content-Language" = String, description = "The language of the service's own messages in it")))),
    security(("credential" = ["call"])),
    extensions(("x-problems" = json!(["not_found", "unknown_npc", "too_many_turns", "quota_exceeded", "overloaded", "objects_not_configured", "objects_unavailable", "store_unavailable"]))),
)]
pub(crate) async fn chat(
    State(state): State<HttpState>,
    ChatCaller(caller): ChatCaller,
    Path(id): Path<NpcId>,
    headers: HeaderMap,
    Json(request): Json<ChatRequest>,
) -> Result<Response, Problem> {
    let request = ValidRequest::try_from(request)?;
    let npc = find_npc(&state, &caller, id).await?;
    state.chat.admit_turn(caller.org).await?;
    let owner = Owner::Org(caller.org.uuid());
    let permit = state.chat.http_answers.try_acquire(owner, 1);
    let permit = permit.map_err(|refused| too_many_turns(&state.chat.metrics, refused))?;
    let picture = match request.picture {
        Some(id) => {
            let picture = Picture::Uploaded(id);
            Some(ShownPicture::open(&state.chat, caller.org, picture).await?)
        }
        None => None,
    };
    let language = language(&state.chat, &npc, &headers, &request.text);
    let org = caller.org;
    let message = UserMessage {
        org,
        sender: Participant::Caller {
            conversation: request.conversation,
            subject: request.subject,
            caller,
        },
        registration: None,
        text: request.text,
        played: None,
        picture,
        npc: Some(Arc::new(npc)),
        language,
    };
    let disconnected = CancellationToken::new();
    let (sender, receiver) = channel(disconnected.clone());
    let events = Events::new(receiver, request.conversation, disconnected);
    let end_slot = events.end();
    let (chat, shutdown) = (Arc::clone(&state.chat), state.shutdown.clone());
    let span = span!(
        "turn",
        otel.status_code = Empty,
        switchboard.org.id = %org,
        switchboard.npc.id = %id,
        switchboard.turn.end = Empty,
        gen_ai.operation.name = "invoke_agent",
    );
    state.shutdown.spawn_in(span, async move {
        let (end, conversation) = tokio::select! {
            end = answer(&chat, &message, &sender) => end,
            () = shutdown.stopping() => (StreamEnd::Stopping, None),
        };
        end_slot.set(end);
        drop((sender, permit));
        if let Some(conversation) = conversation {
            let key = message.key();
            tokio::select! {
                () = job::summarize_if_long(&chat, &key, &conversation) => {}
                () = shutdown.stopping() => {}
            }
        }
    });
    Ok(streamed(events, language))
}

fn streamed(events: Events, language: Language) -> Response {
    let mut response = events.into_response();
    let headers = response.headers_mut();
    // Proxies that buffer responses would hold back the stream until its end.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    let language = HeaderValue::from_static(language.tag());
    headers.insert(header::CONTENT_LANGUAGE, language);
    response
}

/// The language of our own sentences to a caller.
fn language(chat: &Chat, npc: &Npc, headers: &HeaderMap, text: &str) -> Language {
    let accepted = headers.get(header::ACCEPT_LANGUAGE);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    let accepted = switchboard_phrases::accepted(accepted.unwrap_or_default());
    user_message::language(&chat.bus, npc.org, text, accepted, Some(npc))
}

/// Answers a message; returns how the stream ends, and the conversation.
async fn answer(
    chat: &Chat,
    message: &UserMessage,
    sender: &SseSender,
) -> (StreamEnd, Option<Arc<Conversation>>) {
    let in_flight = InFlightGuard::new(&chat.metrics.in_flight);
    let exchange = message.start_exchange(Uuid::now_v7().to_string());
    let sink = TurnSink::for_caller(sender, exchange.clone());
    let end = tokio::select! {
        end = answer::answer(chat, message, &exchange, &sink) => Some(end),
        () = sender.disconnected.cancelled() => None,
    };
    drop(in_flight);
    // An answer over HTTP has no lease to lose.
    let (turn_end, stream_end) = match end {
        Some(AnswerEnd::Answered | AnswerEnd::LeaseLost) => {
            let sources = sink.take_sources();
            (TurnEnd::Answered, StreamEnd::Complete(sources))
        }
        Some(AnswerEnd::Failed) => (TurnEnd::Failed, StreamEnd::NoAnswer),
        None => (TurnEnd::Stopped, StreamEnd::TooSlow),
    };
    chat.metrics.record_end(turn_end);
    let conversation = answer::close(chat, message, sink, end.is_none()).await;
    (stream_end, conversation)
}

async fn find_npc(state: &HttpState, caller: &Caller, id: NpcId) -> Result<Npc, Problem> {
    let found = state.chat.store.npc_for_answers(caller.org, id).await;
    let found = found.map_err(|error| store_failed(&error))?;
    found.ok_or_else(|| {
        Problem::new(
            ProblemKind::UnknownNpc,
            format!("There is no NPC {id} in this organisation."),
        )
    })
}

fn store_failed(error: &StoreError) -> Problem {
    problem::store_failed(
        error.is_unavailable(),
        &error.report(),
        "NPC lookup failed",
        "The NPC cannot be read at the moment; the message was not processed, and a retry is safe.",
    )
}

fn too_many_turns(metrics: &Metrics, refused: Exhausted) -> Problem {
    let (reason, kind, detail) = match refused.scope {
        budget::Scope::Share => (
            RejectReason::OrgLimit,
            ProblemKind::TooManyOrgTurns,
            "Too many answers are in progress for this organisation; the message was not \
             processed, and a retry is safe.",
        ),
        budget::Scope::Total => (
            RejectReason::TotalLimit,
            ProblemKind::TooManyTurns,
            "Too many answers are in progress; the message was not processed, and a retry is safe.",
        ),
    };
    metrics.rejected.inc(reason);
    Problem::new(kind, detail)
        .with("budget", refused.budget)
        .header(header::RETRY_AFTER, 1)
}
