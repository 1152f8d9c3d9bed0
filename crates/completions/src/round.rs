//! Who is asked next for one reply: in order, those that rest last, and none of them for ever.
//! Never: a provider asked again while another one is left, or one that wants to be left alone.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    CompletionError, Preferred,
    endpoint::Endpoint,
    failure::{About, Failure, REST, Recovery},
    model::Model,
    patience::Patience,
    rests::{Reason, Rest},
};

/// How often one is asked that has too much to do.
const MOST_ASKED: usize = 3;
/// How long one that is not available is waited for before it is asked again, give or take a quarter.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// How long others come before one that refuses whatever it is asked.
const REFUSAL_REST: Duration = Duration::from_secs(30);

/// The providers in the order in which they are asked for one reply.
pub(crate) struct Round<'a> {
    seats: Vec<Seat<'a>>,
    deadline: Instant,
}

pub(crate) struct Seat<'a> {
    pub endpoint: &'a Endpoint,
    pub model: &'a Model,
    asked: usize,
    state: State,
    failure: Option<Failure>,
}

/// What may come of one in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may be asked.
    Ready,
    /// It may be asked again, from then on and when nobody is ready.
    Again(Instant),
    /// It is not asked any more.
    Out,
}

/// Who comes before whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Well,
    Resting,
    Again,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    /// The one in this place is asked.
    Ask(usize),
    /// Nobody can be asked until then at least.
    Wait(Instant),
    /// There is nobody left.
    End(CompletionError),
}

impl<'a> Round<'a> {
    pub(crate) fn new(
        endpoints: &'a [Endpoint],
        preferred: Option<&'a Preferred>,
        deadline: Instant,
    ) -> Self {
        let mut seats: Vec<_> = endpoints
            .iter()
            .map(|endpoint| Seat {
                endpoint,
                model: &endpoint.model,
                asked: 0,
                state: State::Ready,
                failure: None,
            })
            .collect();
        if let Some(preferred) = preferred {
            let place = endpoints
                .iter()
                .position(|endpoint| endpoint.name == preferred.provider);
            if let Some(place) = place {
                let mut seat = seats.remove(place);
                seat.model = seat.endpoint.model_called(&preferred.model);
                seats.insert(0, seat);
            } else {
                let name = preferred.provider.as_str();
                tracing::debug!(
                    provider.name = name,
                    "a preferred provider is not set; the usual order holds"
                );
            }
        }
        Self { seats, deadline }
    }

    pub(crate) fn next(&self) -> Next {
        let now = Instant::now();
        if now >= self.deadline {
            return Next::End(CompletionError::Late);
        }
        let turns = self.seats.iter().enumerate().filter_map(|(place, seat)| {
            let (rank, at) = seat.turn(now)?;
            Some((rank, at, place))
        });
        let turns: Vec<_> = turns.collect();
        let ready = turns.iter().filter(|(_, at, _)| *at <= now);
        if let Some((_, _, place)) = ready.min_by_key(|(rank, _, place)| (*rank, *place)) {
            return Next::Ask(*place);
        }
        match turns.iter().min_by_key(|(_, at, _)| *at) {
            Some((_, at, _)) if *at < self.deadline => Next::Wait(*at),
            Some((rank, at, _)) if *rank != Rank::Again => Next::End(CompletionError::Busy {
                after: at.saturating_duration_since(now),
            }),
            _ => Next::End(self.end()),
        }
    }

