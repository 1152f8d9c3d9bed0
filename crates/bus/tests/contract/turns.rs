//! Turns reach a worker, and replies reach the device in order, whichever node fails.

use std::{
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{
    Value,
    streams::{StreamPendingReply, StreamRangeReply},
};
use switchboard_bus::{
    Bus, BusError, CancelReason, Epoch, TURN_LEASE, Turn, TurnCancellation, TurnCancellations,
    TurnId,
};
use switchboard_protocol::id::{DeviceKey, OrgId};
use switchboard_test_support::eventually::eventually;
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestEdge, TestSystem, device},
};

pub const TASK: [u8; 8] = *b"task0001";
pub const OTHER: [u8; 8] = *b"task0002";
const MARKER: [u8; 8] = *b"marker01";
pub const TEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Long enough to claim turns that are waiting.
pub const BRIEF_TIMEOUT: Duration = Duration::from_millis(50);

pub async fn connected(edge: &Arc<TestEdge>) -> (DeviceKey, Epoch) {
    let lamp = device("toy-1");
    let epoch = edge.connect(&lamp).await;
    (lamp, epoch)
}

pub async fn enqueue(
    edge: &TestEdge,
    (device, epoch): &(DeviceKey, Epoch),
    task: [u8; 8],
    text: &str,
) {
    let text = text.to_owned();
    edge.bus
        .enqueue_turn(device, *epoch, task, text)
        .await
        .unwrap();
}

pub async fn claim(chat: &Bus) -> Turn {
    let mut turns = chat.claim_turns(1, TEST_TIMEOUT).await.unwrap();
    assert_eq!(turns.len(), 1, "a turn is claimed in time");
    turns.remove(0)
}

/// Enqueues a turn as soon as Redis is available.
pub async fn enqueue_eventually(edge: &TestEdge, (device, epoch): &(DeviceKey, Epoch), text: &str) {
    let enqueued = async || {
        let enqueued = edge.bus.enqueue_turn(device, *epoch, TASK, text.to_owned());
        enqueued.await.is_ok()
    };
    eventually(TEST_TIMEOUT, enqueued, |enqueued| *enqueued).await;
}

/// Claims turns as soon as Redis is available and has some.
async fn claim_eventually(chat: &Bus) -> Vec<Turn> {
    let claimed = async || {
        let claimed = chat.claim_turns(10, BRIEF_TIMEOUT);
        claimed.await.unwrap_or_default()
    };
    eventually(TEST_TIMEOUT, claimed, |turns| !turns.is_empty()).await
}

async fn await_ready(one: &Bus, other: &Bus) {
    let ready = tokio::join!(one.wait_ready(TEST_TIMEOUT), other.wait_ready(TEST_TIMEOUT));
    ready.0.and(ready.1).unwrap();
}

pub async fn cancel(edge: &TestEdge, (device, epoch): &(DeviceKey, Epoch), task: Option<[u8; 8]>) {
    edge.bus.cancel_turns(device, *epoch, task).await.unwrap();
}

/// The next cancellation that a worker receives.
pub async fn next_cancellation(cancellations: &mut TurnCancellations) -> TurnCancellation {
    timeout(TEST_TIMEOUT, cancellations.next()).await.unwrap()
}

/// Cancels turns, and returns the cancellation that a worker receives.
async fn cancel_and_receive(
    edge: &TestEdge,
    device: &(DeviceKey, Epoch),
    cancellations: &mut TurnCancellations,
    task: Option<[u8; 8]>,
) -> TurnCancellation {
    cancel(edge, device, task).await;
    next_cancellation(cancellations).await
}

/// Renews the leases of turns. Returns those that are lost.
pub async fn renew(chat: &Bus, turns: &[&Turn]) -> Vec<TurnId> {
    let ids: Vec<_> = turns.iter().map(|turn| turn.id.clone()).collect();
    chat.renew_turns(&ids).await.unwrap()
}

