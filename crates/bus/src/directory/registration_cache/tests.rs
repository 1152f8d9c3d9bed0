//! How long registrations are kept, and when their text is sent again.

use uuid::Uuid;

use super::*;

#[test]
fn registration_lives_while_connections_use_it() {
    let cache = RegistrationCache::default();
    let (one, other) = (OrgId::from_uuid(Uuid::nil()), OrgId::from_uuid(Uuid::max()));
    let key = (one, Digest([1; 32]));
    let foreign = (other, key.1);
    let is_first = |key| {
        let acquired = cache.acquire(key);
        let is_first = acquired.is_first;
        acquired.keep();
        is_first
    };
    assert!(is_first(key));
    assert!(!is_first(key));
    assert!(is_first(foreign), "another organisation has its own text");
    assert!(cache.should_publish(key));
    assert!(!cache.should_publish(key));
    assert!(cache.should_publish(foreign), "it has not received it");
    cache.reset_published();
    assert!(cache.should_publish(key));
    cache.release(key);
    drop(cache.acquire(key));
    assert!(!is_first(key), "one connection is left");
    cache.release(key);
    cache.release(key);
    assert!(is_first(key));
}
