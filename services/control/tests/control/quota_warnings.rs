//! Warnings of quotas: an organisation is warned once before it reaches one.

use std::ops::Range;

use http::StatusCode;
use serde_json::json;
use switchboard_control::QuotaConfig;
use switchboard_runtime::quota::Quota;
use switchboard_store::CountedTurns;
use switchboard_test_support::eventually::{eventually, eventually_some};
use uuid::Uuid;

use crate::{
    installation::{Installation, Org},
    quotas::{IN_FORCE_TIMEOUT, NONE},
    receiver::Receiver,
};

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "each step needs the state of the one before"
)]
async fn organisation_is_warned_once_until_its_use_falls() {
    let quotas = QuotaConfig {
        quota_devices_known: 10,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Others").await,
    );
    let receiver = Receiver::start(&[]).await;
    for one in [&org, &other] {
        let webhook = receiver.webhook(&["quota.warning"]);
        let (status, answer) = installation
            .try_create(&one.key, "/v1/webhooks", webhook)
            .await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    let add_devices = async |org: &Org, ids: Range<u8>| {
        for id in ids {
            installation.record_device(org, &format!("toy-{id}")).await;
        }
    };
    let is_warned = async |count| {
        let counts = async || {
            let counts = installation.store.count_quota_warnings().await.unwrap();
            counts
                .get(Quota::DevicesKnown.as_str())
                .copied()
                .unwrap_or_default()
        };
        assert_eq!(
            eventually(IN_FORCE_TIMEOUT, counts, |seen| *seen == count).await,
            count
        );
    };
    add_devices(&other, 0..7).await;
    add_devices(&org, 0..8).await;
    let warning = receiver.received(1).await[0].json();
    assert_eq!(warning["type"], "quota.warning");
    assert_eq!(
        warning["data"],
        json!({"quota": "devices_known", "used": 8, "limit": 10})
    );
    is_warned(1).await;
    let gauge = || {
        let families = installation.registry.gather();
        let name = "switchboard_control_quota_warned_orgs";
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .unwrap();
        let of_devices = family
            .get_metric()
            .iter()
            .find(|metric| metric.get_label()[0].value() == "devices_known");
        Some(of_devices.unwrap().get_gauge().get_value()).filter(|value| *value > 0.5)
    };
    eventually_some("the metric", async || gauge()).await;
    // More of the same is no second warning, nor is a use that stays near the quota.
    add_devices(&org, 8..10).await;
    let (_, changed) = installation
        .set_quotas(&org, json!({"devices_known": 14}))
        .await;
    assert_eq!(changed["quotas"]["devices_known"], 14);
    // Another quota of the organisation is measured together with that one.
    installation.set_quotas(&org, json!({"api_keys": 1})).await;
    let warnings = receiver.received(2).await;
    assert_eq!(warnings[1].json()["data"]["quota"], "api_keys");
    // Below 70 % the warning ends; then the next one is sent.
    installation
        .set_quotas(&org, json!({"devices_known": 100}))
        .await;
    is_warned(0).await;
    installation
        .set_quotas(&org, json!({"devices_known": 10}))
        .await;
    let warnings = receiver.received(3).await;
    assert_eq!(
        warnings[2].json()["data"],
        json!({"quota": "devices_known", "used": 10, "limit": 10})
    );
    is_warned(1).await;
}

#[tokio::test]
async fn organisation_is_warned_of_its_minutes_of_speech() {
    let quotas = QuotaConfig {
        quota_speech_minutes_per_day: 10,
        ..NONE
    };
    let installation = Installation::with_quotas(quotas).await;
    let org = installation.new_org("Toys").await;
    let receiver = Receiver::start(&[]).await;
    let webhook = receiver.webhook(&["quota.warning"]);
    let (status, answer) = installation
        .try_create(&org.key, "/v1/webhooks", webhook)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let now = chrono::Utc::now();
    let speech = [(now, 510_000), (now - chrono::TimeDelta::days(1), 600_000)]
        .map(|(at, milliseconds)| CountedTurns::speech(org.id(), at, milliseconds));
    let counted = installation
        .store
        .add_turn_usage(Uuid::now_v7(), 1, &speech);
    counted.await.unwrap();
    let (used, limit) = installation.quota(&org, "speech_minutes_per_day").await;
    assert_eq!((used, limit), (json!(8.5), json!(10)));
    let warning = receiver.received(1).await[0].json();
    assert_eq!(
        warning["data"],
        json!({"quota": "speech_minutes_per_day", "used": 8.5, "limit": 10})
    );
}

#[tokio::test]
async fn organisation_that_cannot_be_checked_does_not_keep_off_others() {
    let installation = Installation::with_quotas(NONE).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION 'refused'; END $$;
                  CREATE TRIGGER refused BEFORE UPDATE OF quotas_warned ON orgs
                    FOR EACH ROW WHEN (NEW.name = 'Broken') EXECUTE FUNCTION refuse()";
    installation.database.execute(refuse).await.unwrap();
    for name in ["Broken", "Toys", "Broken", "Broken", "Dolls", "Broken"] {
        let org = installation.new_org(name).await;
        let (status, answer) = installation.set_quotas(&org, json!({"api_keys": 1})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let warned = async || {
        let counts = installation.store.count_quota_warnings().await.unwrap();
        counts.get("api_keys").copied()
    };
    let seen = eventually(IN_FORCE_TIMEOUT, warned, |count| *count == Some(2)).await;
    assert_eq!(seen, Some(2));
}
