//! Approvals of services in a real PostgreSQL: what an organisation may occupy.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{ApiKeyId, DeviceId, OrgId},
    schema::Digest,
    token::Scope,
};
use switchboard_store::{NewApiKey, Store, testing::TestDatabase};
use uuid::Uuid;

const MIB: usize = 1024 * 1024;
/// The definitions that an organisation may have.
const MAX_MIB: usize = 32;

async fn new_org(store: &Store) -> OrgId {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "key".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [1; 32],
        scopes: [Scope::Admin].into_iter().collect(),
    };
    store.create_org(org, "an org", &key).await.unwrap();
    org
}

fn definition(bytes: usize) -> Box<RawValue> {
    // With its quotes.
    let text = format!("\"{}\"", "x".repeat(bytes - 2));
    RawValue::from_string(text).unwrap()
}

async fn approve(store: &Store, org: OrgId, digest: u8, definition: &RawValue) -> bool {
    let device: DeviceId = "toy-1".parse().unwrap();
    let service = ("wave", Digest([digest; 32]));
    let approved = store.approve_service(org, Some(&device), service, (definition, "key"));
    approved.await.unwrap()
}

#[tokio::test]
async fn approvals_in_place_of_others_count_towards_the_limit() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store).await;
    let rest = format!(
        "INSERT INTO service_approvals (id, org_id, device_id, service, digest, definition, approved_by)
         SELECT gen_random_uuid(), '{}', 'toy-' || number, 'store', sha256('x'), repeat('x', {MIB}), 'key'
         FROM generate_series(2, {}) AS number",
        org.uuid(),
        MAX_MIB - 1
    );
    database.execute(&rest).await.unwrap();
    assert!(approve(&store, org, 1, &definition(MIB)).await);
    assert!(approve(&store, org, 2, &definition(2 * MIB)).await);
    assert!(!approve(&store, org, 3, &definition(2 * MIB + 1)).await);
    let device: DeviceId = "toy-1".parse().unwrap();
    let services = [("wave".to_owned(), Digest([2; 32]))];
    let approvals = store
        .approvals_of_device(org, &device, &services, true)
        .await;
    let approvals = approvals.unwrap();
    assert_eq!(approvals[0].digest, Digest([2; 32]));
    let definition_of = approvals[0].definition.as_ref();
    assert_eq!(definition_of.unwrap().get().len(), 2 * MIB);
    assert!(approve(&store, org, 3, &definition(2 * MIB)).await);
}
