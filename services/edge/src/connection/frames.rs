//! Frames from the device: results and notices to their callers, registrations to be announced, events for the record,
//! the rest.
//! Never: a result or a notice for a call that is not in flight on this very connection.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use switchboard_bus::{Answer, Notice, NoticeKind};
use switchboard_protocol::{
    frame::{Frame, Kind},
    id::CallId,
    message::{DeviceMessage, DeviceResult},
    schema::Registration,
    session::{Event, SessionError},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, warn};

use super::{Live, departure::Departure, wire::Received};
use crate::{
    link::{NoticeRate, Stray, Unheard},
    metrics::{Note, NoticeLimit, Registered},
};

/// What a register message is answered with when it names no call.
const REGISTER: &str = "register";

/// A set of services that passed the gate and is to be announced.
pub(super) struct Registering {
    call_id: Option<String>,
    registration: Arc<Registration>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Live<'_, S> {
    /// Handles every whole frame, up to a registration: that one has to be announced first.
    pub(super) fn take_frames(
        &mut self,
        mut received: Received,
    ) -> Result<Option<Box<Registering>>, Departure> {
        self.link.heard(self.edge.now_ms());
        loop {
            let frame = self.wire.next_frame(&mut received);
            let Some(frame) = frame.map_err(|error| Departure::Protocol(error.into()))? else {
                self.wire.keep(received, false);
                return Ok(None);
            };
            if let Some(registering) = self.take_frame(frame).map_err(Departure::Protocol)? {
                self.wire.keep(received, true);
                return Ok(Some(registering));
            }
            if self.wire.unsent_bytes() > self.edge.config.device_max_unsent_bytes {
                return Err(Departure::Unread);
            }
        }
    }

    fn take_frame(&mut self, frame: Frame<'_>) -> Result<Option<Box<Registering>>, SessionError> {
        let metrics = &self.edge.metrics;
        metrics.received_frames.inc();
        let (task, seq) = (frame.task, frame.seq);
        match self.session.handle(frame)? {
            Event::Message(DeviceMessage::Result(result)) => self.take_result(&result),
            Event::Message(DeviceMessage::Register { call_id, services }) => {
                return Ok(self.take_services(call_id.map(Into::into), services));
            }
            Event::Rejected { call_id, detail } => {
                metrics.notes.inc(Note::Rejected);
                self.send_result(call_id.as_deref().unwrap_or(REGISTER), Some(&detail));
            }
            Event::Ping(payload) => self.wire.put(Kind::Pong, task, seq, payload),
            Event::End { task } => self.take_turn(task),
            Event::Message(DeviceMessage::Progress { call_id, raw }) => {
                self.note(Note::Progress);
                self.pass_on(NoticeKind::Progress, Some(&call_id), raw);
            }
            Event::Message(DeviceMessage::Log { call_id, raw }) => {
                self.note(Note::Log);
                self.pass_on(NoticeKind::Log, call_id.as_deref(), raw);
            }
            Event::DeviceEvent { raw } => self.record_event(raw),
            Event::Cancel { task } => {
                self.note(Note::Cancel);
                self.cancel_turn(task);
            }
            Event::Text { task, text, .. } => {
                self.note(Note::Text);
                self.take_words(task, text);
            }
            Event::Audio { .. } => self.note(Note::Audio),
            Event::Pong(_) => {}
            Event::Auth(_) => return Err(SessionError::AlreadyAuthenticated),
        }
        Ok(None)
    }

    fn note(&self, kind: Note) {
        self.edge.metrics.notes.inc(kind);
    }

    /// Tells the caller what the device says of its call. What belongs to no call in flight here,
    /// or to one whose caller does not listen, is dropped.
    fn pass_on(&self, kind: NoticeKind, call_id: Option<&str>, raw: &RawValue) {
        let Some(call) = call_id.and_then(|id| id.parse::<CallId>().ok()) else {
            return;
        };
        let config = &self.edge.config;
        let rate = NoticeRate {
            burst: config.device_notice_burst,
            every_ms: config.device_notice_every_ms,
            now_ms: self.edge.now_ms(),
        };
        let dropped_by = match self.link.listener(call, rate) {
            Ok(reply) if raw.get().len() <= config.device_max_notice_bytes => {
                let data = Bytes::copy_from_slice(raw.get().as_bytes());
                return self.edge.bus.notify(&reply, Notice { kind, data });
            }
            Ok(_) => NoticeLimit::Bytes,
            Err(Unheard::TooOften) => NoticeLimit::Rate,
            Err(Unheard::NobodyListens) => return,
        };
        self.edge.metrics.notices_dropped.inc(dropped_by);
    }

