//! Stored calls and their queues in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::{sync::Arc, time::Duration};

use switchboard_protocol::{
    id::{ApiKeyId, CallId, DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
    token::Scope,
};
use switchboard_store::{
    CallAttempt, CallCancellation, CallClaim, CallDispatch, CallEnd, CallInsert, CallState,
    ClaimedCall, Expiry, NewApiKey, NewStoredCall, Overdue, QueueLimits, Store,
    testing::TestDatabase,
};
use tokio::sync::Mutex;
use uuid::Uuid;

const CALL_TTL: Duration = Duration::from_secs(24 * 3600);
const INSERT_TIMEOUT: Duration = Duration::from_secs(10);

async fn new_device(store: &Store) -> DeviceKey {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let first = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "first".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [1; 32],
        scopes: [Scope::Admin].into_iter().collect(),
    };
    store.create_org(org, "an org", &first).await.unwrap();
    let device = "toy-1".parse().unwrap();
    DeviceKey { org, device }
}

async fn enqueue(store: &Store, device: &DeviceKey) -> CallId {
    let id = CallId::from_uuid(Uuid::now_v7());
    let limits = QueueLimits {
        per_device: 1_000,
        per_org: 1_000,
    };
    let call = NewStoredCall {
        id,
        device,
        service: "echo",
        timeout: Duration::from_secs(30),
        work: CallDispatch::Queued {
            params: b"{ \"a\": 1.0 }",
            input: b"",
            expiry: Expiry::In(CALL_TTL),
            limits,
        },
    };
    let inserted = store.insert_call(call, None, INSERT_TIMEOUT).await.unwrap();
    assert!(matches!(inserted, CallInsert::Inserted(call) if call.state == CallState::Queued));
    id
}

async fn claim(store: &Store, device: &DeviceKey) -> Option<ClaimedCall> {
    match store.claim_call(device, true).await.unwrap() {
        CallClaim::Call(call) => Some(call),
        CallClaim::Busy | CallClaim::Empty => None,
    }
}

fn end(outcome: Outcome, delivered: Delivered) -> CallEnd {
    CallEnd {
        outcome,
        delivered,
        answer: b"{}".to_vec(),
        result_valid: true,
    }
}

#[tokio::test]
async fn queue_hands_out_one_call_at_a_time() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let device = new_device(&store).await;
    let first = enqueue(&store, &device).await;
    let second = enqueue(&store, &device).await;
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, device) = (store.clone(), device.clone());
        racers.spawn(async move { claim(&store, &device).await });
    }
    let claimed: Vec<_> = racers.join_all().await.into_iter().flatten().collect();
    let [call] = claimed.as_slice() else {
        panic!("{claimed:?}")
    };
    assert_eq!(
        (call.id, call.params.as_slice()),
        (first, &b"{ \"a\": 1.0 }"[..])
    );
    assert!(claim(&store, &device).await.is_none());

    // Back at its position; the previous attempt can no longer write.
    let attempt = |number| CallAttempt {
        org: device.org,
        call: first,
        number,
    };
    let pause = Duration::from_secs(60);
    assert!(store.requeue_call(attempt(1), pause).await.unwrap());
    let postponed = store.claim_call(&device, false).await.unwrap();
    assert!(matches!(postponed, CallClaim::Busy), "{postponed:?}");
    let again = claim(&store, &device).await.unwrap();
    assert_eq!((again.id, again.attempt), (first, 2));
    let succeeded = end(Outcome::Succeeded, Delivered::Yes);
    assert!(!store.end_call(attempt(1), &succeeded).await.unwrap());
    assert!(!store.requeue_call(attempt(1), pause).await.unwrap());
    assert!(store.end_call(attempt(2), &succeeded).await.unwrap());
    let lost = end(Outcome::Lost, Delivered::Unknown);
    assert!(
        !store.end_call(attempt(2), &lost).await.unwrap(),
        "an end is final"
    );
    assert_eq!(claim(&store, &device).await.unwrap().id, second);
}

#[tokio::test]
async fn overdue_call_is_lost_and_next_one_follows() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let device = new_device(&store).await;
    let first = enqueue(&store, &device).await;
    let second = enqueue(&store, &device).await;
    claim(&store, &device).await.unwrap();
    let (expired, lost) = (
        end(Outcome::Expired, Delivered::No),
        end(Outcome::Lost, Delivered::Unknown),
    );
    let settled = store
        .end_overdue_calls(Overdue::All, &expired, &lost)
        .await
        .unwrap();
    assert_eq!(settled.all(), 0);
    let late = "UPDATE calls SET deadline = now() - interval '3 s' WHERE state = 'sent'";
    database.execute(late).await.unwrap();
    let settled = store
        .end_overdue_calls(Overdue::All, &expired, &lost)
        .await
        .unwrap();
    assert_eq!(settled.expired, []);
    let [closed] = &settled.lost[..] else {
        panic!("one call is lost: {settled:?}");
    };
    assert_eq!((closed.id, &closed.device), (first, &device));
    let known = store.stored_call(device.org, first).await.unwrap().unwrap();
    assert_eq!(known.end, Some(lost.clone()));
    let cancelled = end(Outcome::Cancelled, Delivered::No);
    let withdrawal = store.cancel_call(device.org, first, &cancelled).await;
    assert_eq!(withdrawal.unwrap(), (CallCancellation::Ended, None));

    let over = "UPDATE calls SET expires_at = now() - interval '1 s' WHERE state = 'queued'";
    database.execute(over).await.unwrap();
    assert!(
        claim(&store, &device).await.is_none(),
        "an expired call is not claimed"
    );
    let settled = store
        .end_overdue_calls(Overdue::Call(device.org, second), &expired, &lost)
        .await;
    let settled = settled.unwrap();
    assert_eq!((settled.expired.len(), settled.lost.len()), (1, 0));
    let known = store
        .stored_call(device.org, second)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(known.end, Some(expired));
    assert_eq!(store.purge_stored_calls(CALL_TTL).await.unwrap(), 0);
    let old = "UPDATE calls SET ended_at = now() - interval '25 h'";
    database.execute(old).await.unwrap();
    assert_eq!(store.purge_stored_calls(CALL_TTL).await.unwrap(), 2);
}

/// Concurrent callers, gateways and deletions of the queue: no call is lost, duplicated or
/// reordered.
#[tokio::test(flavor = "multi_thread")]
async fn i18_queue_keeps_order_under_concurrent_workers() {
    const CALLS: usize = 60;
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let device = new_device(&store).await;
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, device, delivered) = (store.clone(), device.clone(), delivered.clone());
        all.spawn(async move {
            let succeeded = end(Outcome::Succeeded, Delivered::Yes);
            while delivered.lock().await.len() < CALLS {
                if let Some(call) = claim(&store, &device).await {
                    delivered.lock().await.push(call.id);
                    let ended = store.end_call(call.attempt(), &succeeded).await;
                    assert!(ended.unwrap());
                }
            }
            Vec::new()
        });
    }
    for _ in 0..3 {
        let (store, device) = (store.clone(), device.clone());
        all.spawn(async move {
            let mut own = Vec::new();
            for _ in 0..CALLS / 3 {
                own.push(enqueue(&store, &device).await);
            }
            own
        });
    }
    let finished = tokio::time::timeout(Duration::from_secs(60), all.join_all());
    let asked = finished.await.unwrap();
    let delivered = delivered.lock().await;
    assert_eq!(delivered.len(), CALLS);
    for own in asked {
        let order: Vec<_> = delivered.iter().filter(|id| own.contains(id)).collect();
        assert_eq!(order, own.iter().collect::<Vec<_>>());
    }
}
