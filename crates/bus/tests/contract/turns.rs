//! A device's words reach one who answers, and the answer comes back in order, whatever dies.

use std::{
    slice::from_ref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    Value,
    streams::{StreamPendingReply, StreamRangeReply},
};
use switchboard_bus::{
    Bus, BusError, Epoch, Stop, StopReason, TURN_LEASE, Turn, TurnId, TurnStops,
};
use switchboard_protocol::id::DeviceKey;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    eventually::eventually,
    over_all,
    station::{Site, Station, device},
};

pub const TASK: [u8; 8] = *b"task0001";
pub const OTHER: [u8; 8] = *b"task0002";
const MARKER: [u8; 8] = *b"marker01";
pub const SOON: Duration = Duration::from_secs(5);
/// Long enough for what is there to be taken.
pub const NOW: Duration = Duration::from_millis(50);

pub async fn connected(edge: &Arc<Station>) -> (DeviceKey, Epoch) {
    let toy = device("toy-1");
    let epoch = edge.connect(&toy).await;
    (toy, epoch)
}

pub async fn ask(edge: &Station, (toy, epoch): &(DeviceKey, Epoch), task: [u8; 8], text: &str) {
    let text = text.to_owned();
    edge.bus.begin_turn(toy, *epoch, task, text).await.unwrap();
}

pub async fn take(chat: &Bus) -> Turn {
    let mut turns = chat.take_turns(1, SOON).await.unwrap();
    assert_eq!(turns.len(), 1, "a turn in time");
    turns.remove(0)
}

/// Stops them, and returns what is heard of that.
async fn stop_turns(
    edge: &Station,
    (toy, epoch): &(DeviceKey, Epoch),
    stops: &mut TurnStops,
    task: Option<[u8; 8]>,
) -> Stop {
    edge.bus.stop_turns(toy, *epoch, task).await.unwrap();
    timeout(SOON, stops.next()).await.unwrap()
}

/// Says that these are being answered; those that are not the node's any more.
pub async fn lost_of(chat: &Bus, turns: &[&Turn]) -> Vec<TurnId> {
    let ids: Vec<_> = turns.iter().map(|turn| turn.id.clone()).collect();
    chat.keep_turns(&ids).await.unwrap()
}

pub async fn nothing_waits(chat: &Bus) {
    let turns = chat.take_turns(10, NOW).await.unwrap();
    assert!(turns.is_empty(), "{turns:?}");
}

/// What is said later is the first that is heard; what was said before it came before, or comes no more.
async fn nothing_else_was_said(chat: &Bus, edge: &Arc<Station>, toy: &(DeviceKey, Epoch)) {
    ask(edge, toy, MARKER, "and now").await;
    let marker = take(chat).await;
    chat.say(&marker, "this");
    edge.has_said("[toy-1 marker01 this]").await;
    chat.end_turn(&marker.id).await.unwrap();
}

#[tokio::test]
async fn a_turn_reaches_its_taker_and_the_answer_the_device() {
    over_all(|site| async move {
        let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
        let toy = connected(&edge).await;
        let words = "What time is it? 现在几点了? ##END";
        ask(&edge, &toy, TASK, words).await;
        ask(&edge, &toy, OTHER, "").await;
        let turns = [take(&chat).await, take(&chat).await];
        let [first, second] = &turns;
        assert_eq!((&first.device, first.epoch), (&toy.0, toy.1));
        assert_eq!((&first.node, first.task), (edge.bus.node(), TASK));
        assert_eq!(
            (&*first.text, first.attempts, first.acted),
            (words, 1, false)
        );
        assert_eq!((second.task, &*second.text), (OTHER, ""));
        assert_ne!(first.id, second.id);
        chat.say(first, "It is ");
        chat.say(second, "hm");
        chat.say(first, "");
        chat.say(first, "14:30");
        chat.finish(first);
        edge.has_said("[toy-1 task0001 It is ][toy-1 task0002 hm][toy-1 task0001 14:30]|")
            .await;
        chat.keep_turns(from_ref(&second.id)).await.unwrap();
        chat.finish(second);
        edge.has_said("~|").await;
        for turn in &turns {
            assert!(chat.turn_acted(&turn.id).await.unwrap());
            chat.end_turn(&turn.id).await.unwrap();
            assert!(!chat.turn_acted(&turn.id).await.unwrap(), "struck out");
            chat.say(turn, "too late");
        }
        nothing_waits(&chat).await;
        nothing_else_was_said(&chat, &edge, &toy).await;
    })
    .await;
}

