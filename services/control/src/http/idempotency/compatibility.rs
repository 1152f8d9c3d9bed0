//! Compatibility tests of stored answers and of sealed texts in PostgreSQL.
//!
//! What one release has sealed another has to open: secrets of webhooks outlive releases.

use secrecy::SecretBox;
use switchboard_identity::Seal;
use switchboard_test_support::snapshot;

use super::hash;

/// `{"key":"sb_1"}` as an earlier release sealed it for `Bearer a` and the key `key-1`.
const SEALED_ANSWER: &str = include_str!("../../../../../tests/compatibility/sealed-answer.txt");
/// The same with a key of the installation.
const SEALED_SECRET: &str = include_str!("../../../../../tests/compatibility/sealed-secret.txt");
const TEXT: &[u8] = br#"{"key":"sb_1"}"#;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.trim_end().chars().collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs
        .map(|pair| u8::from_str_radix(&pair, 16).unwrap())
        .collect()
}

#[test]
fn digests_of_requests_are_unchanged() {
    let owner = hash(&[b"org_1", b"key_2", b"key-1"]);
    let request = hash(&[b"POST", b"/v1/templates?a=b", b"{}"]);
    let lines = [owner, request].map(|digest| hex(&digest));
    snapshot::check("request-digests.txt", lines);
}

#[test]
fn texts_of_earlier_releases_are_opened() {
    let seals = [
        (Seal::for_credential(b"Bearer a", "key-1"), SEALED_ANSWER),
        (
            Seal::with_key(&SecretBox::new(Box::new(vec![7; 32]))),
            SEALED_SECRET,
        ),
    ];
    let opened = seals
        .each_ref()
        .map(|(seal, sealed)| seal.unseal(&bytes(sealed)));
    let now = seals
        .each_ref()
        .map(|(seal, _)| hex(&seal.seal(TEXT).unwrap()));
    assert!(
        opened.iter().all(|text| text.as_deref() == Some(TEXT)),
        "compatibility break: stored secrets can not be read any longer; now: {now:?}"
    );
}
