//! The processes of a simulation: what runs in one is polled only while that process runs, and
//! sees its wall clock. Ids are counted, so that a seed repeats them.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    mem,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};
use uuid::Uuid;

/// The wall clock of Redis at the start of every simulation, in Unix seconds.
const START_UNIX_S: u64 = 1_800_000_000;

thread_local! {
    /// When the simulation on this thread began.
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The process that is running; `None` outside of processes: devices, the network and Redis.
    static CURRENT: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
    /// The last id.
    static LAST_ID: Cell<u64> = const { Cell::new(0) };
}

/// A process, which can be stopped as by `SIGSTOP`, continued, and killed.
#[derive(Default)]
pub(super) struct Process {
    state: Mutex<State>,
    /// Its wall clock against that of Redis.
    clock_offset_s: AtomicI64,
}

#[derive(Default)]
struct State {
    status: Status,
    /// Tasks that were woken while the process was stopped.
    woken: Vec<Waker>,
    /// What arrived while the process was stopped, in order.
    arrived: VecDeque<Arrival>,
}

type Arrival = Box<dyn FnOnce() + Send>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Status {
    #[default]
    Running,
    Stopped,
    Killed,
}

/// Runs `work` in a process; without one, in Redis.
fn enter<T>(process: Option<Arc<Process>>, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(process);
    let done = work();
    CURRENT.set(before);
    done
}

impl Process {
    pub(super) fn status(&self) -> Status {
        self.state.lock().status
    }

    pub(super) fn step_clock(&self, offset_s: i64) {
        self.clock_offset_s.store(offset_s, Ordering::Relaxed);
    }

    /// Runs `work` in this process.
    pub(super) fn enter<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        enter(Some(Arc::clone(self)), work)
    }

    /// Runs `arrival` in this process, when it runs and has handled what arrived before.
    pub(super) fn receive(self: &Arc<Self>, arrival: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.state.lock();
            match state.status {
                Status::Killed => return,
                Status::Running if state.arrived.is_empty() => {}
                _ => return state.arrived.push_back(Box::new(arrival)),
            }
        }
        self.enter(arrival);
    }

    /// Stops, continues or kills the process. What arrived while it was stopped waits for
    /// [`receive_waiting`](Self::receive_waiting). Its tasks end when they are polled after its end.
    pub(super) fn set(&self, status: Status) {
        let mut state = self.state.lock();
        if state.status == Status::Killed {
            return;
        }
        state.status = status;
        let woken = mem::take(&mut state.woken);
        let is_killed = status == Status::Killed;
        let lost = is_killed.then(|| mem::take(&mut state.arrived));
        drop(state);
        drop(lost);
        woken.into_iter().for_each(Waker::wake);
    }

    pub(super) fn receive_waiting(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                if state.status != Status::Running {
                    return;
                }
                state.arrived.pop_front()
            };
            let Some(arrival) = next else { return };
            self.enter(arrival);
        }
    }

    fn poll_status(&self, cx: &Context<'_>) -> Status {
        let mut state = self.state.lock();
        let is_known = |waker: &Waker| waker.will_wake(cx.waker());
        if state.status == Status::Stopped && !state.woken.iter().any(is_known) {
            state.woken.push(cx.waker().clone());
        }
        state.status
    }
}

/// A task that belongs to the process that spawns it, if there is one.
pub(crate) fn gated<F>(task: F) -> impl Future<Output = ()> + Send + 'static
where
    F: Future<Output = ()> + Send + 'static,
{
    let process = CURRENT.with_borrow(Clone::clone);
    let mut task = Some(Box::pin(task));
    poll_fn(move |cx| {
        let Some(running) = &mut task else {
            return Poll::Ready(());
        };
        let Some(process) = &process else {
            return running.as_mut().poll(cx);
        };
        match process.poll_status(cx) {
            Status::Stopped => Poll::Pending,
            Status::Running => process.enter(|| running.as_mut().poll(cx)),
            Status::Killed => {
                process.enter(|| task = None);
                Poll::Ready(())
            }
        }
    })
}

/// Begins the simulation of this thread.
pub(super) fn start_clock() {
    START.set(Some(Instant::now()));
    CURRENT.set(None);
    LAST_ID.set(0);
}

pub(super) fn stop_clock() {
    START.set(None);
}

/// How long the simulation of this thread has lasted.
pub(super) fn elapsed() -> Duration {
    START.get().map_or(Duration::ZERO, |start| start.elapsed())
}

/// Lets virtual time pass: what is due until then happens first.
pub(super) fn pass(time: Duration) -> Sleep {
    sleep(time)
}

/// Executes `work` by Redis, with its wall clock.
pub(super) fn at_redis<T>(work: impl FnOnce() -> T) -> T {
    enter(None, work)
}

/// The wall clock of the process that is running, or of the system if this thread simulates
/// nothing.
pub(crate) fn unix_time() -> Duration {
    if START.get().is_none() {
        return switchboard_runtime::clock::unix_time();
    }
    let offset_s = CURRENT.with_borrow(|process| {
        let offset = process.as_ref().map(|process| &process.clock_offset_s);
        offset.map_or(0, |offset| offset.load(Ordering::Relaxed))
    });
    let start = Duration::from_secs(START_UNIX_S.saturating_add_signed(offset_s));
    start + elapsed()
}

pub(crate) fn unix_now_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn unique_id() -> Uuid {
    if START.get().is_none() {
        return Uuid::now_v7();
    }
    LAST_ID.set(LAST_ID.get() + 1);
    Uuid::from_u128(LAST_ID.get().into())
}
