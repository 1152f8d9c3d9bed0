//! Sessions over a real database: which cookies are opened, and by which nodes.

use secrecy::ExposeSecret as _;
use switchboard_store::{MasterKeys, testing::TestDatabase};

use super::*;

const NOW: u64 = 1_800_000_000;
const HOLDER: Holder = Holder::ApiKey(KeyHash([7; 32]));

async fn sealed(sessions: &Sessions) -> String {
    let content = Content::new(HOLDER, NOW);
    sessions.0.seal(&content.encode()).await.unwrap()
}

async fn read(sessions: &Sessions, sealed: &str, now: u64) -> Result<Holder, Refusal> {
    let session = sessions.read(sealed, Transport::Https, now).await?;
    Ok(session.holder())
}

#[tokio::test]
async fn session_is_opened_by_every_node_of_its_installation() {
    let database = TestDatabase::create().await.unwrap();
    let [first, second] = [(), ()].map(|()| Sessions::new(database.store()));
    let cookie = sealed(&first).await;
    assert_eq!(read(&second, &cookie, NOW).await, Ok(HOLDER));
    assert_eq!(
        read(&second, &cookie, NOW + 3_600).await,
        Err(Refusal::Expired)
    );
    let other = TestDatabase::create().await.unwrap();
    let other = Sessions::new(other.store());
    // Before and after the other installation has a key.
    assert_eq!(read(&other, &cookie, NOW).await, Err(Refusal::Expired));
    sealed(&other).await;
    assert_eq!(read(&other, &cookie, NOW).await, Err(Refusal::Expired));
    for at in 0..cookie.len() {
        let changed = if cookie.as_bytes()[at] == b'A' {
            "B"
        } else {
            "A"
        };
        let mut tampered = cookie.clone();
        tampered.replace_range(at..=at, changed);
        let read = read(&first, &tampered, NOW).await;
        assert_eq!(read, Err(Refusal::Expired), "{at}");
        let truncated = &cookie[..at];
        let read = self::read(&first, truncated, NOW).await;
        assert_eq!(read, Err(Refusal::Expired), "{at}");
    }
}

#[tokio::test]
async fn unknown_cookie_creates_no_key() {
    let database = TestDatabase::create().await.unwrap();
    let sessions = Sessions::new(database.store());
    let cookie = "A".repeat(120);
    assert_eq!(read(&sessions, &cookie, NOW).await, Err(Refusal::Expired));
    let key = database
        .store()
        .existing_sealing_key("console sessions")
        .await;
    assert!(key.unwrap().is_none());
}

#[tokio::test]
async fn session_outlives_a_new_master_key() {
    let master = MasterKeys::parse(MasterKeys::generate().expose_secret()).unwrap();
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let clear = Sessions::new(store.clone());
    let cookie = sealed(&clear).await;
    let wrapped = store.clone().with_master_keys(master);
    wrapped.rewrap_keys().await.unwrap();
    assert_eq!(
        read(&Sessions::new(wrapped), &cookie, NOW).await,
        Ok(HOLDER)
    );
    // A node that knew the key before still has it; one without the master key accepts no session.
    assert_eq!(read(&clear, &cookie, NOW).await, Ok(HOLDER));
    let without = Sessions::new(store);
    assert_eq!(
        read(&without, &cookie, NOW).await,
        Err(Refusal::Unavailable)
    );
}

#[tokio::test]
async fn cookie_is_renewed_after_5_minutes_of_use() {
    let database = TestDatabase::create().await.unwrap();
    let sessions = Sessions::new(database.store());
    let cookie = sealed(&sessions).await;
    let session = sessions.read(&cookie, Transport::Loopback, NOW + 299).await;
    let session = session.unwrap();
    assert!(sessions.renewed(&session, NOW + 299).await.is_none());
    let renewed = sessions.renewed(&session, NOW + 300).await.unwrap();
    let renewed = renewed.to_str().unwrap().split(';').next().unwrap();
    let (name, renewed) = renewed.split_once('=').unwrap();
    assert_eq!(name, "switchboard_session");
    assert_eq!(
        read(&sessions, renewed, NOW + 300 + 3_599).await,
        Ok(HOLDER)
    );
    assert_eq!(
        read(&sessions, &cookie, NOW + 3_600).await,
        Err(Refusal::Expired)
    );
}

#[test]
fn only_media_are_loaded_without_the_header_of_the_console() {
    fn check(method: Method, path: &str, expected: bool) {
        assert_eq!(is_media(&method, path), expected, "{method} {path}");
    }
    check(Method::GET, "/v1/pictures/pic_1/content", true);
    check(Method::HEAD, "/v1/voices/voice_1/preview", true);
    check(Method::GET, "/v1/templates/tpl_1/export", true);
    check(Method::POST, "/v1/pictures/pic_1/content", false);
    check(Method::GET, "/v1/pictures/pic_1", false);
    check(Method::GET, "/v1/contents", false);
}
