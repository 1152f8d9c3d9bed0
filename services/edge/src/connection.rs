//! A device connection's life: hello → take in → attend → let go. One task each.
//! Never: a buffer or timer held while the device is idle.

mod departure;
mod dispatch;
mod farewell;
mod frames;
mod hello;
mod scratch;
mod seat;
mod turn;
mod wire;

use std::{future::poll_fn, io, net::IpAddr, sync::Arc, task::Poll, time::Duration};

use switchboard_protocol::session::Session;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tracing::{debug, info};

pub(crate) use self::hello::refusals;
use self::{
    departure::Departure,
    hello::Refusal,
    seat::Seat,
    wire::{Received, Wire},
};
use crate::{
    accept::Admitted,
    allowance::Allowance,
    edge::{Edge, millis},
    link::{Eviction, Link, Signal},
};

/// Everything that can happen to a connection that was taken in.
enum Input {
    /// Bytes from the device, to be looked at before anything else is awaited.
    Bytes(Received),
    /// Something waits to be written to the device.
    Commands,
    /// Somebody wants the connection closed.
    Evicted(Eviction),
    /// The device closed its side.
    End,
    /// The socket failed.
    Broken(io::Error),
}

/// A connection that was taken in, and all it needs.
struct Live<'a, S> {
    wire: &'a mut Wire<S>,
    session: &'a mut Session,
    link: &'a Arc<Link>,
    edge: &'a Arc<Edge>,
    allowance: Allowance,
    /// How much it may say unasked now; no room is held for it before the first time.
    unasked: Option<Box<Unasked>>,
}

/// What a device may do without having been asked.
struct Unasked {
    events: Allowance,
    turns: Allowance,
}

/// Serves one connection from its first byte to its last.
///
/// What lives as long as the connection is captured by the block instead of being an argument of
/// an async function, which would reserve room for it twice.
pub(crate) fn serve<S>(
    stream: S,
    mut admitted: Admitted,
    deadline: Instant,
) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let config = &admitted.edge().config;
    let mut wire = Wire::new(stream, config.device_max_hello_bytes);
    let mut session = Session::new(config.device_max_open_tasks);
    // Half as large as the deadline itself.
    let left_ms = millis(deadline.saturating_duration_since(Instant::now()));
    async move {
        let deadline = Instant::now() + Duration::from_millis(left_ms);
        // Short phases are boxed, so that a connection at rest does not carry their room.
        let hello = hello::take_in(&mut wire, &mut session, &admitted, deadline);
        let link = match Box::pin(hello).await {
            Ok(link) => link,
            Err(refusal) => return Box::pin(turn_away(&mut wire, &admitted, refusal)).await,
        };
        admitted.authenticated();
        let seat = Seat::take(admitted.edge(), link);
        let departure = attend(&mut wire, &mut session, seat.link(), admitted.edge()).await;
        Box::pin(let_go(&mut wire, &admitted, seat, departure)).await;
    }
}

/// Tells a connection that was not taken in why.
async fn turn_away<S>(wire: &mut Wire<S>, admitted: &Admitted, refusal: Refusal)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (edge, label) = (admitted.edge(), refusal.label());
    edge.metrics.refused.with_label_values(&[label]).inc();
    log_refusal(&refusal, admitted.address());
    farewell::say(wire, refusal.notice(), edge.retry_after_ms()).await;
}

