//! A newer turn supersedes the earlier turns of its device, on every task and node.

use std::time::Duration;

use switchboard_bus::{CancelReason, TURN_LEASE};
use switchboard_test_support::eventually::eventually;

use crate::{
    for_each_backend,
    test_edge::device,
    turns::{
        BRIEF_TIMEOUT, OTHER, TASK, TEST_TIMEOUT, claim, connected, enqueue, next_cancellation,
    },
};

#[tokio::test]
async fn newer_turn_supersedes_older_ones() {
    for_each_backend(|system| async move {
        let (one, two) = system.start_nodes("chat-1", "chat-2").await;
        let edge = system.start_edge("edge").await;
        let lamp = connected(&edge).await;
        let neighbour = device("toy-2");
        let neighbour = (neighbour.clone(), edge.connect(&neighbour).await);
        enqueue(&edge, &lamp, TASK, "older").await;
        enqueue(&edge, &neighbour, TASK, "neighbour").await;
        let (older, neighbour) = (claim(&one).await, claim(&one).await);
        enqueue(&edge, &lamp, OTHER, "newer").await;
        let newer = claim(&two).await;
        let mut cancellations = one.turn_cancellations();
        two.supersede_turns(&newer).await.unwrap();
        assert!(
            two.is_turn_superseded(&older),
            "a node knows its own cancellations"
        );
        let cancellation = next_cancellation(&mut cancellations).await;
        assert_eq!(cancellation.reason, CancelReason::Superseded);
        assert_eq!(
            (&cancellation.device, cancellation.epoch, cancellation.task),
            (&lamp.0, lamp.1, None)
        );
        assert!(cancellation.applies_to(&older));
        assert!(!cancellation.applies_to(&newer), "not by itself");
        assert!(!cancellation.applies_to(&neighbour));
        assert!(one.is_turn_superseded(&older));
        assert!(!one.is_turn_superseded(&newer) && !one.is_turn_superseded(&neighbour));
        // The device still receives the end of that reply.
        one.send_text(&older, "Once upon");
        one.finish_reply(&older);
        edge.expect_replies("[toy-1 task0001 Once upon]|").await;
        one.complete_turn(&older.id).await.unwrap();
        two.send_text(&newer, "Yes?");
        two.finish_reply(&newer);
        edge.expect_replies("[toy-1 task0002 Yes?]|").await;
        // An older turn supersedes no newer one, and reverts nothing.
        one.supersede_turns(&older).await.unwrap();
        let cancellation = next_cancellation(&mut cancellations).await;
        assert!(!cancellation.applies_to(&older) && !cancellation.applies_to(&newer));
        assert!(one.is_turn_superseded(&older) && !one.is_turn_superseded(&newer));
        // Turns of an earlier connection are superseded too: its edge may have failed.
        let again = connected(&edge).await;
        enqueue(&edge, &again, TASK, "again").await;
        let again = claim(&one).await;
        one.supersede_turns(&again).await.unwrap();
        let cancellation = next_cancellation(&mut cancellations).await;
        assert!(cancellation.applies_to(&newer) && !cancellation.applies_to(&again));
        assert!(one.is_turn_superseded(&newer) && !one.is_turn_superseded(&again));
        // The earlier turn reverts nothing of that.
        one.supersede_turns(&newer).await.unwrap();
        let cancellation = next_cancellation(&mut cancellations).await;
        assert!(!cancellation.applies_to(&again) && !one.is_turn_superseded(&again));
    })
    .await;
}

#[tokio::test]
async fn superseded_turn_of_a_dead_worker_is_completed() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (dead, chat) = system.start_nodes("chat-1", "chat-2").await;
        let device = connected(&edge).await;
        enqueue(&edge, &device, TASK, "older").await;
        let older = claim(&dead).await;
        dead.send_text(&older, "Once");
        edge.expect_replies("[toy-1 task0001 Once]").await;
        enqueue(&edge, &device, OTHER, "newer").await;
        let newer = claim(&dead).await;
        // Another worker than the one that is notified may claim the older turn.
        dead.supersede_turns(&newer).await.unwrap();
        dead.complete_turn(&newer.id).await.unwrap();
        let notified = async || chat.is_turn_superseded(&older);
        eventually(TEST_TIMEOUT, notified, |notified| *notified).await;
        let ended = async || {
            let claimed = chat.claim_turns(10, BRIEF_TIMEOUT).await.unwrap();
            assert!(claimed.is_empty(), "{claimed:?}");
            edge.replies()
        };
        let within: Duration = TURN_LEASE + TEST_TIMEOUT;
        eventually(within, ended, |replies| replies == "|").await;
        assert!(!dead.mark_side_effects(&older.id).await.unwrap(), "deleted");
    })
    .await;
}