pub async fn assert_no_turn_waits(chat: &Bus) {
    let turns = chat.claim_turns(10, BRIEF_TIMEOUT).await.unwrap();
    assert!(turns.is_empty(), "{turns:?}");
}

/// Sends a marker and waits for it: what was sent earlier arrived before it, or never arrives.
async fn assert_no_other_reply(chat: &Bus, edge: &Arc<TestEdge>, device: &(DeviceKey, Epoch)) {
    enqueue(edge, device, MARKER, "and now").await;
    let marker = claim(chat).await;
    chat.send_text(&marker, "this");
    edge.expect_replies("[toy-1 marker01 this]").await;
    chat.complete_turn(&marker.id).await.unwrap();
}

#[tokio::test]
async fn turn_reaches_a_worker_and_its_reply_the_device() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let device = connected(&edge).await;
        let text = "What time is it? 现在几点了? ##END";
        enqueue(&edge, &device, TASK, text).await;
        enqueue(&edge, &device, OTHER, "").await;
        let turns = [claim(&chat).await, claim(&chat).await];
        let [first, second] = &turns;
        assert_eq!((&first.device, first.epoch), (&device.0, device.1));
        assert_eq!((&first.node, first.task), (edge.bus.node(), TASK));
        assert_eq!(
            (&*first.text, first.attempts, first.has_side_effects),
            (text, 1, false)
        );
        assert_eq!((second.task, &*second.text), (OTHER, ""));
        assert_ne!(first.id, second.id);
        chat.send_text(first, "It is ");
        chat.send_text(second, "hm");
        chat.send_text(first, "");
        chat.send_text(first, "14:30");
        chat.finish_reply(first);
        edge.expect_replies("[toy-1 task0001 It is ][toy-1 task0002 hm][toy-1 task0001 14:30]|")
            .await;
        chat.renew_turns(from_ref(&second.id)).await.unwrap();
        chat.finish_reply(second);
        edge.expect_replies("~|").await;
        for turn in &turns {
            assert!(chat.mark_side_effects(&turn.id).await.unwrap());
            chat.complete_turn(&turn.id).await.unwrap();
            assert!(!chat.mark_side_effects(&turn.id).await.unwrap(), "deleted");
            chat.send_text(turn, "too late");
        }
        assert_no_turn_waits(&chat).await;
        assert_no_other_reply(&chat, &edge, &device).await;
    })
    .await;
}

#[tokio::test]
async fn node_answers_its_own_device() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let device = connected(&edge).await;
        enqueue(&edge, &device, TASK, "hello").await;
        let turn = claim(&edge.bus).await;
        edge.bus.send_text(&turn, "hello yourself");
        edge.bus.finish_reply(&turn);
        assert_eq!(edge.replies(), "[toy-1 task0001 hello yourself]|");
    })
    .await;
}

#[tokio::test]
async fn workers_share_turns_and_each_is_claimed_once() {
    const TURNS: usize = 40;
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let workers = [
            system.start_node("chat").await,
            system.start_node("chat").await,
        ];
        let device = connected(&edge).await;
        let all = Arc::new(AtomicUsize::new(0));
        let mut claiming = JoinSet::new();
        for worker in workers {
            let all = Arc::clone(&all);
            claiming.spawn(async move {
                let mut texts = Vec::new();
                while all.load(Ordering::Acquire) < TURNS {
                    let turns = worker.claim_turns(1, BRIEF_TIMEOUT).await.unwrap();
                    all.fetch_add(turns.len(), Ordering::AcqRel);
                    texts.extend(turns.into_iter().map(|turn| turn.text));
                }
                // No turn is left.
                let more = worker.claim_turns(TURNS, BRIEF_TIMEOUT).await.unwrap();
                texts.extend(more.into_iter().map(|turn| turn.text));
                texts
            });
        }
        let mut enqueued: Vec<_> = (0..TURNS).map(|n| n.to_string()).collect();
        for text in &enqueued {
            enqueue(&edge, &device, TASK, text).await;
        }
        let mut claimed = claiming.join_all().await.concat();
        claimed.sort();
        enqueued.sort();
        assert_eq!(claimed, enqueued);
    })
    .await;
}

