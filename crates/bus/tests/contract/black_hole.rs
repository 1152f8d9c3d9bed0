//! Connections to Redis that stay open and forward nothing for a while: no FIN, no RST. What was
//! sent in the meantime arrives when they continue.

use std::time::{Duration, Instant};

use switchboard_bus::{Answer, Bus, BusError};
use switchboard_protocol::{
    id::CallId,
    outcome::{Delivered, Outcome},
};
use switchboard_test_support::{
    redis_server::RedisServer,
    tcp_proxy::{Direction, TcpProxy},
};
use tokio::{task::JoinSet, time::interval};

use crate::{
    faults::await_success,
    test_edge::{TestSystem, call_for, device},
};

const CALL_INTERVAL: Duration = Duration::from_millis(50);
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than it takes to notice, and shorter than a lease.
const HOLE: Duration = Duration::from_secs(8);
const HEAL_TIMEOUT: Duration = Duration::from_secs(6);
/// How late a call may be executed, and how late it may end during a failure.
const MAX_EXECUTION_DELAY: Duration = Duration::from_millis(250);
const MAX_END_DELAY: Duration = Duration::from_secs(1);

/// A call that has ended.
struct Ended {
    id: CallId,
    made: Instant,
    took: Duration,
    result: Result<Answer, BusError>,
}

/// Makes calls for this long.
async fn keep_calling(caller: &Bus, time: Duration, calls: &mut JoinSet<Ended>) {
    let (begun, mut ticks) = (Instant::now(), interval(CALL_INTERVAL));
    while begun.elapsed() < time {
        ticks.tick().await;
        let mut call = call_for(&device("toy-1"), "{}");
        call.timeout = CALL_TIMEOUT;
        let (caller, id, made) = (caller.clone(), call.id, Instant::now());
        calls.spawn(async move {
            let result = caller.call(call).await;
            Ended {
                id,
                made,
                took: made.elapsed(),
                result,
            }
        });
    }
}

/// Calls a device while one side is cut off, and after it: each call has a true end in time.
async fn check_calls(cut_off: impl FnOnce(TcpProxy, TcpProxy) -> [TcpProxy; 2]) {
    let server = RedisServer::start();
    let [near, far] = [
        TcpProxy::start(server.address()).await,
        TcpProxy::start(server.address()).await,
    ];
    let callers = TestSystem::with_url(near.redis_url());
    let edges = TestSystem::with_url(far.redis_url());
    let caller = callers.start_node("caller").await;
    let edge = edges.start_edge("edge").await;
    edge.connect_device("toy-1").await;
    await_success(&caller, Duration::from_secs(5)).await;
    let [hole, _other] = cut_off(near, far);
    let mut calls = JoinSet::new();
    hole.black_hole(Direction::Both);
    keep_calling(&caller, HOLE, &mut calls).await;
    hole.pass();
    await_success(&caller, HEAL_TIMEOUT).await;
    // What waited in a socket arrives by then.
    keep_calling(&caller, CALL_TIMEOUT, &mut calls).await;
    let (calls, delivered) = (calls.join_all().await, edge.deliveries());
    let mut ends = [0; 2];
    for Ended {
        id,
        made,
        took,
        result,
    } in calls
    {
        assert!(took < CALL_TIMEOUT + MAX_END_DELAY, "{took:?}: {result:?}");
        let executed: Vec<_> = delivered.iter().filter(|(call, _)| *call == id).collect();
        for (_, at) in &executed {
            let late = at.saturating_duration_since(made + CALL_TIMEOUT);
            assert!(late <= MAX_EXECUTION_DELAY, "{late:?} late: {result:?}");
        }
        let end = result.as_ref().map(|end| (end.outcome, end.delivered));
        match end {
            Ok((Outcome::Succeeded, _)) => assert_eq!(executed.len(), 1),
            Err(_) | Ok((_, Delivered::No)) => assert!(executed.is_empty(), "{result:?}"),
            Ok((Outcome::TimedOut | Outcome::Lost, _)) => {
                assert!(executed.len() <= 1, "{result:?}");
            }
            other => panic!("not an end that this fault can have: {other:?}"),
        }
        ends[usize::from(matches!(end, Ok((Outcome::Succeeded, _))))] += 1;
    }
    assert!(ends.iter().all(|count| *count > 0), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i9_calls_end_truly_while_the_caller_is_in_a_black_hole() {
    check_calls(|near, far| [near, far]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i9_calls_end_truly_while_the_edge_is_in_a_black_hole() {
    check_calls(|near, far| [far, near]).await;
}
