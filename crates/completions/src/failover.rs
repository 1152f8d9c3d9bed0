//! The order of providers for one reply.
//! Invariant: a provider is retried only when no other is left, and never during a pause that it
//! requested.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    CompletionError, ModelPreference,
    cooldowns::{Cooldown, CooldownReason},
    deadlines::Deadlines,
    endpoint::Endpoint,
    failure::{DEFAULT_BACKOFF, Failure, Recovery, RejectCause},
    model::Model,
};

/// Attempts at a provider that is busy.
const MAX_ATTEMPTS: usize = 3;
/// Pauses before each retry of an unavailable provider, give or take a quarter.
const RETRY_BACKOFFS: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// How long others go before a provider that rejects all requests.
const REJECTED_BACKOFF: Duration = Duration::from_secs(30);

/// The providers in their order for one reply.
pub(crate) struct ProviderQueue<'a> {
    candidates: Vec<Candidate<'a>>,
    deadline: Instant,
}

pub(crate) struct Candidate<'a> {
    pub endpoint: &'a Endpoint,
    pub model: &'a Model,
    attempts: usize,
    state: State,
    failure: Option<Failure>,
}

/// The state of a candidate for this reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// It failed, and can be retried from this time on.
    RetryAt(Instant),
    Exhausted,
}

/// The precedence of available candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Healthy,
    CoolingDown,
    Retry,
}

#[derive(Debug)]
pub(crate) enum NextStep {
    /// Send a request to the candidate with this index.
    Send(usize),
    /// No candidate is available before this time.
    Wait(Instant),
    /// No candidate is left.
    Fail(CompletionError),
}

impl<'a> ProviderQueue<'a> {
    pub(crate) fn new(
        endpoints: &'a [Endpoint],
        preference: Option<&'a ModelPreference>,
        deadline: Instant,
    ) -> Self {
        let mut candidates: Vec<_> = endpoints
            .iter()
            .map(|endpoint| Candidate {
                endpoint,
                model: &endpoint.model,
                attempts: 0,
                state: State::Ready,
                failure: None,
            })
            .collect();
        if let Some(preference) = preference {
            let index = endpoints
                .iter()
                .position(|endpoint| endpoint.name == preference.provider);
            if let Some(index) = index {
                let mut candidate = candidates.remove(index);
                candidate.model = candidate.endpoint.find_model(&preference.model);
                candidates.insert(0, candidate);
            } else {
                let name = preference.provider.as_str();
                tracing::debug!(
                    provider.name = name,
                    "preferred provider is not configured; using the default order"
                );
            }
        }
        Self {
            candidates,
            deadline,
        }
    }

    pub(crate) fn next(&self) -> NextStep {
        let now = Instant::now();
        if now >= self.deadline {
            return NextStep::Fail(CompletionError::TimedOut);
        }
        let candidates = self.candidates.iter().enumerate();
        let available = candidates.filter_map(|(index, candidate)| {
            let (rank, at) = candidate.availability(now)?;
            Some((rank, at, index))
        });
        let available: Vec<_> = available.collect();
        let ready = available.iter().filter(|(_, at, _)| *at <= now);
        if let Some((_, _, index)) = ready.min_by_key(|(rank, _, index)| (*rank, *index)) {
            return NextStep::Send(*index);
        }
        match available.iter().min_by_key(|(_, at, _)| *at) {
            Some((_, at, _)) if *at < self.deadline => NextStep::Wait(*at),
            Some((rank, at, _)) if *rank != Rank::Retry => NextStep::Fail(CompletionError::Busy {
                after: at.saturating_duration_since(now),
            }),
            _ => NextStep::Fail(self.error()),
        }
    }

