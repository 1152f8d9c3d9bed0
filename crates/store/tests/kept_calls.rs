//! Kept calls and their queues against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::{sync::Arc, time::Duration};

use switchboard_protocol::{
    access::Scope,
    id::{ApiKeyId, CallId, DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
};
use switchboard_store::{
    CallEnd, CallState, CallWork, Claim, ClaimedCall, Expiry, Keeping, NewApiKey, NewKeptCall,
    QueueLimits, Store, Withdrawal, testing::TestDatabase,
};
use tokio::sync::Mutex;
use uuid::Uuid;

const DAY: Duration = Duration::from_secs(24 * 3600);
const PATIENCE: Duration = Duration::from_secs(10);

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
    let call = NewKeptCall {
        id,
        device,
        service: "echo",
        timeout: Duration::from_secs(30),
        work: CallWork::Queued {
            params: b"{ \"a\": 1.0 }",
            input: b"",
            expiry: Expiry::In(DAY),
            limits,
        },
    };
    let kept = store.keep_call(call, None, PATIENCE).await.unwrap();
    assert!(matches!(kept, Keeping::Kept(call) if call.state == CallState::Queued));
    id
}

async fn claim(store: &Store, device: &DeviceKey) -> Option<ClaimedCall> {
    match store.claim_call(device, true).await.unwrap() {
        Claim::Call(call) => Some(call),
        Claim::Busy | Claim::Empty => None,
    }
}

fn end(outcome: Outcome, delivered: Delivered) -> CallEnd {
    CallEnd {
        outcome,
        delivered,
        answer: b"{}".to_vec(),
    }
}

#[tokio::test]
async fn of_many_at_once_one_gets_the_call_and_nobody_the_next_before_it_has_ended() {
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

    // Back in its place; the attempt before has nothing to say any more.
    let pause = Duration::from_secs(60);
    assert!(store.put_call_back(first, 1, pause).await.unwrap());
    let aside = store.claim_call(&device, false).await.unwrap();
    assert!(matches!(aside, Claim::Busy), "{aside:?}");
    let again = claim(&store, &device).await.unwrap();
    assert_eq!((again.id, again.attempt), (first, 2));
    let succeeded = end(Outcome::Succeeded, Delivered::Yes);
    assert!(!store.end_call(first, 1, &succeeded).await.unwrap());
    assert!(!store.put_call_back(first, 1, pause).await.unwrap());
    assert!(store.end_call(first, 2, &succeeded).await.unwrap());
    let lost = end(Outcome::Lost, Delivered::Unknown);
    assert!(
        !store.end_call(first, 2, &lost).await.unwrap(),
        "over is over"
    );
    assert_eq!(claim(&store, &device).await.unwrap().id, second);
}

#[tokio::test]
async fn what_was_sent_and_never_heard_of_is_lost_and_the_next_one_follows() {
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
    let settled = store.settle_calls(None, &expired, &lost).await.unwrap();
    assert_eq!(settled.all(), 0);
    let late = "UPDATE calls SET deadline = now() - interval '3 s' WHERE state = 'sent'";
    database.execute(late).await.unwrap();
    let settled = store.settle_calls(None, &expired, &lost).await.unwrap();
    assert_eq!((settled.expired, settled.lost), (0, 1));
    let known = store.kept_call(device.org, first).await.unwrap().unwrap();
    assert_eq!(known.end, Some(lost.clone()));
    let cancelled = end(Outcome::Cancelled, Delivered::No);
    let withdrawal = store.withdraw_call(device.org, first, &cancelled).await;
    assert_eq!(withdrawal.unwrap(), Withdrawal::Ended);

    let over = "UPDATE calls SET expires_at = now() - interval '1 s' WHERE state = 'queued'";
    database.execute(over).await.unwrap();
    assert!(
        claim(&store, &device).await.is_none(),
        "never after its time"
    );
    let settled = store.settle_calls(Some(second), &expired, &lost).await;
    let settled = settled.unwrap();
    assert_eq!((settled.expired, settled.lost), (1, 0));
    let known = store.kept_call(device.org, second).await.unwrap().unwrap();
    assert_eq!(known.end, Some(expired));
    assert_eq!(store.purge_kept_calls(DAY).await.unwrap(), 0);
    let old = "UPDATE calls SET ended_at = now() - interval '25 h'";
    database.execute(old).await.unwrap();
    assert_eq!(store.purge_kept_calls(DAY).await.unwrap(), 2);
}

/// Callers, gateways, and the end of a queue at once: nothing is stranded, doubled or out of order.
#[tokio::test(flavor = "multi_thread")]
async fn i18_a_queue_loses_nothing_and_keeps_its_order_whoever_is_at_it() {
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
                    let ended = store.end_call(call.id, call.attempt, &succeeded).await;
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
