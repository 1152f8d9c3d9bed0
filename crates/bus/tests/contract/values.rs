//! Short-lived values: taken once, gone in time.

use std::time::Duration;

use bytes::Bytes;

use crate::{over_both, station::eventually};

#[tokio::test]
async fn i2_a_key_is_taken_once_whoever_asks() {
    over_both(|site| async move {
        let (one, two) = (site.caller("one").await, site.caller("two").await);
        let minute = Duration::from_secs(60);
        assert_eq!(
            one.reserve("k", Bytes::from_static(b"first"), minute)
                .await
                .unwrap(),
            None
        );
        let existing = two
            .reserve("k", Bytes::from_static(b"second"), minute)
            .await
            .unwrap();
        assert_eq!(existing.as_deref(), Some(&b"first"[..]));
        one.put("k", Bytes::from_static(b"done"), minute)
            .await
            .unwrap();
        let existing = two
            .reserve("k", Bytes::from_static(b"second"), minute)
            .await
            .unwrap();
        assert_eq!(existing.as_deref(), Some(&b"done"[..]));
        two.remove("k").await.unwrap();
        assert_eq!(
            one.reserve("k", Bytes::from_static(b"third"), minute)
                .await
                .unwrap(),
            None
        );
    })
    .await;
}

#[tokio::test]
async fn a_value_ends_with_its_time() {
    over_both(|site| async move {
        let node = site.caller("one").await;
        let blink = Duration::from_millis(50);
        node.reserve("k", Bytes::from_static(b"first"), blink)
            .await
            .unwrap();
        let again = async || {
            node.reserve("k", Bytes::from_static(b"again"), blink)
                .await
                .unwrap()
        };
        eventually(Duration::from_secs(5), again, Option::is_none).await;
    })
    .await;
}
