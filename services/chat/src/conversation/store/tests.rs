//! The stores of several replicas.

use switchboard_bus::{BusConfig, LocalHub};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use uuid::Uuid;

use super::*;

/// Stores of this many replicas.
fn replicas<const N: usize>(shutdown: &Shutdown) -> [ConversationStore; N] {
    let hub = LocalHub::default();
    std::array::from_fn(|number| {
        let config = BusConfig::local(&hub, format!("chat-{number}"));
        let registry = prometheus::Registry::new();
        let bus = Bus::start(config, &registry, shutdown).unwrap();
        let budgets = Budgets::new(&registry).unwrap();
        ConversationStore::new(bus, Duration::from_secs(600), &budgets)
    })
}

fn key() -> ConversationKey {
    ConversationKey {
        org: OrgId::from_uuid(Uuid::from_u128(7)),
        name: "nobody/device:toy-1".to_owned(),
    }
}

/// Stores an exchange. Returns the messages of the conversation.
async fn add_message(store: &ConversationStore, message: &str) -> Vec<String> {
    let exchange = Exchange::start(message.to_owned(), message);
    let (key, new_conversation) = (key(), || Conversation::new(None, None));
    let stored = store.upsert_exchange(&key, new_conversation, &exchange);
    let stored = stored.await.unwrap();
    let exchanges = stored.exchanges.iter();
    exchanges.map(|exchange| exchange.message.clone()).collect()
}

#[tokio::test]
async fn replicas_continue_what_others_have_stored() {
    let shutdown = Shutdown::new();
    let [one, two] = replicas(&shutdown);
    assert_eq!(add_message(&one, "a").await, ["a"]);
    assert_eq!(add_message(&two, "b").await, ["a", "b"]);
    assert_eq!(add_message(&one, "c").await, ["a", "b", "c"]);
    assert_eq!(add_message(&one, "d").await, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn deleted_conversation_is_not_continued() {
    let shutdown = Shutdown::new();
    let [one, two] = replicas(&shutdown);
    assert_eq!(add_message(&one, "a").await, ["a"]);
    assert_eq!(two.update(&key(), |_| None).await, None);
    assert_eq!(add_message(&one, "b").await, ["b"]);
    assert_eq!(one.update(&key(), |_| None).await, None);
    assert!(one.latest.take(&key()).is_none());
    assert_eq!(add_message(&two, "c").await, ["c"]);
}
