//! Notifications of running calls: in order, before the answer, and only to the call's caller.

use switchboard_bus::{Answer, Bus, Call, Notification, NotificationKind, ReplyTo};
use switchboard_protocol::{id::DeviceKey, outcome::Outcome};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    for_each_backend,
    test_edge::{call, call_for, done},
};

fn notification(n: usize) -> Notification {
    let kind = match n % 2 {
        0 => NotificationKind::Progress,
        _ => NotificationKind::Log,
    };
    let data = format!("{{\"call_id\":\"c\",\"n\":{n},\"说\":\"嗯\"}}").into();
    Notification { kind, data }
}

fn call_with_notifications(
    device: &DeviceKey,
    capacity: usize,
) -> (Call, mpsc::Receiver<Notification>) {
    let (sender, receiver) = mpsc::channel(capacity);
    let mut call = call_for(device, "{}");
    call.notifications = Some(sender);
    (call, receiver)
}

fn spawn_call(caller: &Bus, call: Call) -> JoinSet<Answer> {
    let caller = caller.clone();
    JoinSet::from_iter([async move { caller.call(call).await.unwrap() }])
}

fn notify_and_answer(bus: &Bus, reply: &ReplyTo, count: usize) {
    for n in 0..count {
        bus.notify(reply, notification(n));
    }
    bus.answer(reply, done());
}

/// What is in the channel now, and whether the sender was dropped.
fn drain(received: &mut mpsc::Receiver<Notification>) -> (Vec<Notification>, bool) {
    let mut notifications = Vec::new();
    loop {
        match received.try_recv() {
            Ok(notification) => notifications.push(notification),
            Err(end) => {
                return (
                    notifications,
                    end == mpsc::error::TryRecvError::Disconnected,
                );
            }
        }
    }
}

#[tokio::test]
async fn notifications_arrive_in_order_before_the_answer() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let device = edge.connect_device("toy-1").await;
        edge.hold_answers();
        // The second caller is the owner node itself.
        for caller in [&caller, &edge.bus] {
            let (call, mut received) = call_with_notifications(&device, 64);
            let mut answers = spawn_call(caller, call);
            let reply = edge.held_calls(1).await.remove(0);
            assert!(reply.wants_notifications());
            // A single one, and then many at once.
            edge.bus.notify(&reply, notification(0));
            assert_eq!(received.recv().await, Some(notification(0)));
            notify_and_answer(&edge.bus, &reply, 50);
            // Notifications after the answer find no call.
            edge.bus.notify(&reply, notification(98));
            let answer = answers.join_next().await.unwrap().unwrap();
            assert_eq!(answer.outcome, Outcome::Succeeded);
            edge.bus.notify(&reply, notification(99));
            let expected: Vec<_> = (0..50).map(notification).collect();
            assert_eq!(drain(&mut received), (expected, true));
        }
    })
    .await;
}

/// The threads of a node send to the same peer concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn notifications_of_concurrent_calls_keep_order() {
    const CALLS: usize = 32;
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let device = edge.connect_device("toy-1").await;
        edge.hold_answers();
        let mut callers = JoinSet::new();
        for _ in 0..CALLS {
            let ((call, mut received), caller) =
                (call_with_notifications(&device, 100), caller.clone());
            callers.spawn(async move {
                let answer = caller.call(call).await.unwrap();
                assert_eq!(answer.outcome, Outcome::Succeeded);
                drain(&mut received).0
            });
        }
        let mut senders = JoinSet::new();
        for reply in edge.held_calls(CALLS).await {
            let bus = edge.bus.clone();
            senders.spawn(async move { notify_and_answer(&bus, &reply, 100) });
        }
        let expected: Vec<_> = (0..100).map(notification).collect();
        for received in callers.join_all().await {
            assert_eq!(received, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn call_without_channel_receives_no_notification() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let device = edge.connect_device("toy-1").await;
        edge.hold_answers();
        let (notified, mut received) = call_with_notifications(&device, 4);
        let mut notified = spawn_call(&caller, notified);
        let notified_reply = edge.held_calls(1).await.remove(0);
        let mut plain = spawn_call(&caller, call_for(&device, "{}"));
        let reply = edge.held_calls(1).await.remove(0);
        assert!(!reply.wants_notifications());
        notify_and_answer(&edge.bus, &reply, 3);
        let answer = plain.join_next().await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        edge.bus.answer(&notified_reply, done());
        notified.join_next().await.unwrap().unwrap();
        assert_eq!(
            drain(&mut received),
            (Vec::new(), true),
            "the notifications belong to another call"
        );
    })
    .await;
}

#[tokio::test]
async fn slow_caller_misses_notifications_but_not_its_answer() {
    for_each_backend(|system| async move {
        let (caller, metrics) = system.start_node_with_metrics("caller").await;
        let edge = system.start_edge("edge").await;
        let device = edge.connect_device("toy-1").await;
        edge.hold_answers();
        let (full, mut received) = call_with_notifications(&device, 2);
        let mut answers = spawn_call(&caller, full);
        let reply = edge.held_calls(1).await.remove(0);
        notify_and_answer(&edge.bus, &reply, 5);
        let answer = answers.join_next().await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        assert_eq!(
            drain(&mut received),
            (vec![notification(0), notification(1)], true)
        );
        let families = metrics.gather();
        let dropped = families
            .iter()
            .find(|family| family.name() == "switchboard_bus_notices_dropped_total")
            .unwrap();
        assert_eq!(dropped.get_metric()[0].get_counter().get_value(), 3.0);
        // Without a receiver nothing counts as dropped.
        let (left, received) = call_with_notifications(&device, 2);
        drop(received);
        let mut answers = spawn_call(&caller, left);
        let reply = edge.held_calls(1).await.remove(0);
        notify_and_answer(&edge.bus, &reply, 5);
        let answer = answers.join_next().await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        edge.release_answers();
        call(&caller, &device).await.unwrap();
    })
    .await;
}