#[tokio::test]
async fn a_node_may_answer_its_own_device() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let toy = connected(&edge).await;
        ask(&edge, &toy, TASK, "hello").await;
        let turn = take(&edge.bus).await;
        edge.bus.say(&turn, "hello yourself");
        edge.bus.finish(&turn);
        assert_eq!(edge.said(), "[toy-1 task0001 hello yourself]|");
    })
    .await;
}

#[tokio::test]
async fn takers_share_the_turns_and_each_is_taken_once() {
    const TURNS: usize = 40;
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let takers = [site.caller("chat").await, site.caller("chat").await];
        let toy = connected(&edge).await;
        let all = Arc::new(AtomicUsize::new(0));
        let mut taking = JoinSet::new();
        for taker in takers {
            let all = Arc::clone(&all);
            taking.spawn(async move {
                let mut texts = Vec::new();
                while all.load(Ordering::Acquire) < TURNS {
                    let turns = taker.take_turns(1, NOW).await.unwrap();
                    all.fetch_add(turns.len(), Ordering::AcqRel);
                    texts.extend(turns.into_iter().map(|turn| turn.text));
                }
                // None is left over.
                let more = taker.take_turns(TURNS, NOW).await.unwrap();
                texts.extend(more.into_iter().map(|turn| turn.text));
                texts
            });
        }
        let mut asked: Vec<_> = (0..TURNS).map(|n| n.to_string()).collect();
        for text in &asked {
            ask(&edge, &toy, TASK, text).await;
        }
        let mut taken = taking.join_all().await.concat();
        taken.sort();
        asked.sort();
        assert_eq!(taken, asked);
    })
    .await;
}

#[tokio::test]
async fn a_turn_whose_taker_died_is_taken_over_and_the_former_has_no_say() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let (dead, chat) = (site.caller("chat-1").await, site.caller("chat-2").await);
        let toy = connected(&edge).await;
        ask(&edge, &toy, TASK, "acted").await;
        ask(&edge, &toy, OTHER, "kept").await;
        let (acted, kept) = (take(&dead).await, take(&dead).await);
        assert!(dead.turn_acted(&acted.id).await.unwrap());
        dead.say(&acted, "It ");
        edge.has_said("[toy-1 task0001 It ]").await;
        let keep = async || {
            assert_eq!(lost_of(&dead, &[&kept]).await, []);
            chat.take_turns(10, NOW).await.unwrap()
        };
        let within = TURN_LEASE + SOON;
        let taken = eventually(within, keep, |turns| !turns.is_empty()).await;
        let [again] = &taken[..] else {
            panic!("{taken:?}");
        };
        assert_eq!(
            (&*again.text, again.attempts, again.acted),
            ("acted", 2, true)
        );
        assert!(!dead.turn_acted(&acted.id).await.unwrap());
        dead.end_turn(&acted.id).await.unwrap();
        let lost = lost_of(&dead, &[&kept, &acted]).await;
        assert_eq!(lost, from_ref(&acted.id), "told to who has lost it");
        // The same node may hold both takings of it.
        assert_eq!(lost_of(&chat, &[&acted, again]).await, lost);
        assert!(chat.turn_acted(&again.id).await.unwrap());
        let before = edge.said().replace('~', "");
        chat.say(again, "Sorry");
        dead.say(&acted, "is");
        chat.finish(again);
        let said = async || edge.said().replace('~', "");
        let expected = format!("{before}^[toy-1 task0001 Sorry]|");
        eventually(SOON, said, |said| *said == expected).await;
        chat.end_turn(&again.id).await.unwrap();
        assert!(
            dead.turn_acted(&kept.id).await.unwrap(),
            "it was kept all the while"
        );
        let lost = lost_of(&chat, &[again]).await;
        assert_eq!(lost, from_ref(&again.id), "ended");
    })
    .await;
}

