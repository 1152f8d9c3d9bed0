//! Keys in the database, encrypted with master keys.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, which reports the line"
)]

use secrecy::{ExposeSecret, SecretBox};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use switchboard_store::{
    MasterKeyError, MasterKeys, NewSigningKey, Rewrapped, Store, StoreError, testing::TestDatabase,
};

const SEED: [u8; 32] = [0xa1; 32];
const SEALING_KEY: [u8; 32] = [0xb2; 32];
/// The system scope, in which all rows are visible.
const SCOPE: &str = "SET switchboard.speaker = 'everyone';";

fn secret(bytes: [u8; 32]) -> SecretBox<[u8; 32]> {
    SecretBox::new(Box::new(bytes))
}

fn generated() -> String {
    MasterKeys::generate().expose_secret().to_owned()
}

fn parse(keys: &[&str]) -> MasterKeys {
    MasterKeys::parse(&keys.join("\n")).unwrap()
}

fn with_keys(database: &TestDatabase, keys: &[&str]) -> Store {
    database.store().with_master_keys(parse(keys))
}

/// Both tables as text, with bytes in hexadecimal digits.
async fn rows(database: &TestDatabase) -> String {
    let url = database.url().expose_secret();
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(SCOPE).execute(&mut connection).await.unwrap();
    let mut rows = Vec::new();
    for table in ["signing_keys", "sealing_keys"] {
        let sql = format!("SELECT t::text FROM {table} t ORDER BY 1");
        let found = sqlx::query_scalar::<_, String>(AssertSqlSafe(sql));
        rows.extend(found.fetch_all(&mut connection).await.unwrap());
    }
    rows.join("\n")
}

fn contains(rows: &str, bytes: &[u8]) -> bool {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    rows.contains(&hex)
}

async fn add_keys(store: &Store) {
    let key = NewSigningKey {
        kid: "kid-1".to_owned(),
        seed: secret(SEED),
    };
    assert!(store.add_first_signing_key(&key).await.unwrap());
    let fresh = secret(SEALING_KEY);
    let sealing = store.sealing_key("purpose", &fresh).await.unwrap();
    assert_eq!(*sealing.expose_secret(), SEALING_KEY);
}

/// The keys that this store reads.
async fn read(store: &Store) -> Result<(Vec<[u8; 32]>, Vec<u8>), StoreError> {
    let signing = store.signing_keys().await?;
    let sealing = store.sealing_key("purpose", &secret([0; 32])).await?;
    Ok((
        signing
            .iter()
            .map(|key| *key.seed.expose_secret())
            .collect(),
        sealing.expose_secret().clone(),
    ))
}

fn both() -> (Vec<[u8; 32]>, Vec<u8>) {
    (vec![SEED], SEALING_KEY.to_vec())
}

/// The error of a key that cannot be decrypted.
fn refused<T>(result: Result<T, StoreError>) -> MasterKeyError {
    match result {
        Err(StoreError::MasterKey(error)) => error,
        Err(error) => panic!("{}", error.report()),
        Ok(_) => panic!("the keys were readable"),
    }
}

#[tokio::test]
async fn rows_with_a_master_key_do_not_contain_the_keys() {
    let clear = TestDatabase::create().await.unwrap();
    add_keys(&clear.store()).await;
    let stored = rows(&clear).await;
    assert!(
        contains(&stored, &SEED) && contains(&stored, &SEALING_KEY),
        "{stored}"
    );

    let encrypted = TestDatabase::create().await.unwrap();
    let store = with_keys(&encrypted, &[&generated()]);
    add_keys(&store).await;
    let stored = rows(&encrypted).await;
    assert_eq!(stored.lines().count(), 2);
    assert!(!contains(&stored, &SEED[..8]), "{stored}");
    assert!(!contains(&stored, &SEALING_KEY[..8]), "{stored}");
    assert_eq!(read(&store).await.unwrap(), both());
}

