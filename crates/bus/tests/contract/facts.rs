//! Facts reach their reader in order, and stay until it says that they are safe.

use std::time::Duration;

use switchboard_bus::{Bus, Fact, FactId, LeftReason};
use switchboard_protocol::id::DeviceKey;

use crate::{
    eventually::eventually,
    over_all,
    station::{Site, device},
};

const WAIT: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(10);

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

#[tokio::test(flavor = "multi_thread")]
async fn i8_a_device_that_leaves_while_its_node_enters_again_has_left() {
    let site = Site::redis().await;
    let edge = site.station("edge").await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "TYPE", "pubsub"]);
    // What is held is looked at for other reasons too: then the device is not entered again, and the next one may be.
    for round in 0..20 {
        let (toy, last) = (device(&format!("toy-{round}")), device("last"));
        let epoch = edge.connect(&toy).await;
        edge.disconnect_when_seen(&toy);
        site.ask::<i64>(&kill).await;
        eventually(SOON, async || edge.holds(&toy), |holds| !holds).await;
        // There is another look when it has been entered, if it was.
        let looks = edge.looks();
        eventually(SOON, async || edge.looks(), |now| *now > looks).await;
        edge.bus.ready(SOON).await.unwrap();
        edge.connect(&last).await;
        let told = facts_until(&site.caller("control").await, &last).await;
        edge.disconnect(&last);
        let connected = told.iter().filter_map(|fact| match fact {
            Fact::Connected {
                device,
                epoch: at,
                at_ms,
            } if *device == toy && *at == epoch => Some(*at_ms),
            _ => None,
        });
        let left = told.iter().find_map(|fact| match fact {
            Fact::Left { device, at_ms, .. } if *device == toy => Some(*at_ms),
            _ => None,
        });
        let connected: Vec<u64> = connected.collect();
        assert!(
            connected.last() <= left.as_ref(),
            "{connected:?}, left {left:?}"
        );
        if connected.len() > 1 {
            let entry = async || edge.bus.find(&toy).await.ok();
            eventually(SOON, entry, |entry| *entry == Some(None)).await;
            return;
        }
    }
    panic!("no device was entered again");
}

/// What is told before this device has come.
async fn facts_until(reader: &Bus, last: &DeviceKey) -> Vec<Fact> {
    let mut told = Vec::new();
    loop {
        for (id, fact) in reader.facts("one", 100, SOON).await.unwrap() {
            reader.acknowledge(&[id]).await.unwrap();
            if matches!(&fact, Fact::Connected { device, .. } if device == last) {
                return told;
            }
            told.push(fact);
        }
    }
}
