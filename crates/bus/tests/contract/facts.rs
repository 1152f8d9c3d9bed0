//! Facts reach their reader in order, and stay until it says that they are safe.

use std::time::Duration;

use switchboard_bus::{Fact, FactId, LeftReason};

use crate::{eventually::eventually, over_all, station::device};

const WAIT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn i6_facts_come_in_order_and_again_until_they_are_acknowledged() {
    over_all(|site| async move {
        let (control, edge) = (site.caller("control").await, site.station("edge").await);
        let toy = device("toy-1");
        let at = edge.connect(&toy).await;
        let told = edge.register(&toy, "{}").await;
        edge.disconnect(&toy);
        let mut facts: Vec<(FactId, Fact)> = Vec::new();
        while facts.len() < 3 {
            facts.extend(control.facts("one", 100, Duration::from_secs(5)).await.unwrap());
        }
        let story: Vec<Fact> = facts.iter().map(|(_, fact)| fact.clone()).collect();
        assert!(matches!(&story[0], Fact::Connected { device, epoch, .. } if *device == toy && *epoch == at), "{story:?}");
        assert!(matches!(&story[1], Fact::Registered { digest, json: Some(json), .. } if *digest == told && **json == *b"{}"));
        assert!(matches!(&story[2], Fact::Left { reason: LeftReason::Closed, .. }));
        control.acknowledge(std::slice::from_ref(&facts[0].0)).await.unwrap();
        // The reader died with the other two: another one gets them.
        let again = async || control.facts("two", 100, WAIT).await.unwrap();
        let again = eventually(Duration::from_secs(20), again, |facts| !facts.is_empty()).await;
        let again: Vec<Fact> = again.into_iter().map(|(_, fact)| fact).collect();
        assert_eq!(again, story[1..]);
    })
    .await;
}
