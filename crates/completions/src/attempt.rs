//! One request to one provider, from its first byte to the end of the reply.
//! Never: a wait without an end, or a second request.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    chunk::Chunk,
    endpoint::Endpoint,
    failure::{Failure, causes},
    patience::{Patience, Progress},
    reading::Reading,
    refusal::{self, Said},
    stream::{Event, Events, LONGEST_BODY},
};

/// How long what follows the end of a reply is waited for: what it cost.
const TAIL: Duration = Duration::from_secs(1);
/// How long the end of a body is waited for, so that its connection can be used again.
const LINGER: Duration = Duration::from_millis(20);
/// How much of an answer is read that is no reply, in bytes, and for how long.
const LONGEST_REFUSAL: usize = 16 * 1024;
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);

/// Asks once, and hears the reply to its end.
pub(crate) async fn ask(
    endpoint: &Endpoint,
    body: Bytes,
    patience: Patience,
    reading: &mut Reading<'_>,
) -> Result<(), Failure> {
    let answer = in_time(patience.for_a_sign(), &patience, endpoint.send(body));
    let answer = answer.await.unwrap_or_else(|late| {
        Err(late.unwrap_or_else(|| Failure::unavailable("it says nothing at all")))
    })?;
    let (head, body) = answer.into_parts();
    if !head.status.is_success() {
        let limit = Instant::now()
            .checked_add(REFUSAL_LIMIT)
            .unwrap_or(patience.deadline);
        let body = beginning(body, limit.min(patience.deadline)).await;
        let said = endpoint.clean(Said::in_body(&body));
        return Err(refusal::failure(Some(head.status), &head.headers, &said));
    }
    if is_json(&head.headers) {
        let body = Limited::new(body, LONGEST_BODY).collect();
        let body = in_time(patience.for_the_whole(), &patience, body).await;
        let body = body.map_err(|late| late.unwrap_or_else(too_slow))?;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Failure::Broken(causes(&*error))
            } else {
                Failure::interrupted(causes(&*error))
            }
        })?;
        return read_whole(endpoint, &body.to_bytes(), reading);
    }
    hear(endpoint, Events::of(body), patience, reading).await
}

/// What comes of this by then; the failure when the deadline came first, or none when only this was too late.
async fn in_time<T>(
    until: Instant,
    patience: &Patience,
    future: impl Future<Output = T>,
) -> Result<T, Option<Failure>> {
    let ended = timeout_at(until.min(patience.deadline), future).await;
    ended.map_err(|_| (Instant::now() >= patience.deadline).then_some(Failure::Late))
}

fn too_slow() -> Failure {
    Failure::interrupted("it says nothing for too long")
}

/// Hears a stream. After the word that ends the reply, nothing can spoil it.
async fn hear(
    endpoint: &Endpoint,
    mut events: Events,
    patience: Patience,
    reading: &mut Reading<'_>,
) -> Result<(), Failure> {
    let mut tail = None;
    loop {
        let event = match next(&mut events, &patience, reading.progress(), tail).await {
            Ok(Some(event)) => event,
            _ if reading.is_finished() => return Ok(()),
            Ok(None) => return Err(Failure::interrupted("it ends before its end")),
            Err(failure) => return Err(failure),
        };
        match event {
            Event::Done => {
                reading.end();
                // Nobody needs what comes now; a connection whose body was read can be used again.
                let _ = timeout(LINGER, events.next()).await;
                return Ok(());
            }
            Event::Data(data) => {
                let chunk = read(endpoint, data.as_bytes());
                match chunk.and_then(|chunk| reading.take(chunk, false)) {
                    Err(_) if tail.is_some() => return Ok(()),
                    taken => taken?,
                };
            }
        }
        if tail.is_none() && reading.is_finished() {
            tail = Instant::now().checked_add(TAIL);
        }
    }
}

/// The next event. What is no event is a sign of life all the same, and waited on.
async fn next(
    events: &mut Events,
    patience: &Patience,
    progress: Progress,
    tail: Option<Instant>,
) -> Result<Option<Event>, Failure> {
    loop {
        let until = |events: &Events| {
            tail.unwrap_or_else(|| patience.for_more(events.last_sign(), progress))
        };
        match in_time(until(events), patience, events.next()).await {
            Ok(event) => return event.transpose(),
            Err(Some(late)) => return Err(late),
            Err(None) if until(events) <= Instant::now() => return Err(too_slow()),
            Err(None) => {}
        }
    }
}

/// Reads a reply that came in one piece though a stream was asked for.
fn read_whole(endpoint: &Endpoint, body: &[u8], reading: &mut Reading<'_>) -> Result<(), Failure> {
    let found = reading.take(read(endpoint, body)?, true)?;
    if !found {
        return Err(Failure::Broken("there is no reply in it".to_owned()));
    }
    reading.end();
    Ok(())
}

/// A piece, or what went wrong at the provider since it began.
fn read(endpoint: &Endpoint, data: &[u8]) -> Result<Chunk, Failure> {
    let chunk: Chunk = serde_json::from_slice(data)
        .map_err(|error| Failure::Broken(format!("it sends what is no JSON object: {error}")))?;
    let Some((said, code)) = chunk.error() else {
        return Ok(chunk);
    };
    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
    let said = endpoint.clean(said);
    Err(refusal::failure(status, &HeaderMap::new(), &said))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// The beginning of a body: as much as comes in time and has room.
async fn beginning(mut body: Incoming, limit: Instant) -> Vec<u8> {
    let mut found = Vec::new();
    while let Ok(Some(Ok(frame))) = timeout_at(limit, body.frame()).await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = LONGEST_REFUSAL.saturating_sub(found.len());
        found.extend(data.into_iter().take(room));
        if found.len() == LONGEST_REFUSAL {
            break;
        }
    }
    found
}