#[tokio::test]
async fn a_stopped_turn_is_heard_of_and_not_taken() {
    over_all(|site| async move {
        let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
        let toy = connected(&edge).await;
        let mut stops = chat.stops();
        ask(&edge, &toy, TASK, "taken").await;
        let taken = take(&chat).await;
        ask(&edge, &toy, OTHER, "waiting").await;
        for task in [TASK, OTHER] {
            let stop = stop_turns(&edge, &toy, &mut stops, Some(task)).await;
            assert_eq!((&stop.device, stop.epoch), (&toy.0, toy.1));
            assert_eq!((stop.task, stop.why), (Some(task), StopReason::Unwanted));
            assert_eq!(stop.concerns(&taken), task == TASK);
        }
        assert!(!chat.turn_acted(&taken.id).await.unwrap());
        let lost = lost_of(&chat, &[&taken]).await;
        assert_eq!(lost, from_ref(&taken.id), "withdrawn");
        chat.say(&taken, "nobody wants this");
        chat.finish(&taken);
        nothing_waits(&chat).await;
        // What comes later on the same task is not mistaken for it.
        ask(&edge, &toy, TASK, "anew").await;
        let anew = take(&chat).await;
        chat.say(&taken, "nor this");
        chat.say(&anew, "but this");
        edge.has_said("[toy-1 task0001 but this]").await;
        // The connection is gone, and with it all that it asked.
        let stop = stop_turns(&edge, &toy, &mut stops, None).await;
        assert_eq!((stop.task, stop.why), (None, StopReason::Unwanted));
        assert!(stop.concerns(&anew));
        chat.say(&anew, "nor this");
        assert!(!chat.turn_acted(&anew.id).await.unwrap());
        let toy = connected(&edge).await;
        nothing_else_was_said(&chat, &edge, &toy).await;
    })
    .await;
}

#[tokio::test]
async fn a_stop_of_an_old_turn_leaves_the_new_one_on_the_same_task_alone() {
    over_all(|site| async move {
        let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
        let toy = connected(&edge).await;
        let mut stops = chat.stops();
        ask(&edge, &toy, TASK, "old").await;
        let old = take(&chat).await;
        edge.bus
            .stop_turns(&toy.0, toy.1, Some(TASK))
            .await
            .unwrap();
        ask(&edge, &toy, TASK, "new").await;
        ask(&edge, &toy, OTHER, "other").await;
        let (new, other) = (take(&chat).await, take(&chat).await);
        // It is heard of only now.
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert!(stop.concerns(&old));
        assert!(!stop.concerns(&new) && !stop.concerns(&other));
        // Nor does the end of the connection reach what its successor asks.
        let successor = connected(&edge).await;
        ask(&edge, &successor, TASK, "newer").await;
        let newer = take(&chat).await;
        let stop = stop_turns(&edge, &toy, &mut stops, None).await;
        assert!(stop.concerns(&new) && stop.concerns(&other));
        assert!(!stop.concerns(&newer));
        chat.say(&newer, "here");
        edge.has_said("[toy-1 task0001 here]").await;
    })
    .await;
}

#[tokio::test]
async fn too_many_turns_are_refused_and_none_is_lost() {
    const MOST: usize = 10_000;
    const TASKS: usize = 10;
    over_all(|site| async move {
        let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
        let (toy, epoch) = connected(&edge).await;
        let mut asking = JoinSet::new();
        for _ in 0..TASKS {
            let (edge, toy) = (Arc::clone(&edge), toy.clone());
            asking.spawn(async move {
                for taken in 0..=MOST {
                    let begun = edge.bus.begin_turn(&toy, epoch, TASK, "first".into()).await;
                    match begun {
                        Ok(()) => {}
                        Err(BusError::Overloaded) => return taken,
                        Err(error) => panic!("{error}"),
                    }
                }
                panic!("more than {MOST} by one alone");
            });
        }
        let taken: usize = asking.join_all().await.into_iter().sum();
        assert_eq!(taken, MOST);
        let first = take(&chat).await;
        let begin = async || {
            let text = "next".to_owned();
            edge.bus.begin_turn(&toy, epoch, OTHER, text).await
        };
        assert!(matches!(begin().await, Err(BusError::Overloaded)));
        chat.end_turn(&first.id).await.unwrap();
        begin().await.unwrap();
        assert!(matches!(begin().await, Err(BusError::Overloaded)));
    })
    .await;
}