    pub(crate) fn candidate(&self, index: usize) -> Option<&Candidate<'a>> {
        self.candidates.get(index)
    }

    /// Deadlines for a request to this candidate. When another one can follow, half of the
    /// remaining time is left for it.
    pub(crate) fn deadlines_for(&self, index: usize, idle_timeout: Duration) -> Deadlines {
        let now = Instant::now();
        let mut others = self.candidates.iter().enumerate();
        let has_fallback = others
            .any(|(other, candidate)| other != index && candidate.is_fallback(now, self.deadline));
        let half = self.deadline.saturating_duration_since(now) / 2;
        let failover_at = now.checked_add(half).unwrap_or(self.deadline);
        Deadlines {
            deadline: self.deadline,
            idle_timeout,
            sent_at: now,
            failover_at: has_fallback.then_some(failover_at),
        }
    }

    /// Records that this candidate failed. Returns whether that is new, or known from another
    /// request.
    pub(crate) fn record_failure(&mut self, index: usize, failure: &Failure) -> bool {
        let Some(candidate) = self.candidates.get_mut(index) else {
            return false;
        };
        let is_new = candidate.cool_down(failure);
        let attempts = candidate.attempts.saturating_add(1);
        candidate.state = match failure {
            Failure::Busy { .. } if attempts < MAX_ATTEMPTS => State::Ready,
            Failure::Unavailable { .. } => RETRY_BACKOFFS
                .get(candidate.attempts)
                .and_then(|backoff| Instant::now().checked_add(jittered(*backoff)))
                .map_or(State::Exhausted, State::RetryAt),
            _ => State::Exhausted,
        };
        candidate.attempts = attempts;
        candidate.failure = Some(failure.clone());
        is_new
    }

    /// The error when no candidate is left: the failure that is most likely to be temporary.
    fn error(&self) -> CompletionError {
        let rank = |failure: &&Failure| match failure {
            Failure::Busy { .. } => 0,
            Failure::Unavailable { .. } | Failure::Invalid(_) | Failure::TimedOut => 1,
            Failure::Rejected { .. } => 2,
        };
        let candidates = self.candidates.iter();
        let failures = candidates.filter_map(|candidate| candidate.failure.as_ref());
        failures.min_by_key(rank).map_or_else(
            || CompletionError::Unavailable("none is configured".to_owned()),
            |failure| failure.clone().into_error(),
        )
    }
}

impl Candidate<'_> {
    /// The cooldown of the provider or of the model that takes precedence.
    fn cooldown(&self) -> Option<Cooldown> {
        let cooldowns = [
            self.endpoint.cooldowns.current(),
            self.model.cooldowns.current(),
        ];
        cooldowns.into_iter().flatten().min()
    }

    /// When it can be requested, if at all, and its rank then.
    fn availability(&self, now: Instant) -> Option<(Rank, Instant)> {
        let cooldown = self.cooldown();
        let earliest = match cooldown {
            Some(Cooldown::RetryAfter(until)) => until,
            _ => now,
        };
        match self.state {
            State::Ready if cooldown.is_none() => Some((Rank::Healthy, now)),
            State::Ready => Some((Rank::CoolingDown, earliest)),
            State::RetryAt(at) => Some((Rank::Retry, at.max(earliest))),
            State::Exhausted => None,
        }
    }

    /// Whether it is likely to reply when another one does not. One that failed for this reply is
    /// not.
    fn is_fallback(&self, now: Instant, deadline: Instant) -> bool {
        let is_unlikely = match self.cooldown() {
            Some(Cooldown::RetryAfter(until)) => until.max(now) >= deadline,
            Some(Cooldown::Rejected(_)) => true,
            Some(Cooldown::Failing(_)) | None => false,
        };
        self.state == State::Ready && !is_unlikely
    }

    /// Starts the cooldown that the failure requires. Returns whether there was none for the same
    /// reason.
    fn cool_down(&self, failure: &Failure) -> bool {
        let provider = &self.endpoint.cooldowns;
        match failure {
            Failure::Busy { after }
            | Failure::Unavailable {
                recovery: Recovery::RetryAfter(after),
                ..
            } => provider.start(CooldownReason::RetryAfter, *after),
            Failure::Unavailable {
                recovery: Recovery::Default,
                ..
            } => provider.start(CooldownReason::Failing, DEFAULT_BACKOFF),
            Failure::Rejected {
                cause: RejectCause::Caller,
                ..
            } => provider.start(CooldownReason::Rejected, REJECTED_BACKOFF),
            Failure::Rejected {
                cause: RejectCause::Model,
                ..
            } => {
                let model = &self.model.cooldowns;
                model.start(CooldownReason::Rejected, REJECTED_BACKOFF)
            }
            Failure::Unavailable { .. }
            | Failure::Rejected { .. }
            | Failure::Invalid(_)
            | Failure::TimedOut => true,
        }
    }

    pub(crate) fn record_success(&self) {
        self.endpoint.cooldowns.reset();
        self.model.cooldowns.reset();
    }
}

/// Spreads the retries of concurrent requests.
fn jittered(backoff: Duration) -> Duration {
    backoff.mul_f64(0.75 + 0.5 * rand::random::<f64>())
}

#[cfg(test)]
mod tests;
