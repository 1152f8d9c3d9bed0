//! What a device says of a call while it is at it: in order, before the answer, to nobody else.

use switchboard_bus::{Answer, Bus, Call, Notice, NoticeKind, ReplyTo};
use switchboard_protocol::{id::DeviceKey, outcome::Outcome};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    over_all,
    station::{call, call_for, device, done},
};

fn notice(n: usize) -> Notice {
    let kind = match n % 2 {
        0 => NoticeKind::Progress,
        _ => NoticeKind::Log,
    };
    let data = format!("{{\"call_id\":\"c\",\"n\":{n},\"说\":\"嗯\"}}").into();
    Notice { kind, data }
}

fn listening(device: &DeviceKey, room: usize) -> (Call, mpsc::Receiver<Notice>) {
    let (notices, heard) = mpsc::channel(room);
    let mut call = call_for(device, "{}");
    call.notices = Some(notices);
    (call, heard)
}

fn in_background(caller: &Bus, call: Call) -> JoinSet<Answer> {
    let caller = caller.clone();
    JoinSet::from_iter([async move { caller.call(call).await.unwrap() }])
}

fn say_and_answer(bus: &Bus, reply: &ReplyTo, count: usize) {
    for n in 0..count {
        bus.notify(reply, notice(n));
    }
    bus.answer(reply, done());
}

/// All that is in the channel now; whether its other end is gone, too.
fn drain(heard: &mut mpsc::Receiver<Notice>) -> (Vec<Notice>, bool) {
    let mut notices = Vec::new();
    loop {
        match heard.try_recv() {
            Ok(notice) => notices.push(notice),
            Err(end) => return (notices, end == mpsc::error::TryRecvError::Disconnected),
        }
    }
}

#[tokio::test]
async fn notices_come_in_order_and_before_the_answer() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let toy = device("toy-1");
        edge.connect(&toy).await;
        edge.mute();
        // The second caller is the node that holds the device.
        for caller in [&caller, &edge.bus] {
            let (call, mut heard) = listening(&toy, 64);
            let mut answers = in_background(caller, call);
            let reply = edge.unanswered(1).await.remove(0);
            assert!(reply.wants_notices());
            // One that comes alone, and then many at once.
            edge.bus.notify(&reply, notice(0));
            assert_eq!(heard.recv().await, Some(notice(0)));
            say_and_answer(&edge.bus, &reply, 50);
            // What is told after the answer finds no call, settled or not.
            edge.bus.notify(&reply, notice(98));
            let answer = answers.join_next().await.unwrap().unwrap();
            assert_eq!(answer.outcome, Outcome::Succeeded);
            edge.bus.notify(&reply, notice(99));
            let expected: Vec<_> = (0..50).map(notice).collect();
            assert_eq!(drain(&mut heard), (expected, true));
        }
    })
    .await;
}

/// The threads of a node may send to the same other node at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_notices_of_many_calls_keep_their_order() {
    const CALLS: usize = 32;
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let toy = device("toy-1");
        edge.connect(&toy).await;
        edge.mute();
        let mut callers = JoinSet::new();
        for _ in 0..CALLS {
            let ((call, mut heard), caller) = (listening(&toy, 100), caller.clone());
            callers.spawn(async move {
                let answer = caller.call(call).await.unwrap();
                assert_eq!(answer.outcome, Outcome::Succeeded);
                drain(&mut heard).0
            });
        }
        let mut talkers = JoinSet::new();
        for reply in edge.unanswered(CALLS).await {
            let bus = edge.bus.clone();
            talkers.spawn(async move { say_and_answer(&bus, &reply, 100) });
        }
        let expected: Vec<_> = (0..100).map(notice).collect();
        for heard in callers.join_all().await {
            assert_eq!(heard, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_wants_no_notices_gets_none() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let toy = device("toy-1");
        edge.connect(&toy).await;
        edge.mute();
        let (wanting, mut heard) = listening(&toy, 4);
        let mut wanting = in_background(&caller, wanting);
        let wanting_reply = edge.unanswered(1).await.remove(0);
        let mut plain = in_background(&caller, call_for(&toy, "{}"));
        let reply = edge.unanswered(1).await.remove(0);
        assert!(!reply.wants_notices());
        say_and_answer(&edge.bus, &reply, 3);
        let answer = plain.join_next().await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        edge.bus.answer(&wanting_reply, done());
        wanting.join_next().await.unwrap().unwrap();
        assert_eq!(drain(&mut heard), (Vec::new(), true), "another call's");
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_does_not_keep_up_misses_notices_and_gets_its_answer() {
    over_all(|site| async move {
        let (caller, counted) = site.counting_caller("caller").await;
        let edge = site.station("edge").await;
        let toy = device("toy-1");
        edge.connect(&toy).await;
        edge.mute();
        let (full, mut heard) = listening(&toy, 2);
        let mut answers = in_background(&caller, full);
        let reply = edge.unanswered(1).await.remove(0);
        say_and_answer(&edge.bus, &reply, 5);
        let answer = answers.join_next().await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        assert_eq!(drain(&mut heard), (vec![notice(0), notice(1)], true));
        let families = counted.gather();
        let dropped = families
            .iter()
            .find(|family| family.name() == "switchboard_bus_notices_dropped_total")
            .unwrap();
        assert_eq!(dropped.get_metric()[0].get_counter().get_value(), 3.0);
        // One whose receiver is gone is no loss, and no trouble.
        let (left, heard) = listening(&toy, 2);
        drop(heard);
        let mut answers = in_background(&caller, left);
        let reply = edge.unanswered(1).await.remove(0);
        say_and_answer(&edge.bus, &reply, 5);
        let answer = answers.join_next().await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        edge.speak();
        call(&caller, &toy).await.unwrap();
    })
    .await;
}