#[tokio::test]
async fn turn_of_a_dead_worker_is_claimed_by_another() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (dead, chat) = system.start_nodes("chat-1", "chat-2").await;
        let device = connected(&edge).await;
        enqueue(&edge, &device, TASK, "acted").await;
        enqueue(&edge, &device, OTHER, "kept").await;
        let (acted, kept) = (claim(&dead).await, claim(&dead).await);
        assert!(dead.mark_side_effects(&acted.id).await.unwrap());
        dead.send_text(&acted, "It ");
        edge.expect_replies("[toy-1 task0001 It ]").await;
        let claim_abandoned = async || {
            assert_eq!(renew(&dead, &[&kept]).await, []);
            chat.claim_turns(10, BRIEF_TIMEOUT).await.unwrap()
        };
        let within = TURN_LEASE + TEST_TIMEOUT;
        let taken = eventually(within, claim_abandoned, |turns| !turns.is_empty()).await;
        let [again] = &taken[..] else {
            panic!("{taken:?}");
        };
        assert_eq!(
            (&*again.text, again.attempts, again.has_side_effects),
            ("acted", 2, true)
        );
        assert!(!dead.mark_side_effects(&acted.id).await.unwrap());
        dead.complete_turn(&acted.id).await.unwrap();
        let lost = renew(&dead, &[&kept, &acted]).await;
        assert_eq!(
            lost,
            from_ref(&acted.id),
            "the worker that lost it is notified"
        );
        // One node may know both claims of the turn.
        assert_eq!(renew(&chat, &[&acted, again]).await, lost);
        assert!(chat.mark_side_effects(&again.id).await.unwrap());
        let before = edge.replies().replace('~', "");
        chat.send_text(again, "Sorry");
        dead.send_text(&acted, "is");
        chat.finish_reply(again);
        let replies = async || edge.replies().replace('~', "");
        let expected = format!("{before}^[toy-1 task0001 Sorry]|");
        eventually(TEST_TIMEOUT, replies, |replies| *replies == expected).await;
        chat.complete_turn(&again.id).await.unwrap();
        assert!(
            dead.mark_side_effects(&kept.id).await.unwrap(),
            "its lease was renewed"
        );
        let lost = renew(&chat, &[again]).await;
        assert_eq!(lost, from_ref(&again.id), "completed");
    })
    .await;
}

#[tokio::test]
async fn cancelled_turn_notifies_workers_and_is_deleted() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let device = connected(&edge).await;
        let mut cancellations = chat.turn_cancellations();
        enqueue(&edge, &device, TASK, "taken").await;
        let taken = claim(&chat).await;
        enqueue(&edge, &device, OTHER, "waiting").await;
        for task in [TASK, OTHER] {
            let cancellation =
                cancel_and_receive(&edge, &device, &mut cancellations, Some(task)).await;
            assert_eq!(
                (&cancellation.device, cancellation.epoch),
                (&device.0, device.1)
            );
            assert_eq!(
                (cancellation.task, cancellation.reason),
                (Some(task), CancelReason::Unwanted)
            );
            assert_eq!(cancellation.applies_to(&taken), task == TASK);
        }
        assert!(!chat.mark_side_effects(&taken.id).await.unwrap());
        let lost = renew(&chat, &[&taken]).await;
        assert_eq!(lost, from_ref(&taken.id), "cancelled");
        chat.send_text(&taken, "unwanted text");
        chat.finish_reply(&taken);
        assert_no_turn_waits(&chat).await;
        // A later turn on the same task is another one.
        enqueue(&edge, &device, TASK, "new").await;
        let new = claim(&chat).await;
        chat.send_text(&taken, "nor this");
        chat.send_text(&new, "but this");
        edge.expect_replies("[toy-1 task0001 but this]").await;
        // The connection has ended, with all of its turns.
        let cancellation = cancel_and_receive(&edge, &device, &mut cancellations, None).await;
        assert_eq!(
            (cancellation.task, cancellation.reason),
            (None, CancelReason::Unwanted)
        );
        assert!(cancellation.applies_to(&new));
        chat.send_text(&new, "nor this");
        assert!(!chat.mark_side_effects(&new.id).await.unwrap());
        let device = connected(&edge).await;
        assert_no_other_reply(&chat, &edge, &device).await;
    })
    .await;
}

