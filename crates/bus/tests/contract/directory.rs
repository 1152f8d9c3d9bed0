//! Who holds which device: newest wins, nothing outlives its connection.

use std::time::Duration;

use switchboard_protocol::{id::DeviceId, outcome::Outcome};

use crate::{
    eventually::eventually,
    over_all,
    station::{call, device, org},
};

const SHORTLY: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_newest_connection_wins_and_the_former_holder_is_told() {
    over_all(|site| async move {
        let caller = site.caller("caller").await;
        let (first, second) = (site.station("first").await, site.station("second").await);
        let toy = device("toy-1");
        let old = first.connect(&toy).await;
        call(&caller, &toy).await.unwrap();
        let new = second.connect(&toy).await;
        assert!(new > old);
        eventually(SHORTLY, async || first.holds(&toy), |held| !held).await;
        assert_eq!(
            call(&caller, &toy).await.unwrap().outcome,
            Outcome::Succeeded
        );
        assert_eq!(second.delivered().len(), 1);
        let presence = caller.find(&toy).await.unwrap().unwrap();
        assert_eq!((&presence.node, presence.epoch), (second.bus.node(), new));
    })
    .await;
}

#[tokio::test]
async fn a_late_release_does_not_remove_the_newer_connection() {
    over_all(|site| async move {
        let (first, second) = (site.station("first").await, site.station("second").await);
        let (toy, other) = (device("toy-1"), device("toy-2"));
        let old = first.connect(&toy).await;
        first.connect(&other).await;
        second.connect(&toy).await;
        first.bus.release(
            toy.clone(),
            old,
            None,
            switchboard_bus::LeftReason::Takeover,
        );
        first.disconnect(&other);
        // Releases are done in order: when the second is done, the first was.
        eventually(
            SHORTLY,
            async || first.bus.find(&other).await.unwrap(),
            Option::is_none,
        )
        .await;
        assert!(first.bus.find(&toy).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_registration_is_readable_while_its_device_is_live() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        let toy = device("toy-1");
        edge.connect(&toy).await;
        assert_eq!(caller.find(&toy).await.unwrap().unwrap().digest, None);
        let digest = edge.register(&toy, "{\"时间\": {}}").await;
        let presence = caller.find(&toy).await.unwrap().unwrap();
        assert_eq!(presence.digest, Some(digest));
        let services = caller.services(&presence).await.unwrap().unwrap();
        assert_eq!(services, "{\"时间\": {}}".as_bytes());
        let newer = edge.register(&toy, "{}").await;
        let now = caller.find(&toy).await.unwrap().unwrap();
        assert_eq!((now.digest, now.epoch), (Some(newer), presence.epoch));
        assert_eq!(
            caller.services(&now).await.unwrap().unwrap(),
            "{}".as_bytes()
        );
        eventually(
            SHORTLY,
            async || caller.services(&presence).await.unwrap(),
            Option::is_none,
        )
        .await;
        edge.disconnect(&toy);
        eventually(
            SHORTLY,
            async || caller.find(&toy).await.unwrap(),
            Option::is_none,
        )
        .await;
        eventually(
            SHORTLY,
            async || caller.services(&now).await.unwrap(),
            Option::is_none,
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn devices_with_one_firmware_share_a_registration() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let (one, two) = (device("toy-1"), device("toy-2"));
        edge.connect(&one).await;
        edge.connect(&two).await;
        edge.register(&one, "{}").await;
        edge.register(&two, "{}").await;
        let presence = edge.bus.find(&two).await.unwrap().unwrap();
        edge.disconnect(&one);
        eventually(
            SHORTLY,
            async || edge.bus.find(&one).await.unwrap(),
            Option::is_none,
        )
        .await;
        assert!(
            edge.bus.services(&presence).await.unwrap().is_some(),
            "the other one still uses it"
        );
    })
    .await;
}

#[tokio::test]
async fn live_devices_are_listed_in_order_and_by_organisation() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        for id in ["b", "a", "C", "d:1"] {
            edge.connect(&device(id)).await;
        }
        let mut foreign = device("a");
        foreign.org = switchboard_protocol::id::OrgId::from_uuid(uuid::Uuid::from_u128(2));
        edge.connect(&foreign).await;
        let ids = |page: Vec<(DeviceId, _)>| {
            page.into_iter()
                .map(|(id, _)| id.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids(edge.bus.list(org(), None, 10).await.unwrap()),
            ["C", "a", "b", "d:1"]
        );
        assert_eq!(
            ids(edge.bus.list(org(), Some("C"), 2).await.unwrap()),
            ["a", "b"]
        );
        assert_eq!(
            ids(edge.bus.list(org(), Some("d:1"), 2).await.unwrap()),
            Vec::<String>::new()
        );
        let asked: Vec<DeviceId> = ["d:1", "nobody"]
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        let found = edge.bus.find_many(org(), &asked).await.unwrap();
        assert!(found[0].is_some() && found[1].is_none());
    })
    .await;
}

#[tokio::test]
async fn a_node_that_leaves_takes_its_devices_with_it() {
    over_all(|site| async move {
        let (caller, edge) = (site.caller("caller").await, site.station("edge").await);
        edge.connect(&device("toy-1")).await;
        edge.disconnect(&device("toy-1"));
        edge.connect(&device("toy-2")).await;
        edge.disconnect(&device("toy-2"));
        edge.shutdown.stop();
        assert!(edge.shutdown.finished(SHORTLY).await);
        for toy in [device("toy-1"), device("toy-2")] {
            assert_eq!(caller.find(&toy).await.unwrap(), None);
        }
        assert!(caller.list(org(), None, 10).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn services_that_come_into_use_again_stay_readable() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        for round in 0..20 {
            let toy = device(&format!("toy-{round}"));
            edge.connect(&toy).await;
            edge.register(&toy, "{}").await;
            // Back to back: the shelf is emptied in the background while the next one registers.
            edge.disconnect(&toy);
        }
        let last = device("last");
        edge.connect(&last).await;
        edge.register(&last, "{}").await;
        let first = device("toy-19");
        eventually(
            SHORTLY,
            async || edge.bus.find(&first).await.unwrap(),
            Option::is_none,
        )
        .await;
        let presence = edge.bus.find(&last).await.unwrap().unwrap();
        let services = async || edge.bus.services(&presence).await.unwrap();
        eventually(SHORTLY, services, Option::is_some).await;
    })
    .await;
}
