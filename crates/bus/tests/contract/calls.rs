//! Calls: every call has exactly one outcome, and a correct one.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use switchboard_bus::CancelKey;
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_test_support::eventually::eventually;

use crate::{
    for_each_backend,
    test_edge::{call, call_for, device, done, spawn_calls},
};

#[tokio::test]
async fn call_crosses_nodes_and_returns_its_bytes() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let device = edge.connect_device("toy-1").await;
        let answer = caller
            .call(call_for(&device, "{\"问\": \"现在几点了?\"}"))
            .await
            .unwrap();
        assert_eq!(
            (answer.outcome, answer.delivered),
            (Outcome::Succeeded, Delivered::Yes)
        );
        assert_eq!(
            &*answer.body,
            "{\"success\":true,\"data\":{\"问\": \"现在几点了?\"}}".as_bytes()
        );
        assert_eq!(caller.pending_calls(), 0);
    })
    .await;
}

#[tokio::test]
async fn node_calls_its_own_device() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        edge.connect(&device("toy-1")).await;
        assert_eq!(
            call(&edge.bus, &device("toy-1")).await.unwrap().outcome,
            Outcome::Succeeded
        );
    })
    .await;
}

#[tokio::test]
async fn unknown_device_is_offline_and_not_delivered() {
    for_each_backend(|system| async move {
        let caller = system.start_node("caller").await;
        let answer = call(&caller, &device("unknown")).await.unwrap();
        assert_eq!(
            (answer.outcome, answer.delivered),
            (Outcome::Offline, Delivered::No)
        );
    })
    .await;
}

#[tokio::test]
async fn i1_silent_device_times_out_at_the_deadline() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        edge.connect(&device("toy-1")).await;
        edge.hold_answers();
        // A busy machine may be late now and then.
        let mut soonest = Duration::MAX;
        for _ in 0..10 {
            let mut silent = call_for(&device("toy-1"), "{}");
            silent.timeout = Duration::from_millis(300);
            let started = Instant::now();
            let answer = caller.call(silent).await.unwrap();
            assert_eq!(
                (answer.outcome, answer.delivered),
                (Outcome::TimedOut, Delivered::Unknown)
            );
            assert!(started.elapsed() >= Duration::from_millis(300));
            soonest = soonest.min(started.elapsed());
            if soonest < Duration::from_millis(550) {
                break;
            }
        }
        assert!(
            soonest < Duration::from_millis(550),
            "deadline + 250 ms: {soonest:?}"
        );
        edge.release_answers();
        assert_eq!(
            call(&caller, &device("toy-1")).await.unwrap().outcome,
            Outcome::Succeeded,
            "a call after a late answer"
        );
        assert_eq!(caller.pending_calls(), 0);
    })
    .await;
}