#[tokio::test]
async fn cancellation_spares_later_turns_on_the_same_task() {
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let device = connected(&edge).await;
        let mut cancellations = chat.turn_cancellations();
        enqueue(&edge, &device, TASK, "old").await;
        let old = claim(&chat).await;
        cancel(&edge, &device, Some(TASK)).await;
        enqueue(&edge, &device, TASK, "new").await;
        enqueue(&edge, &device, OTHER, "other").await;
        let (new, other) = (claim(&chat).await, claim(&chat).await);
        // The cancellation is received only now.
        let cancellation = next_cancellation(&mut cancellations).await;
        assert!(cancellation.applies_to(&old));
        assert!(!cancellation.applies_to(&new) && !cancellation.applies_to(&other));
        // The end of the connection does not cancel the turns of its successor.
        let successor = connected(&edge).await;
        enqueue(&edge, &successor, TASK, "newer").await;
        let newer = claim(&chat).await;
        let cancellation = cancel_and_receive(&edge, &device, &mut cancellations, None).await;
        assert!(cancellation.applies_to(&new) && cancellation.applies_to(&other));
        assert!(!cancellation.applies_to(&newer));
        chat.send_text(&newer, "here");
        edge.expect_replies("[toy-1 task0001 here]").await;
    })
    .await;
}

#[tokio::test]
async fn turns_beyond_the_limit_are_refused() {
    const MAX_TURNS: usize = 10_000;
    const ORGS: u128 = 5;
    for_each_backend(|system| async move {
        let (chat, edge) = system.start_with_edge("chat").await;
        let (device, epoch) = connected(&edge).await;
        let mut devices = Vec::new();
        for org in 1..=ORGS {
            let org = OrgId::from_uuid(Uuid::from_u128(org));
            let device = device.device.clone();
            let device = DeviceKey { org, device };
            devices.push((edge.connect(&device).await, device));
        }
        let mut enqueuing = JoinSet::new();
        for (epoch, device) in [devices.clone(), devices].concat() {
            let edge = Arc::clone(&edge);
            enqueuing.spawn(async move {
                for count in 0..=MAX_TURNS {
                    let enqueued = edge
                        .bus
                        .enqueue_turn(&device, epoch, TASK, "first".to_owned())
                        .await;
                    match enqueued {
                        Ok(()) => {}
                        Err(BusError::Overloaded) => return count,
                        Err(error) => panic!("{error}"),
                    }
                }
                panic!("one task alone exceeds {MAX_TURNS}");
            });
        }
        let count: usize = enqueuing.join_all().await.into_iter().sum();
        assert_eq!(count, MAX_TURNS);
        let first = claim(&chat).await;
        let enqueue_next = async || {
            let text = "next".to_owned();
            edge.bus.enqueue_turn(&device, epoch, OTHER, text).await
        };
        assert!(matches!(enqueue_next().await, Err(BusError::Overloaded)));
        chat.complete_turn(&first.id).await.unwrap();
        enqueue_next().await.unwrap();
        assert!(matches!(enqueue_next().await, Err(BusError::Overloaded)));
    })
    .await;
}

