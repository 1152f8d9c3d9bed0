//! What a device says next ends what it was being answered, wherever and on whichever task.

use std::time::Duration;

use switchboard_bus::{StopReason, TURN_LEASE};
use tokio::time::timeout;

use crate::{
    eventually::eventually,
    over_all,
    station::device,
    turns::{NOW, OTHER, SOON, TASK, ask, connected, take},
};

#[tokio::test]
async fn a_newer_turn_supersedes_the_older_ones_of_its_connection() {
    over_all(|site| async move {
        let (one, two) = (site.caller("chat-1").await, site.caller("chat-2").await);
        let edge = site.station("edge").await;
        let toy = connected(&edge).await;
        let neighbour = device("toy-2");
        let neighbour = (neighbour.clone(), edge.connect(&neighbour).await);
        ask(&edge, &toy, TASK, "older").await;
        ask(&edge, &neighbour, TASK, "neighbour").await;
        let (older, neighbour) = (take(&one).await, take(&one).await);
        ask(&edge, &toy, OTHER, "newer").await;
        let newer = take(&two).await;
        let mut stops = one.stops();
        two.supersede_turns(&newer).await.unwrap();
        assert!(
            two.turn_is_superseded(&older),
            "it knows what it said itself"
        );
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert_eq!(stop.why, StopReason::Superseded);
        assert_eq!((&stop.device, stop.epoch, stop.task), (&toy.0, toy.1, None));
        assert!(stop.concerns(&older));
        assert!(!stop.concerns(&newer), "never by itself");
        assert!(!stop.concerns(&neighbour));
        assert!(one.turn_is_superseded(&older));
        assert!(!one.turn_is_superseded(&newer) && !one.turn_is_superseded(&neighbour));
        // Its device still gets the end of that message.
        one.say(&older, "Once upon");
        one.finish(&older);
        edge.has_said("[toy-1 task0001 Once upon]|").await;
        one.end_turn(&older.id).await.unwrap();
        two.say(&newer, "Yes?");
        two.finish(&newer);
        edge.has_said("[toy-1 task0002 Yes?]|").await;
        // An older one supersedes nothing newer, and undoes nothing.
        one.supersede_turns(&older).await.unwrap();
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert!(!stop.concerns(&older) && !stop.concerns(&newer));
        assert!(one.turn_is_superseded(&older) && !one.turn_is_superseded(&newer));
        // What it asked on an earlier connection is superseded too: the edge that had it may have died without a word.
        let again = connected(&edge).await;
        ask(&edge, &again, TASK, "again").await;
        let again = take(&one).await;
        one.supersede_turns(&again).await.unwrap();
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert!(stop.concerns(&newer) && !stop.concerns(&again));
        assert!(one.turn_is_superseded(&newer) && !one.turn_is_superseded(&again));
        // Nothing of that is undone by the earlier one.
        one.supersede_turns(&newer).await.unwrap();
        let stop = timeout(SOON, stops.next()).await.unwrap();
        assert!(!stop.concerns(&again) && !one.turn_is_superseded(&again));
    })
    .await;
}

#[tokio::test]
async fn a_superseded_turn_whose_taker_died_is_ended_and_given_to_nobody() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let (dead, chat) = (site.caller("chat-1").await, site.caller("chat-2").await);
        let toy = connected(&edge).await;
        ask(&edge, &toy, TASK, "older").await;
        let older = take(&dead).await;
        dead.say(&older, "Once");
        edge.has_said("[toy-1 task0001 Once]").await;
        ask(&edge, &toy, OTHER, "newer").await;
        let newer = take(&dead).await;
        // Whoever hears of it may be another than who takes the older one over.
        dead.supersede_turns(&newer).await.unwrap();
        dead.end_turn(&newer.id).await.unwrap();
        let heard = async || chat.turn_is_superseded(&older);
        eventually(SOON, heard, |heard| *heard).await;
        let ended = async || {
            let given = chat.take_turns(10, NOW).await.unwrap();
            assert!(given.is_empty(), "{given:?}");
            edge.said()
        };
        let within: Duration = TURN_LEASE + SOON;
        eventually(within, ended, |said| said == "|").await;
        assert!(!dead.turn_acted(&older.id).await.unwrap(), "struck out");
    })
    .await;
}