    /// Puts on record what the device says unasked, for the webhooks of its organisation.
    fn record_event(&mut self, raw: &[u8]) {
        self.note(Note::Event);
        let config = &self.edge.config;
        let (burst, every_ms) = (config.device_event_burst, config.device_event_every_ms);
        let now_ms = self.edge.now_ms();
        let fits = raw.len() <= config.device_max_notice_bytes;
        let events = &mut self.unasked().events;
        let is_allowed = fits && events.take(burst, every_ms, now_ms).is_ok();
        if !is_allowed {
            return self.note(Note::EventDropped);
        }
        let (device, epoch) = (self.link.key.clone(), self.link.epoch);
        let json = Bytes::copy_from_slice(raw);
        self.edge.bus.tell_event(device, epoch, json);
    }

    fn take_result(&self, result: &DeviceResult<'_>) {
        let call = result.call_id.parse::<CallId>().map_err(|_| Stray::Foreign);
        let reply = match call.and_then(|id| self.link.settle(id)) {
            Ok(reply) => reply,
            Err(stray) => {
                self.edge.metrics.stray_results.inc(stray);
                return;
            }
        };
        let body = Bytes::copy_from_slice(result.raw.get().as_bytes());
        self.edge
            .answer(&reply, Answer::result(result.success, body));
    }

    /// Puts the services through the gate; a refusal is answered, and the former set stays.
    fn take_services(
        &mut self,
        call_id: Option<String>,
        services: &RawValue,
    ) -> Option<Box<Registering>> {
        let (burst, every_ms) = (
            self.edge.config.device_register_burst,
            self.edge.config.device_register_every_ms,
        );
        if let Err(wait_ms) = self.allowance.take(burst, every_ms, self.edge.now_ms()) {
            let detail = format!("Too many registrations in a row. Try again in {wait_ms} ms.");
            self.refuse_services(call_id.as_deref(), &detail);
            return None;
        }
        let started = Instant::now();
        let interned = self
            .edge
            .interner
            .intern(services, &self.edge.schema_limits);
        self.edge
            .metrics
            .register_seconds
            .observe(started.elapsed().as_secs_f64());
        match interned {
            Ok(registration) => Some(Box::new(Registering {
                call_id,
                registration,
            })),
            Err(error) => {
                self.refuse_services(call_id.as_deref(), &error.to_string());
                None
            }
        }
    }

    fn refuse_services(&mut self, call_id: Option<&str>, detail: &str) {
        debug!(device.id = %self.link.key.device, org.id = %self.link.key.org, detail,
            "a registration was refused");
        self.edge.metrics.registrations.inc(Registered::Refused);
        self.send_result(call_id.unwrap_or(REGISTER), Some(detail));
    }

    /// Puts services into force and tells the directory. While that cannot be reached they are in
    /// force here all the same, and announced when it is back.
    pub(super) async fn register(&mut self, registering: Box<Registering>) {
        let Registering {
            call_id,
            registration,
        } = *registering;
        let former = self.link.register(Arc::clone(&registration));
        let former = former.map(|former| former.digest);
        let (key, epoch) = (&self.link.key, self.link.epoch);
        let services = (registration.digest, &registration.json);
        let announced = self.edge.bus.announce(key, epoch, former, services).await;
        self.edge.metrics.registrations.inc(if announced.is_ok() {
            Registered::Accepted
        } else {
            Registered::Unannounced
        });
        if let Err(error) = announced {
            warn!(device.id = %key.device, org.id = %key.org, %error,
                "services are in force but not in the directory before the bus is back");
        }
        self.send_result(call_id.as_deref().unwrap_or(REGISTER), None);
        // Compiling a set of schemas takes a while; others on this thread go first now.
        tokio::task::yield_now().await;
    }
}
