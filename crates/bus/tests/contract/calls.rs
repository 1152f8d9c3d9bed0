//! One call, one end, and a truthful one.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use switchboard_bus::Handle;
use switchboard_protocol::outcome::{Delivered, Outcome};

use crate::{
    eventually::eventually,
    over_all,
    station::{call, call_for, device, done},
};

#[tokio::test]
async fn a_call_crosses_nodes_and_its_bytes_come_back() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let toy = device("toy-1");
        edge.connect(&toy).await;
        let answer = caller
            .call(call_for(&toy, "{\"问\": \"现在几点了?\"}"))
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
        assert_eq!(caller.calls_waiting(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_node_calls_its_own_devices() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        edge.connect(&device("toy-1")).await;
        assert_eq!(
            call(&edge.bus, &device("toy-1")).await.unwrap().outcome,
            Outcome::Succeeded
        );
    })
    .await;
}

#[tokio::test]
async fn a_device_that_is_nowhere_is_offline_and_nothing_was_delivered() {
    over_all(|site| async move {
        let caller = site.caller("caller").await;
        let answer = call(&caller, &device("nobody")).await.unwrap();
        assert_eq!(
            (answer.outcome, answer.delivered),
            (Outcome::Offline, Delivered::No)
        );
    })
    .await;
}

