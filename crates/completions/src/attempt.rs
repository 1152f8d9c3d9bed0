//! One request to one provider, until the end of the reply.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    chunk::Chunk,
    deadlines::{Deadlines, Progress},
    endpoint::Endpoint,
    error_response::{self, ErrorMessage},
    failure::{Failure, causes},
    reply_builder::ReplyBuilder,
    stream::{Event, EventStream, MAX_BODY_BYTES},
};

/// How long the usage is awaited after the end of a reply.
const USAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the end of a body is awaited, so that its connection can be reused.
const BODY_END_TIMEOUT: Duration = Duration::from_millis(20);
/// Limits for the body of an error response.
const MAX_ERROR_BODY_BYTES: usize = 16 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends the request and receives the reply.
pub(crate) async fn run(
    endpoint: &Endpoint,
    body: Bytes,
    deadlines: Deadlines,
    builder: &mut ReplyBuilder<'_>,
) -> Result<(), Failure> {
    let response = with_deadline(deadlines.headers(), &deadlines, endpoint.send(body));
    let response = response.await.unwrap_or_else(|timed_out| {
        Err(timed_out.unwrap_or_else(|| Failure::unavailable("no response in time")))
    })?;
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let deadline = Instant::now()
            .checked_add(ERROR_BODY_TIMEOUT)
            .unwrap_or(deadlines.deadline);
        let body = read_prefix(body, deadline.min(deadlines.deadline)).await;
        let message = endpoint.redact(ErrorMessage::from_body(&body));
        let failure = error_response::failure(Some(head.status), &head.headers, &message);
        return Err(failure);
    }
    if is_json(&head.headers) {
        let body = Limited::new(body, MAX_BODY_BYTES).collect();
        let body = with_deadline(deadlines.whole_body(), &deadlines, body).await;
        let body = body.map_err(|timed_out| timed_out.unwrap_or_else(too_slow))?;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Failure::Invalid(causes(&*error))
            } else {
                Failure::interrupted(causes(&*error))
            }
        })?;
        return receive_whole(endpoint, &body.to_bytes(), builder);
    }
    receive_stream(endpoint, EventStream::new(body), deadlines, builder).await
}

/// Runs a future until this deadline. On a timeout the error is [`Failure::TimedOut`] when the
/// deadline of the completion has passed, else `None`.
async fn with_deadline<T>(
    deadline: Instant,
    deadlines: &Deadlines,
    future: impl Future<Output = T>,
) -> Result<T, Option<Failure>> {
    let result = timeout_at(deadline.min(deadlines.deadline), future).await;
    result.map_err(|_| (Instant::now() >= deadlines.deadline).then_some(Failure::TimedOut))
}

fn too_slow() -> Failure {
    Failure::interrupted("no data for too long")
}

/// Receives a stream of events. Errors after the end of the reply are ignored.
async fn receive_stream(
    endpoint: &Endpoint,
    mut events: EventStream,
    deadlines: Deadlines,
    builder: &mut ReplyBuilder<'_>,
) -> Result<(), Failure> {
    let mut usage_deadline = None;
    loop {
        // The text of events that have arrived together is forwarded at once.
        let event = match events.next().now_or_never() {
            Some(event) => event.transpose(),
            None => {
                builder.flush();
                let progress = builder.progress();
                next_event(&mut events, &deadlines, progress, usage_deadline).await
            }
        };
        let event = match event {
            Ok(Some(event)) => event,
            _ if builder.is_finished() => return Ok(()),
            Ok(None) => return Err(Failure::interrupted("the stream ended early")),
            Err(failure) => return Err(failure),
        };
        match event {
            Event::Done => {
                builder.finish();
                builder.flush();
                // A connection can be reused only when its body was read to the end.
                let _ = timeout(BODY_END_TIMEOUT, events.next()).await;
                return Ok(());
            }
            Event::Data(data) => {
                let chunk = parse_chunk(endpoint, data.as_bytes());
                match chunk.and_then(|chunk| builder.push(chunk, false)) {
                    Err(_) if usage_deadline.is_some() => return Ok(()),
                    result => result?,
                };
            }
        }
        if usage_deadline.is_none() && builder.is_finished() {
            usage_deadline = Instant::now().checked_add(USAGE_TIMEOUT);
        }
    }
}

/// The next event. Comments and empty events extend the deadline.
async fn next_event(
    events: &mut EventStream,
    deadlines: &Deadlines,
    progress: Progress,
    usage_deadline: Option<Instant>,
) -> Result<Option<Event>, Failure> {
    loop {
        let deadline = |events: &EventStream| {
            usage_deadline.unwrap_or_else(|| deadlines.next_event(events.last_activity(), progress))
        };
        match with_deadline(deadline(events), deadlines, events.next()).await {
            Ok(event) => return event.transpose(),
            Err(Some(timed_out)) => return Err(timed_out),
            Err(None) if deadline(events) <= Instant::now() => return Err(too_slow()),
            Err(None) => {}
        }
    }
}

/// Receives a reply in one piece. Some providers send it although a stream was requested.
fn receive_whole(
    endpoint: &Endpoint,
    body: &[u8],
    builder: &mut ReplyBuilder<'_>,
) -> Result<(), Failure> {
    let has_reply = builder.push(parse_chunk(endpoint, body)?, true)?;
    if !has_reply {
        return Err(Failure::Invalid("the response has no reply".to_owned()));
    }
    builder.finish();
    Ok(())
}

/// Parses a chunk, which may contain an error of the provider.
fn parse_chunk(endpoint: &Endpoint, data: &[u8]) -> Result<Chunk, Failure> {
    let chunk: Chunk = serde_json::from_slice(data)
        .map_err(|error| Failure::Invalid(format!("an event is no JSON object: {error}")))?;
    let Some((message, code)) = chunk.error() else {
        return Ok(chunk);
    };
    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
    let message = endpoint.redact(message);
    let failure = error_response::failure(status, &HeaderMap::new(), &message);
    Err(failure)
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|value| value.split(';').next());
    media_type.is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"))
}

/// The start of a body, within the limits for error responses.
async fn read_prefix(mut body: Incoming, deadline: Instant) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = MAX_ERROR_BODY_BYTES.saturating_sub(bytes.len());
        bytes.extend(data.into_iter().take(room));
        if bytes.len() == MAX_ERROR_BODY_BYTES {
            break;
        }
    }
    bytes
}