#[tokio::test]
async fn in_redis_turns_that_waited_for_too_long_make_way_and_taken_ones_do_not() {
    let site = Site::redis().await;
    let edge = site.station("edge").await;
    let toy = connected(&edge).await;
    let mut fill = redis::cmd("EVAL");
    let code = "for i = 1, 10000 do redis.call('XADD', KEYS[1], '1-' .. i, 'text', 'stale') end
        redis.call('XGROUP', 'CREATE', KEYS[1], 'chat', '0')
        redis.call('XREADGROUP', 'GROUP', 'chat', 'taker', 'COUNT', 3, 'STREAMS', KEYS[1], '>')";
    site.ask::<()>(fill.arg(code).arg(1).arg("test:{turns}"))
        .await;
    ask(&edge, &toy, TASK, "new").await;
    let mut count = redis::cmd("XLEN");
    let left: usize = site.ask(count.arg("test:{turns}")).await;
    assert!(left < 10_000, "{left}");
    let mut oldest = redis::cmd("XRANGE");
    oldest.arg(&["test:{turns}", "-", "+", "COUNT", "4"]);
    let oldest: StreamRangeReply = site.ask(&oldest).await;
    let ids: Vec<_> = oldest.ids.iter().map(|entry| &*entry.id).collect();
    assert_eq!(ids[..3], ["1-1", "1-2", "1-3"], "taken");
    assert_ne!(ids[3], "1-4");
}

#[tokio::test]
async fn a_turn_of_a_connection_that_is_gone_is_not_taken_over() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let (dead, chat) = (site.caller("chat-1").await, site.caller("chat-2").await);
        let toy = connected(&edge).await;
        ask(&edge, &toy, TASK, "old").await;
        take(&dead).await;
        let toy = connected(&edge).await;
        let again = chat.take_turns(10, TURN_LEASE + SOON).await.unwrap();
        assert!(again.is_empty(), "{again:?}");
        ask(&edge, &toy, TASK, "new").await;
        assert_eq!(take(&chat).await.text, "new");
    })
    .await;
}

#[tokio::test]
async fn who_answers_what_nobody_waits_for_is_told_so() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let (chat, other) = (site.caller("chat").await, site.caller("other").await);
        let toy = connected(&edge).await;
        let (mut stops, mut others) = (chat.stops(), other.stops());
        ask(&edge, &toy, TASK, "old").await;
        let old = take(&chat).await;
        // Nothing is open, as far as its node knows; so nobody is told when the device goes.
        edge.bus.forget_turns(&toy.0, toy.1);
        chat.say(&old, "to nobody");
        chat.say(&old, "at all");
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert!(stop.concerns(&old));
        assert_eq!((stop.task, stop.why), (Some(TASK), StopReason::Unwanted));
        nothing_else_was_said(&chat, &edge, &toy).await;
        // It is said once, to that node alone, and means nothing that is asked later.
        ask(&edge, &toy, TASK, "new").await;
        let new = take(&chat).await;
        assert!(!stop.concerns(&new));
        edge.bus
            .stop_turns(&toy.0, toy.1, Some(OTHER))
            .await
            .unwrap();
        for heard in [&mut stops, &mut others] {
            let next = timeout(SOON, heard.next()).await.unwrap();
            assert_eq!(next.task, Some(OTHER), "{next:?}");
        }
        chat.say(&new, "here");
        edge.has_said("[toy-1 task0001 here]").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_a_turn_that_was_begun_too_late_is_stopped() {
    let mut site = Site::redis().await;
    let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
    let toy = connected(&edge).await;
    let mut stops = chat.stops();
    site.server().pause();
    let text = "late".to_owned();
    let begun = edge.bus.begin_turn(&toy.0, toy.1, TASK, text).await;
    assert!(matches!(begun, Err(BusError::Timeout(_))), "{begun:?}");
    // The command waited there, and is done now.
    site.server().resume();
    let (edge_ready, chat_ready) = (edge.bus.ready(SOON), chat.ready(SOON));
    let (edge_ready, chat_ready) = tokio::join!(edge_ready, chat_ready);
    edge_ready.and(chat_ready).unwrap();
    let taken = async || chat.take_turns(10, NOW).await.unwrap_or_default();
    let taken = eventually(SOON, taken, |turns| !turns.is_empty()).await;
    let [late] = &taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!(late.text, "late");
    // The device asks again, on the same task.
    let asked = async || {
        let text = "again".to_owned();
        edge.bus.begin_turn(&toy.0, toy.1, TASK, text).await.is_ok()
    };
    eventually(SOON, asked, |asked| *asked).await;
    let again = take(&chat).await;
    assert_eq!(again.text, "again");
    // A sign of life is enough to be told.
    chat.keep_turns(from_ref(&late.id)).await.unwrap();
    let stop = timeout(SOON, stops.next()).await.unwrap();
    assert!(stop.concerns(late) && !stop.concerns(&again));
    chat.say(late, "nobody waits");
    chat.say(&again, "here");
    edge.has_said("[toy-1 task0001 here]").await;
}