#[tokio::test]
async fn moved_device_is_found_and_called_once() {
    for_each_backend(|system| async move {
        let caller = system.start_node("caller").await;
        let (first, second) = system.start_edges("first", "second").await;
        let device = first.connect_device("toy-1").await;
        call(&caller, &device).await.unwrap();
        // The caller's cache has the first node; the device reconnects to the second.
        first.disconnect(&device);
        second.connect(&device).await;
        assert_eq!(
            call(&caller, &device).await.unwrap().outcome,
            Outcome::Succeeded
        );
        assert_eq!((first.delivered().len(), second.delivered().len()), (1, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_leaving_node_answers_all_received_calls() {
    for_each_backend(|system| async move {
        let caller = system.start_node("caller").await;
        let lamp = device("toy-1");
        for _ in 0..10 {
            let edge = system.start_edge("edge").await;
            edge.connect(&lamp).await;
            let mut flows = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let (caller, lamp) = (caller.clone(), lamp.clone());
                flows.spawn(async move {
                    loop {
                        let answer = call(&caller, &lamp).await.unwrap();
                        if answer.outcome != Outcome::Succeeded {
                            return (answer.outcome, answer.delivered);
                        }
                    }
                });
            }
            let delivered = async || edge.delivered().len();
            eventually(Duration::from_secs(5), delivered, |count| *count > 100).await;
            edge.shutdown.stop();
            for end in flows.join_all().await {
                assert_eq!(end, (Outcome::Offline, Delivered::No));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_owner_node() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        edge.connect(&device("toy-1")).await;
        edge.hold_answers();
        let call = call_for(&device("toy-1"), "{}");
        let id = call.id;
        let result = tokio::time::timeout(Duration::from_millis(200), caller.call(call)).await;
        assert!(result.is_err(), "the device does not answer");
        let cancelled = eventually(
            Duration::from_secs(5),
            async || edge.cancelled(),
            |calls| !calls.is_empty(),
        )
        .await;
        assert_eq!(cancelled, [id]);
        assert_eq!(caller.pending_calls(), 0);
    })
    .await;
}

#[tokio::test]
async fn call_is_cancelled_from_any_node() {
    for_each_backend(|system| async move {
        let (caller, other) = system.start_nodes("caller", "other").await;
        let edge = system.start_edge("edge").await;
        let device = edge.connect_device("toy-1").await;
        edge.hold_answers();
        // From its own node, from another, and from the owner node.
        for (n, requester) in [&caller, &other, &edge.bus].into_iter().enumerate() {
            let n = u8::try_from(n).unwrap();
            let mut calls = tokio::task::JoinSet::new();
            let [running, cancelled] =
                [CancelKey([n; 16]), CancelKey([n + 128; 16])].map(|cancel_key| {
                    let mut call = call_for(&device, "{}");
                    call.cancel_key = Some(cancel_key);
                    let (id, caller) = (call.id, caller.clone());
                    calls.spawn(async move { (id, caller.call(call).await.unwrap()) });
                    (cancel_key, id)
                });
            let replies = edge.held_calls(2).await;
            requester.cancel_call(CancelKey([255; 16])).await.unwrap();
            requester.cancel_call(cancelled.0).await.unwrap();
            let (id, answer) = calls.join_next().await.unwrap().unwrap();
            assert_eq!(
                (id, answer.outcome, answer.delivered),
                (cancelled.1, Outcome::Cancelled, Delivered::Unknown)
            );
            let notified = async || edge.cancelled().get(usize::from(n)).copied();
            let notified = eventually(Duration::from_secs(5), notified, Option::is_some).await;
            assert_eq!(notified, Some(cancelled.1));
            // The other call continues.
            replies
                .iter()
                .for_each(|reply| edge.bus.answer(reply, done()));
            let (id, answer) = calls.join_next().await.unwrap().unwrap();
            assert_eq!((id, answer.outcome), (running.1, Outcome::Succeeded));
            requester.cancel_call(running.0).await.unwrap();
        }
        assert_eq!(caller.pending_calls(), 0);
        assert_eq!(edge.cancelled().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn concurrent_calls_receive_their_own_answers() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..1000 {
            let lamp = device(&format!("toy-{}", n % 10));
            if n < 10 {
                edge.connect(&lamp).await;
            }
            let caller = caller.clone();
            calls.spawn(async move {
                (
                    n,
                    caller
                        .call(call_for(&lamp, format!("{{\"n\":{n}}}")))
                        .await
                        .unwrap(),
                )
            });
        }
        let answers = calls.join_all().await;
        for (n, answer) in &answers {
            assert_eq!(
                &*answer.body,
                format!("{{\"success\":true,\"data\":{{\"n\":{n}}}}}").as_bytes()
            );
        }
        let delivered = edge.delivered();
        let distinct: HashSet<_> = delivered.iter().collect();
        assert_eq!(
            (delivered.len(), distinct.len()),
            (1000, 1000),
            "each call once"
        );
    })
    .await;
}

/// Steady traffic must not depend on probes: a stalled call is released by the next probe, seconds
/// later, and would time out here.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn steady_traffic_of_many_callers_never_stalls() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let device = edge.connect_device("toy-1").await;
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (caller, device) = (caller.clone(), device.clone());
            callers.spawn(async move {
                for n in 0..200 {
                    let mut call = call_for(&device, format!("{{\"n\":{n}}}"));
                    call.timeout = Duration::from_secs(1);
                    let answer = caller.call(call).await.unwrap();
                    assert_eq!(answer.outcome, Outcome::Succeeded, "call {n}");
                }
            });
        }
        callers.join_all().await;
    })
    .await;
}

#[tokio::test]
async fn i5_late_answer_changes_nothing() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        edge.connect(&device("toy-1")).await;
        edge.hold_answers();
        let mut first = call_for(&device("toy-1"), "{}");
        first.timeout = Duration::from_millis(100);
        assert_eq!(caller.call(first).await.unwrap().outcome, Outcome::TimedOut);
        // The next call reuses the slot of the first; the late answer must not complete it.
        let second = spawn_calls(&caller, [call_for(&device("toy-1"), "{}")]);
        edge.await_delivered(2).await;
        edge.release_answers();
        let answers = second.join_all().await;
        assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Succeeded);
    })
    .await;
}