#[tokio::test]
async fn in_redis_expired_turns_make_room_for_new_ones() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let device = connected(&edge).await;
    let mut fill = redis::cmd("EVAL");
    let code = "for i = 1, 10000 do redis.call('XADD', KEYS[1], '1-' .. i, 'text', 'stale') end
        redis.call('XGROUP', 'CREATE', KEYS[1], 'chat', '0')
        redis.call('XREADGROUP', 'GROUP', 'chat', 'worker', 'COUNT', 3, 'STREAMS', KEYS[1], '>')";
    system
        .query::<()>(fill.arg(code).arg(1).arg("test:{turns}"))
        .await;
    enqueue(&edge, &device, TASK, "new").await;
    let mut count = redis::cmd("XLEN");
    let left: usize = system.query(count.arg("test:{turns}")).await;
    assert!(left < 10_000, "{left}");
    let mut oldest = redis::cmd("XRANGE");
    oldest.arg(&["test:{turns}", "-", "+", "COUNT", "4"]);
    let oldest: StreamRangeReply = system.query(&oldest).await;
    let ids: Vec<_> = oldest.ids.iter().map(|entry| &*entry.id).collect();
    assert_eq!(ids[..3], ["1-1", "1-2", "1-3"], "leased");
    assert_ne!(ids[3], "1-4");
}

#[tokio::test]
async fn turn_of_an_ended_connection_is_not_reclaimed() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (dead, chat) = system.start_nodes("chat-1", "chat-2").await;
        let device = connected(&edge).await;
        enqueue(&edge, &device, TASK, "old").await;
        claim(&dead).await;
        let device = connected(&edge).await;
        let again = chat
            .claim_turns(10, TURN_LEASE + TEST_TIMEOUT)
            .await
            .unwrap();
        assert!(again.is_empty(), "{again:?}");
        enqueue(&edge, &device, TASK, "new").await;
        assert_eq!(claim(&chat).await.text, "new");
    })
    .await;
}

/// After an outage of Redis, the worker is back before the edge.
#[tokio::test(flavor = "multi_thread")]
async fn in_redis_turn_of_an_edge_without_entries_is_answered() {
    let system = TestSystem::redis().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let device = connected(&edge).await;
    enqueue(&edge, &device, TASK, "Hello?").await;
    let enqueued = Instant::now();
    let waited = async || enqueued.elapsed();
    // The presence of a device whose turn has waited for less is not read.
    let is_old = |waited: &Duration| *waited > Duration::from_millis(1_100);
    eventually(TEST_TIMEOUT, waited, is_old).await;
    system.expire_lease(edge.bus.node()).await;
    assert!(chat.find(&device.0).await.unwrap().is_none());
    let turn = claim(&chat).await;
    chat.send_text(&turn, "here");
    edge.expect_replies("[toy-1 task0001 here]").await;
}

#[tokio::test]
async fn worker_of_an_orphan_reply_is_notified() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (chat, other) = system.start_nodes("chat", "other").await;
        let device = connected(&edge).await;
        let (mut cancellations, mut others) =
            (chat.turn_cancellations(), other.turn_cancellations());
        enqueue(&edge, &device, TASK, "old").await;
        let old = claim(&chat).await;
        // Its node knows of no unfinished turn, so it notifies no worker when the device
        // disconnects.
        edge.bus.discard_turns(&device.0, device.1);
        chat.send_text(&old, "orphan text");
        chat.send_text(&old, "at all");
        let cancellation = next_cancellation(&mut cancellations).await;
        assert!(cancellation.applies_to(&old));
        assert_eq!(
            (cancellation.task, cancellation.reason),
            (Some(TASK), CancelReason::Unwanted)
        );
        assert_no_other_reply(&chat, &edge, &device).await;
        // The worker alone is notified, once, and later turns are not affected.
        enqueue(&edge, &device, TASK, "new").await;
        let new = claim(&chat).await;
        assert!(!cancellation.applies_to(&new));
        cancel(&edge, &device, Some(OTHER)).await;
        for receiver in [&mut cancellations, &mut others] {
            let next = next_cancellation(receiver).await;
            assert_eq!(next.task, Some(OTHER), "{next:?}");
        }
        chat.send_text(&new, "here");
        edge.expect_replies("[toy-1 task0001 here]").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_turn_enqueued_after_timeout_is_cancelled() {
    let mut system = TestSystem::redis().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let device = connected(&edge).await;
    let mut cancellations = chat.turn_cancellations();
    system.server().pause();
    let text = "late".to_owned();
    let enqueued = edge.bus.enqueue_turn(&device.0, device.1, TASK, text).await;
    assert!(
        matches!(enqueued, Err(BusError::Timeout(_))),
        "{enqueued:?}"
    );
    // The command was queued there, and is executed now.
    system.server().resume();
    await_ready(&edge.bus, &chat).await;
    let taken = claim_eventually(&chat).await;
    let [late] = &taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!(late.text, "late");
    // The device begins another turn on the same task.
    enqueue_eventually(&edge, &device, "again").await;
    let again = claim(&chat).await;
    assert_eq!(again.text, "again");
    // A keep-alive is enough to be notified.
    chat.renew_turns(from_ref(&late.id)).await.unwrap();
    let cancellation = next_cancellation(&mut cancellations).await;
    assert!(cancellation.applies_to(late) && !cancellation.applies_to(&again));
    chat.send_text(late, "orphan text");
    chat.send_text(&again, "here");
    edge.expect_replies("[toy-1 task0001 here]").await;
}