#[tokio::test]
async fn i1_a_silent_device_times_out_at_the_deadline() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        edge.connect(&device("toy-1")).await;
        edge.mute();
        // A machine that is busy with something else may be late now and then.
        let mut soonest = Duration::MAX;
        for _ in 0..10 {
            let mut silent = call_for(&device("toy-1"), "{}");
            silent.timeout = Duration::from_millis(300);
            let begun = Instant::now();
            let answer = caller.call(silent).await.unwrap();
            assert_eq!(
                (answer.outcome, answer.delivered),
                (Outcome::TimedOut, Delivered::Unknown)
            );
            assert!(begun.elapsed() >= Duration::from_millis(300));
            soonest = soonest.min(begun.elapsed());
            if soonest < Duration::from_millis(550) {
                break;
            }
        }
        assert!(
            soonest < Duration::from_millis(550),
            "deadline + 250 ms: {soonest:?}"
        );
        edge.speak();
        assert_eq!(
            call(&caller, &device("toy-1")).await.unwrap().outcome,
            Outcome::Succeeded,
            "after a late answer"
        );
        assert_eq!(caller.calls_waiting(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_device_that_moved_is_found_and_called_once() {
    over_all(|site| async move {
        let caller = site.caller("caller").await;
        let (first, second) = (site.station("first").await, site.station("second").await);
        let toy = device("toy-1");
        first.connect(&toy).await;
        call(&caller, &toy).await.unwrap();
        // The caller remembers the first node; the device leaves it for the second.
        first.disconnect(&toy);
        second.connect(&toy).await;
        assert_eq!(
            call(&caller, &toy).await.unwrap().outcome,
            Outcome::Succeeded
        );
        assert_eq!((first.delivered().len(), second.delivered().len()), (1, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_node_that_leaves_answers_whatever_it_was_sent() {
    over_all(|site| async move {
        let caller = site.caller("caller").await;
        let toy = device("toy-1");
        for _ in 0..10 {
            let edge = site.station("edge").await;
            edge.connect(&toy).await;
            let mut flows = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let (caller, toy) = (caller.clone(), toy.clone());
                flows.spawn(async move {
                    loop {
                        let answer = call(&caller, &toy).await.unwrap();
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
async fn a_dropped_call_is_cancelled_at_its_node() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        edge.connect(&device("toy-1")).await;
        edge.mute();
        let left = call_for(&device("toy-1"), "{}");
        let id = left.id;
        let patience = tokio::time::timeout(Duration::from_millis(200), caller.call(left)).await;
        assert!(patience.is_err(), "a mute device answered");
        let cancelled = eventually(
            Duration::from_secs(5),
            async || edge.cancelled(),
            |calls| !calls.is_empty(),
        )
        .await;
        assert_eq!(cancelled, [id]);
        assert_eq!(caller.calls_waiting(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_call_is_taken_back_from_whichever_node_its_caller_asks() {
    over_all(|site| async move {
        let (caller, other) = (site.caller("caller").await, site.caller("other").await);
        let edge = site.station("edge").await;
        let toy = device("toy-1");
        edge.connect(&toy).await;
        edge.mute();
        // Where it was made, elsewhere, and where the device is.
        for (n, asked) in [&caller, &other, &edge.bus].into_iter().enumerate() {
            let n = u8::try_from(n).unwrap();
            let mut calls = tokio::task::JoinSet::new();
            let [kept, taken_back] = [Handle([n; 16]), Handle([n + 128; 16])].map(|handle| {
                let mut call = call_for(&toy, "{}");
                call.handle = Some(handle);
                let (id, caller) = (call.id, caller.clone());
                calls.spawn(async move { (id, caller.call(call).await.unwrap()) });
                (handle, id)
            });
            let replies = edge.unanswered(2).await;
            asked.withdraw(Handle([255; 16])).await.unwrap();
            asked.withdraw(taken_back.0).await.unwrap();
            let (id, answer) = calls.join_next().await.unwrap().unwrap();
            assert_eq!(
                (id, answer.outcome, answer.delivered),
                (taken_back.1, Outcome::Cancelled, Delivered::Unknown)
            );
            let told = async || edge.cancelled().get(usize::from(n)).copied();
            let told = eventually(Duration::from_secs(5), told, Option::is_some).await;
            assert_eq!(told, Some(taken_back.1));
            // The other one goes on.
            replies
                .iter()
                .for_each(|reply| edge.bus.answer(reply, done()));
            let (id, answer) = calls.join_next().await.unwrap().unwrap();
            assert_eq!((id, answer.outcome), (kept.1, Outcome::Succeeded));
            asked.withdraw(kept.0).await.unwrap();
        }
        assert_eq!(caller.calls_waiting(), 0);
        assert_eq!(edge.cancelled().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_calls_at_once_each_get_their_own_answer() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..1000 {
            let toy = device(&format!("toy-{}", n % 10));
            if n < 10 {
                edge.connect(&toy).await;
            }
            let caller = caller.clone();
            calls.spawn(async move {
                (
                    n,
                    caller
                        .call(call_for(&toy, format!("{{\"n\":{n}}}")))
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

/// Nothing but traffic may be needed to keep traffic going: a call that is left lying is freed by
/// the next probe, seconds later, and would time out here.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn steady_traffic_of_many_callers_never_stalls() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let toy = device("toy-1");
        edge.connect(&toy).await;
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (caller, toy) = (caller.clone(), toy.clone());
            callers.spawn(async move {
                for n in 0..200 {
                    let mut call = call_for(&toy, format!("{{\"n\":{n}}}"));
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
async fn i5_an_answer_after_the_end_changes_nothing() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        edge.connect(&device("toy-1")).await;
        edge.mute();
        let mut first = call_for(&device("toy-1"), "{}");
        first.timeout = Duration::from_millis(100);
        assert_eq!(caller.call(first).await.unwrap().outcome, Outcome::TimedOut);
        // The next call takes the slot that the first gave back; the late answer must miss it.
        let second = {
            let (caller, toy) = (caller.clone(), device("toy-1"));
            tokio::task::JoinSet::from_iter([
                async move { caller.call(call_for(&toy, "{}")).await },
            ])
        };
        eventually(
            Duration::from_secs(5),
            async || edge.delivered().len(),
            |count| *count == 2,
        )
        .await;
        edge.speak();
        let answers = second.join_all().await;
        assert_eq!(answers[0].as_ref().unwrap().outcome, Outcome::Succeeded);
    })
    .await;
}