/// Handles one input after the other until there is a reason to part.
async fn attend<S>(
    wire: &mut Wire<S>,
    session: &mut Session,
    link: &Arc<Link>,
    edge: &Arc<Edge>,
) -> Departure
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut live = Live {
        wire,
        session,
        link,
        edge,
        allowance: Allowance::new(edge.config.device_register_burst, edge.now_ms()),
        unasked: None,
    };
    loop {
        let registering = match poll_fn(|cx| live.poll_input(cx)).await {
            Input::Bytes(received) => match live.take_frames(received) {
                Ok(registering) => registering,
                Err(departure) => return departure,
            },
            Input::Commands => {
                live.send_commands();
                None
            }
            Input::Evicted(eviction) => return Departure::Evicted(eviction),
            Input::End => return Departure::Closed,
            Input::Broken(error) => return Departure::Broken(error),
        };
        if let Some(registering) = registering {
            Box::pin(live.register(registering)).await;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Live<'_, S> {
    fn unasked(&mut self) -> &mut Unasked {
        let (config, now_ms) = (&self.edge.config, self.edge.now_ms());
        self.unasked.get_or_insert_with(|| {
            Box::new(Unasked {
                events: Allowance::new(config.device_event_burst, now_ms),
                turns: Allowance::new(config.device_turn_burst, now_ms),
            })
        })
    }

    /// Writes what is ready, then waits for whatever happens first.
    fn poll_input(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Input> {
        let writable = match self.poll_send(cx) {
            Ok(writable) => writable,
            Err(error) => return Poll::Ready(Input::Broken(error)),
        };
        let done = match self.link.poll_signal(cx, writable) {
            Poll::Ready(Signal::Leave(eviction)) => return Poll::Ready(Input::Evicted(eviction)),
            Poll::Ready(Signal::Commands) => return Poll::Ready(Input::Commands),
            Poll::Ready(Signal::Done { again }) => Some(again),
            Poll::Pending => None,
        };
        match self.wire.poll_receive(cx) {
            Poll::Ready(Ok(Some((received, length)))) => {
                self.edge.metrics.received_bytes.inc_by(length as u64);
                Poll::Ready(Input::Bytes(received))
            }
            Poll::Ready(Ok(None)) => Poll::Ready(Input::End),
            Poll::Ready(Err(error)) => Poll::Ready(Input::Broken(error)),
            Poll::Pending => match done {
                Some(true) => Poll::Ready(Input::Evicted(Eviction::Drained)),
                Some(false) => {
                    // What has just come in is known when the runtime has looked.
                    let waker = cx.waker().clone();
                    self.edge.connections.spawn(async move {
                        tokio::task::yield_now().await;
                        waker.wake();
                    });
                    Poll::Pending
                }
                None => Poll::Pending,
            },
        }
    }

    /// Writes what is ready; whether the socket took all of it.
    fn poll_send(&mut self, cx: &mut std::task::Context<'_>) -> io::Result<bool> {
        let before = self.wire.unsent_bytes();
        let sent = self.wire.poll_send(cx);
        let taken = before.saturating_sub(self.wire.unsent_bytes());
        self.edge.metrics.sent_bytes.inc_by(taken as u64);
        match sent {
            Poll::Ready(result) => {
                self.link.note_stall(None);
                result.map(|()| true)
            }
            Poll::Pending => {
                if taken > 0 || !self.link.is_stalled() {
                    self.link.note_stall(Some(self.edge.now_ms()));
                }
                Ok(false)
            }
        }
    }
}

/// Gives a device's seat up, and tells the device why.
async fn let_go<S>(wire: &mut Wire<S>, admitted: &Admitted, seat: Seat<'_>, departure: Departure)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    log_departure(seat.link(), &departure, admitted.address());
    seat.give_up(departure.reason());
    farewell::say(wire, departure.notice(), admitted.edge().retry_after_ms()).await;
}

fn log_refusal(refusal: &Refusal, address: IpAddr) {
    let cause = refusal as &dyn std::error::Error;
    debug!(device.address = %address, reason = refusal.label(), cause, "a connection was refused");
}

fn log_departure(link: &Link, departure: &Departure, address: IpAddr) {
    let unsettled = link.calls();
    let (device, org) = (&link.key.device, link.key.org);
    let reason = departure.reason().as_str();
    let cause = departure as &dyn std::error::Error;
    if departure.is_ordinary() {
        debug!(device.id = %device, org.id = %org, device.epoch = link.epoch.0,
            device.address = %address, reason, calls.unsettled = unsettled, cause, "a device left");
    } else {
        info!(device.id = %device, org.id = %org, device.epoch = link.epoch.0,
            device.address = %address, reason, calls.unsettled = unsettled, cause, "a device was closed");
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn a_connection_at_rest_is_small() {
        fn size<F>(_: impl FnOnce(TcpStream, Admitted, Instant) -> F) -> usize {
            size_of::<F>()
        }
        let task = size(serve::<TcpStream>);
        let link = size_of::<Link>();
        assert!(task <= 368, "the task holds {task} bytes");
        assert!(link <= 256, "the shared half holds {link} bytes");
    }
}
