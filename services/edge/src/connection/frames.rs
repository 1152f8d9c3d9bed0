//! Frames that concern no call and no turn: registrations, device events, rejected messages.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use switchboard_bus::BusError;
use switchboard_protocol::schema::Digest;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, warn};

use super::Connection;
use crate::{
    connections::Inserted,
    handle::Eviction,
    metrics::{Note, Registered},
    schemas::{CompiledServices, NewServices},
    token_bucket::TokenBucket,
};

/// The `call_id` of the answer to a register message without one.
const REGISTER: &str = "register";

/// Services that are not in force yet.
pub(super) struct PendingRegistration {
    call_id: Option<String>,
    services: Services,
}

enum Services {
    /// Compiled for another connection.
    Known(Arc<CompiledServices>),
    New(NewServices),
}

/// Rate limits of what a device sends on its own initiative.
#[derive(Default)]
pub(super) struct UnsolicitedLimits {
    events: TokenBucket,
    pub(super) turns: TokenBucket,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) fn unsolicited(&mut self) -> &mut UnsolicitedLimits {
        self.unsolicited.get_or_insert_default()
    }

    /// Answers a message that is malformed or invalid. The connection stays open (S 6.1).
    pub(super) fn reject_message(&mut self, call_id: Option<&str>, detail: &str) {
        self.edge.metrics.notes.inc(Note::Rejected);
        self.send_result(call_id.unwrap_or(REGISTER), Some(detail));
    }

    /// Publishes a device event for the webhooks of its organisation.
    pub(super) fn publish_event(&mut self, raw: &[u8]) {
        let metrics = &self.edge.metrics;
        metrics.notes.inc(Note::Event);
        let config = &self.edge.config;
        let (burst, every_ms) = (config.device_event_burst, config.device_event_every_ms);
        let now_ms = self.edge.now_ms();
        let fits = raw.len() <= config.device_max_notice_bytes;
        let events = &mut self.unsolicited().events;
        let is_allowed = fits && events.take(burst, every_ms, now_ms).is_ok();
        if !is_allowed {
            self.edge.metrics.notes.inc(Note::EventDropped);
            return;
        }
        let (device, epoch) = (self.handle.key.clone(), self.handle.epoch);
        let json = Bytes::copy_from_slice(raw);
        self.edge.bus.record_custom_event(device, epoch, json);
    }

    /// Finds the services of a register message among those of other connections, or copies them
    /// to be compiled. A refusal is answered here, and the previous services stay in force.
    pub(super) fn begin_registration(
        &mut self,
        call_id: Option<String>,
        services: &RawValue,
    ) -> Option<Box<PendingRegistration>> {
        let (burst, every_ms) = (
            self.edge.config.device_register_burst,
            self.edge.config.device_register_every_ms,
        );
        if self.handle.has_left() {
            // It would enter the directory again, and accepts no calls.
            let detail = "This connection is about to close. Register on the next one.";
            self.refuse_registration(call_id.as_deref(), detail);
            return None;
        }
        let now_ms = self.edge.now_ms();
        if let Err(wait_ms) = self.registrations.take(burst, every_ms, now_ms) {
            let detail = format!("Too many registrations in a row. Try again in {wait_ms} ms.");
            self.refuse_registration(call_id.as_deref(), &detail);
            return None;
        }
        let started = Instant::now();
        let (schemas, org) = (&self.edge.schemas, self.handle.key.org);
        let digest = Digest::compute(services.get().as_bytes());
        let services = match schemas.find(org, digest) {
            Some(known) => {
                let seconds = started.elapsed().as_secs_f64();
                self.edge.metrics.register_seconds.observe(seconds);
                Services::Known(known)
            }
            None => match schemas.reserve(org, digest, services) {
                Ok(new) => Services::New(new),
                Err(refused) => {
                    self.refuse_registration(call_id.as_deref(), &refused.to_string());
                    return None;
                }
            },
        };
        Some(Box::new(PendingRegistration { call_id, services }))
    }

    fn refuse_registration(&mut self, call_id: Option<&str>, detail: &str) {
        debug!(device.id = %self.handle.key.device, org.id = %self.handle.key.org, detail,
            "registration refused");
        self.edge.metrics.registrations.inc(Registered::Refused);
        self.send_result(call_id.unwrap_or(REGISTER), Some(detail));
    }

    /// Compiles services that are new, puts them into force and announces them in the directory.
    /// While the directory is unreachable they are in force here, and the bus announces them when
    /// it is back. When it has no room for them, the previous ones stay in force.
    pub(super) async fn register(&mut self, registration: Box<PendingRegistration>) {
        let PendingRegistration { call_id, services } = *registration;
        let registration = match services {
            Services::Known(known) => known,
            Services::New(new) => {
                self.write_ready().await;
                let started = Instant::now();
                let compiled = self.edge.schemas.compile(new).await;
                let seconds = started.elapsed().as_secs_f64();
                self.edge.metrics.register_seconds.observe(seconds);
                match compiled {
                    Ok(compiled) => compiled,
                    Err(refused) => {
                        return self.refuse_registration(call_id.as_deref(), &refused.to_string());
                    }
                }
            }
        };
        let new = Some(Arc::clone(&registration));
        let previous = self.handle.replace_registration(new);
        let previous_digest = previous.as_ref().map(|previous| previous.digest);
        let (key, epoch) = (&self.handle.key, self.handle.epoch);
        let services = (registration.digest, &registration.json);
        let announced = self
            .edge
            .bus
            .register(key, epoch, previous_digest, services);
        let announced = announced.await;
        if let Err(full @ BusError::RegistrationsFull { .. }) = announced {
            self.handle.replace_registration(previous);
            let detail = format!("No room for these services: {full}.");
            return self.refuse_registration(call_id.as_deref(), &detail);
        }
        self.replace_older();
        self.edge.metrics.registrations.inc(if announced.is_ok() {
            Registered::Accepted
        } else {
            Registered::Unannounced
        });
        if let Err(error) = announced {
            warn!(device.id = %key.device, org.id = %key.org, %error,
                "directory is unreachable; services are announced when it is back");
        }
        self.send_result(call_id.as_deref().unwrap_or(REGISTER), None);
    }

    /// Enters a connection whose device has not registered in place of an older one that has.
    pub(super) async fn enter(&mut self) {
        let (key, epoch) = (&self.handle.key, self.handle.epoch);
        if let Err(error) = self.edge.bus.enter(key, epoch).await {
            warn!(device.id = %key.device, org.id = %key.org, %error,
                "directory is unreachable; the connection is entered when it is back");
        }
        self.replace_older();
    }

    /// Ends the older connection of the device here, once the directory's entry points to this one.
    fn replace_older(&self) {
        if !self.handle.set_entered() {
            return;
        }
        match self.edge.connections.enter(self.handle) {
            Inserted::New => {}
            Inserted::Replaced(older) => self.edge.take_over(&older),
            Inserted::Superseded => self.handle.evict(Eviction::Takeover),
        }
    }
}