#[tokio::test]
async fn in_redis_an_abandoned_turn_is_found_behind_any_number_of_others() {
    const OTHERS: usize = 1_500;
    let site = Site::redis().await;
    let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
    let toy = connected(&edge).await;
    nothing_waits(&chat).await;
    let mut fill = redis::cmd("EVAL");
    let code = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '1-' .. i, 'text', 'busy') end
        redis.call('XREADGROUP', 'GROUP', 'chat', 'alive', 'COUNT', ARGV[1], 'STREAMS', KEYS[1], '>')";
    fill.arg(code).arg(1).arg("test:{turns}").arg(OTHERS);
    site.ask::<Value>(&fill).await;
    ask(&edge, &toy, TASK, "abandoned").await;
    let first = take(&chat).await;
    // Its taker has been silent for a minute.
    let mut claim = redis::cmd("XCLAIM");
    claim.arg(&["test:{turns}", "chat", "dead", "0"]);
    claim.arg(first.id.to_string()).arg(&["IDLE", "60000"]);
    site.ask::<Value>(&claim).await;
    let again = take(&chat).await;
    assert_eq!((&*again.text, again.attempts), ("abandoned", 3));
}

#[tokio::test]
async fn in_redis_nothing_is_left_of_a_turn_that_was_withdrawn() {
    let site = Site::redis().await;
    let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
    let toy = connected(&edge).await;
    ask(&edge, &toy, TASK, "sing").await;
    take(&chat).await;
    let mut pending = redis::cmd("XPENDING");
    pending.arg(&["test:{turns}", "chat"]);
    let held: StreamPendingReply = site.ask(&pending).await;
    assert_eq!(held.count(), 1);
    edge.bus
        .stop_turns(&toy.0, toy.1, Some(TASK))
        .await
        .unwrap();
    let held: StreamPendingReply = site.ask(&pending).await;
    assert_eq!(held.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_go_on_after_a_restart_of_redis() {
    let mut site = Site::redis().await;
    let (chat, edge) = (site.caller("chat").await, site.station("edge").await);
    let toy = connected(&edge).await;
    ask(&edge, &toy, TASK, "held").await;
    let held = take(&chat).await;
    ask(&edge, &toy, OTHER, "waiting").await;
    site.server().kill();
    let refused = async || {
        let text = "refused".to_owned();
        edge.bus
            .begin_turn(&toy.0, toy.1, OTHER, text)
            .await
            .is_err()
    };
    eventually(SOON, refused, |refused| *refused).await;
    site.server().restart();
    let (edge_ready, chat_ready) = (edge.bus.ready(SOON), chat.ready(SOON));
    let (edge_ready, chat_ready) = tokio::join!(edge_ready, chat_ready);
    edge_ready.and(chat_ready).unwrap();
    // Redis has forgotten both: nothing may be done for the one, and the other is never taken.
    let acted = async || chat.turn_acted(&held.id).await.ok();
    eventually(SOON, acted, |acted| *acted == Some(false)).await;
    let asked = async || {
        let text = "anew".to_owned();
        edge.bus.begin_turn(&toy.0, toy.1, TASK, text).await.is_ok()
    };
    eventually(SOON, asked, |asked| *asked).await;
    let taken = async || chat.take_turns(10, NOW).await.unwrap_or_default();
    let taken = eventually(SOON, taken, |turns| !turns.is_empty()).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].text, "anew");
    chat.say(&taken[0], "here");
    edge.has_said("[toy-1 task0001 here]").await;
}