#[tokio::test]
async fn keys_are_encrypted_rotated_and_decrypted_again() {
    let database = TestDatabase::create().await.unwrap();
    add_keys(&database.store()).await;
    let (first, second) = (generated(), generated());
    let rewrapped = async |keys: &[&str]| {
        let store = with_keys(&database, keys);
        let Rewrapped { keys, changed } = store.rewrap_keys().await.unwrap();
        assert_eq!(read(&store).await.unwrap(), both());
        (keys, changed)
    };
    assert_eq!(rewrapped(&[&first]).await, (2, 2));
    assert!(!contains(&rows(&database).await, &SEED));
    assert_eq!(rewrapped(&[&first]).await, (2, 0), "nothing to do");
    // Processes of both steps of a rotation read what the other one wrote.
    let before = with_keys(&database, &[&first, &second]);
    assert_eq!(rewrapped(&[&second, &first]).await, (2, 2));
    assert_eq!(read(&before).await.unwrap(), both());
    refused(read(&with_keys(&database, &[&first])).await);
    assert_eq!(
        read(&with_keys(&database, &[&second])).await.unwrap(),
        both()
    );
    // As before a downgrade.
    assert_eq!(rewrapped(&["none", &second]).await, (2, 2));
    assert_eq!(read(&database.store()).await.unwrap(), both());
}

#[tokio::test]
async fn missing_master_key_is_named_and_changes_nothing() {
    let database = TestDatabase::create().await.unwrap();
    let (key, other) = (generated(), generated());
    add_keys(&with_keys(&database, &[&key])).await;
    let before = rows(&database).await;
    let id = parse(&[&key]).current_id().unwrap().to_owned();
    for store in [database.store(), with_keys(&database, &[&other])] {
        for error in [
            refused(store.check_keys().await),
            refused(store.rewrap_keys().await),
            refused(store.signing_keys().await),
            refused(store.sealing_key("purpose", &secret([0; 32])).await),
        ] {
            let text = error.to_string();
            assert!(
                text.contains(&id) && text.contains("--master-key-file"),
                "{text}"
            );
            assert!(!text.contains(&key) && !text.contains(&other), "{text}");
        }
    }
    assert_eq!(rows(&database).await, before);
    // One readable key is not rewritten while another is not readable.
    let sealing = with_keys(&database, &[&other]);
    let added = sealing.sealing_key("another", &secret([1; 32])).await;
    assert!(added.is_ok());
    let before = rows(&database).await;
    refused(
        with_keys(&database, &[&generated(), &other])
            .rewrap_keys()
            .await,
    );
    assert_eq!(rows(&database).await, before);
}

#[tokio::test]
async fn key_of_another_row_is_refused() {
    let database = TestDatabase::create().await.unwrap();
    let store = with_keys(&database, &[&generated()]);
    add_keys(&store).await;
    let retire = format!("{SCOPE} UPDATE signing_keys SET retired_at = now()");
    database.execute(&retire).await.unwrap();
    let key = NewSigningKey {
        kid: "kid-2".to_owned(),
        seed: secret([0xc3; 32]),
    };
    assert!(store.add_first_signing_key(&key).await.unwrap());
    store.check_keys().await.unwrap();
    let swap = format!(
        "{SCOPE} UPDATE signing_keys a SET wrapped = b.wrapped FROM signing_keys b WHERE a.kid <> b.kid"
    );
    database.execute(&swap).await.unwrap();
    for error in [
        refused(store.signing_keys().await.map(drop)),
        refused(store.rewrap_keys().await.map(drop)),
    ] {
        assert!(matches!(error, MasterKeyError::Damaged { .. }), "{error}");
    }
    // Swapped back, they are readable.
    database.execute(&swap).await.unwrap();
    store.check_keys().await.unwrap();
    let copy = format!(
        "{SCOPE} UPDATE sealing_keys SET wrapped = (SELECT wrapped FROM signing_keys WHERE kid = 'kid-1')"
    );
    database.execute(&copy).await.unwrap();
    let error = refused(store.sealing_key("purpose", &secret([0; 32])).await);
    assert!(matches!(error, MasterKeyError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn replicas_encrypt_at_the_same_time() {
    let database = TestDatabase::create().await.unwrap();
    add_keys(&database.store()).await;
    let key = generated();
    let one = with_keys(&database, &[&key]);
    let other = Store::open(database.url()).unwrap();
    let other = other.with_master_keys(parse(&[&key]));
    let (first, second) = tokio::join!(one.rewrap_keys(), other.rewrap_keys());
    assert_eq!(first.unwrap().changed + second.unwrap().changed, 2);
    assert_eq!(read(&other).await.unwrap(), both());
}