    pub(crate) fn seat(&self, place: usize) -> Option<&Seat<'a>> {
        self.seats.get(place)
    }

    /// How long the one in this place is waited for: another one wants time, too.
    pub(crate) fn patience_for(&self, place: usize, pause: Duration) -> Patience {
        let now = Instant::now();
        let mut others = self.seats.iter().enumerate();
        let another =
            others.any(|(other, seat)| other != place && seat.can_follow(now, self.deadline));
        let half = self.deadline.saturating_duration_since(now) / 2;
        let turn = now.checked_add(half).unwrap_or(self.deadline);
        Patience {
            deadline: self.deadline,
            pause,
            asked: now,
            turn: another.then_some(turn),
        }
    }

    /// The one in this place did not reply. Whether that is news, or was known from another request.
    pub(crate) fn failed(&mut self, place: usize, failure: &Failure) -> bool {
        let Some(seat) = self.seats.get_mut(place) else {
            return false;
        };
        let is_news = seat.rest(failure);
        seat.state = match failure {
            Failure::Busy { .. } if seat.asked.saturating_add(1) < MOST_ASKED => State::Ready,
            Failure::Unavailable { .. } => PAUSES
                .get(seat.asked)
                .and_then(|pause| Instant::now().checked_add(jittered(*pause)))
                .map_or(State::Out, State::Again),
            _ => State::Out,
        };
        seat.asked = seat.asked.saturating_add(1);
        seat.failure = Some(failure.clone());
        is_news
    }

    /// Why nobody replied: what may be better soon counts more than what will not.
    fn end(&self) -> CompletionError {
        let rank = |failure: &&Failure| match failure {
            Failure::Busy { .. } => 0,
            Failure::Unavailable { .. } | Failure::Broken(_) | Failure::Late => 1,
            Failure::Refused { .. } => 2,
        };
        let failures = self.seats.iter().filter_map(|seat| seat.failure.as_ref());
        failures.min_by_key(rank).map_or_else(
            || CompletionError::Unavailable("none is set".to_owned()),
            |failure| failure.clone().into_error(),
        )
    }
}

impl Seat<'_> {
    /// The rest that counts most, of the provider or of this model.
    fn resting(&self) -> Option<Rest> {
        let rests = [self.endpoint.rests.now(), self.model.rests.now()];
        rests.into_iter().flatten().min()
    }

    /// When it may be asked, if at all, and who comes first then.
    fn turn(&self, now: Instant) -> Option<(Rank, Instant)> {
        let resting = self.resting();
        let wanted = match resting {
            Some(Rest::Wanted(until)) => until,
            _ => now,
        };
        match self.state {
            State::Ready if resting.is_none() => Some((Rank::Well, now)),
            State::Ready => Some((Rank::Resting, wanted)),
            State::Again(from) => Some((Rank::Again, from.max(wanted))),
            State::Out => None,
        }
    }

    /// Whether there is hope that it replies when another one does not. One that failed in this round is none.
    fn can_follow(&self, now: Instant, deadline: Instant) -> bool {
        let rests_for_long = match self.resting() {
            Some(Rest::Wanted(until)) => until.max(now) >= deadline,
            Some(Rest::Refuses(_)) => true,
            Some(Rest::Unwell(_)) | None => false,
        };
        self.state == State::Ready && !rests_for_long
    }

    /// Leaves it alone, as this failure asks for. Whether it was not left alone for that already.
    fn rest(&self, failure: &Failure) -> bool {
        let provider = &self.endpoint.rests;
        match failure {
            Failure::Busy { after }
            | Failure::Unavailable {
                rest: Recovery::Wanted(after),
                ..
            } => provider.begin(Reason::Wanted, *after),
            Failure::Unavailable {
                rest: Recovery::Short,
                ..
            } => provider.begin(Reason::Unwell, REST),
            Failure::Refused {
                about: About::Caller,
                ..
            } => provider.begin(Reason::Refuses, REFUSAL_REST),
            Failure::Refused {
                about: About::Model,
                ..
            } => self.model.rests.begin(Reason::Refuses, REFUSAL_REST),
            Failure::Unavailable { .. }
            | Failure::Refused { .. }
            | Failure::Broken(_)
            | Failure::Late => true,
        }
    }

    /// It replied.
    pub(crate) fn replied(&self) {
        self.endpoint.rests.end();
        self.model.rests.end();
    }
}

/// Those who wait for one provider do not all come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + 0.5 * rand::random::<f64>())
}

#[cfg(test)]
mod tests;