#[tokio::test]
async fn in_redis_abandoned_turn_is_found_behind_many() {
    const OTHERS: usize = 1_500;
    let system = TestSystem::redis().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let device = connected(&edge).await;
    assert_no_turn_waits(&chat).await;
    let mut fill = redis::cmd("EVAL");
    let code = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '1-' .. i, 'text', 'busy') end
        redis.call('XREADGROUP', 'GROUP', 'chat', 'alive', 'COUNT', ARGV[1],
          'STREAMS', KEYS[1], '>')";
    fill.arg(code).arg(1).arg("test:{turns}").arg(OTHERS);
    system.query::<Value>(&fill).await;
    enqueue(&edge, &device, TASK, "abandoned").await;
    let first = claim(&chat).await;
    // Its worker has been idle for a minute.
    let mut xclaim = redis::cmd("XCLAIM");
    xclaim.arg(&["test:{turns}", "chat", "dead", "0"]);
    xclaim.arg(first.id.to_string()).arg(&["IDLE", "60000"]);
    system.query::<Value>(&xclaim).await;
    let again = claim(&chat).await;
    assert_eq!((&*again.text, again.attempts), ("abandoned", 3));
}

#[tokio::test]
async fn in_redis_cancelled_turn_leaves_nothing() {
    let system = TestSystem::redis().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let device = connected(&edge).await;
    enqueue(&edge, &device, TASK, "sing").await;
    claim(&chat).await;
    let mut pending = redis::cmd("XPENDING");
    pending.arg(&["test:{turns}", "chat"]);
    let held: StreamPendingReply = system.query(&pending).await;
    assert_eq!(held.count(), 1);
    cancel(&edge, &device, Some(TASK)).await;
    let held: StreamPendingReply = system.query(&pending).await;
    assert_eq!(held.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_continue_after_a_redis_restart() {
    let mut system = TestSystem::redis().await;
    let (chat, edge) = system.start_with_edge("chat").await;
    let device = connected(&edge).await;
    enqueue(&edge, &device, TASK, "held").await;
    let held = claim(&chat).await;
    enqueue(&edge, &device, OTHER, "waiting").await;
    system.server().kill();
    let refused = async || {
        let text = "refused".to_owned();
        edge.bus
            .enqueue_turn(&device.0, device.1, OTHER, text)
            .await
            .is_err()
    };
    eventually(TEST_TIMEOUT, refused, |refused| *refused).await;
    system.server().restart();
    await_ready(&edge.bus, &chat).await;
    // Redis has lost both: the leased turn must cause no side effects, the other is never claimed.
    let marked = async || chat.mark_side_effects(&held.id).await.ok();
    eventually(TEST_TIMEOUT, marked, |marked| *marked == Some(false)).await;
    enqueue_eventually(&edge, &device, "new").await;
    let taken = claim_eventually(&chat).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].text, "new");
    chat.send_text(&taken[0], "here");
    edge.expect_replies("[toy-1 task0001 here]").await;
}
