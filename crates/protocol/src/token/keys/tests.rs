//! Tokens that verify and tokens that are refused.

use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::token::ServicePattern;

const NOW: u64 = 1_800_000_000;

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn claims() -> Claims {
    Claims {
        id: TokenId::from_uuid(Uuid::from_u128(1)),
        org: OrgId::from_uuid(Uuid::from_u128(2)),
        subject: "device:toy-1".parse().unwrap(),
        scopes: "device call".parse().unwrap(),
        restrictions: None,
        issued_at: NOW - 10,
        expires_at: NOW + 10,
    }
}

fn accepted_keys() -> VerifyingKeys {
    VerifyingKeys::new([key(1).verifying_key(), key(2).verifying_key()]).unwrap()
}

/// A valid payload with one claim replaced, or removed if the value is null.
fn payload_with(name: &str, value: Value) -> Value {
    let mut payload = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "device:toy-1", "scope": "device call",
        "org": claims().org, "jti": claims().id, "iat": NOW - 10, "exp": NOW + 10,
    });
    if value.is_null() {
        payload.as_object_mut().unwrap().remove(name);
    } else {
        payload[name] = value;
    }
    payload
}

/// A correctly signed token with any payload, which a [`SigningKey`] would not sign.
fn forge(payload: Value) -> String {
    #[derive(Serialize, Deserialize)]
    struct Any(serde_json::Map<String, Value>);
    let Value::Object(payload) = payload else {
        panic!("claims must be an object")
    };
    let key = key(1);
    let header = Header::empty().with_key_id(key.kid.as_str());
    Ed25519
        .token(&header, &JwtClaims::new(Any(payload)), &key.secret)
        .unwrap()
}

#[test]
fn signed_claims_verify_to_the_same() {
    for seed in [1, 2] {
        let token = key(seed).sign(&claims()).unwrap();
        assert_eq!(accepted_keys().verify(&token, NOW), Ok(claims()));
    }
    assert_eq!(
        accepted_keys().verify(&forge(payload_with("x", json!(1))), NOW),
        Ok(claims())
    );
}

#[test]
fn token_expires_to_the_second() {
    let token = key(1).sign(&claims()).unwrap();
    assert!(accepted_keys().verify(&token, NOW + 9).is_ok());
    let expired = Err(AccessError::Expired { at: NOW + 10 });
    assert_eq!(accepted_keys().verify(&token, NOW + 10), expired);
}

#[test]
fn unknown_or_wrong_key_is_refused() {
    let token = key(3).sign(&claims()).unwrap();
    assert_eq!(
        accepted_keys().verify(&token, NOW),
        Err(AccessError::UnknownKey)
    );
    let mut impostor = key(3);
    impostor.kid = key(1).kid;
    let token = impostor.sign(&claims()).unwrap();
    assert_eq!(
        accepted_keys().verify(&token, NOW),
        Err(AccessError::BadSignature)
    );
    assert_eq!(
        VerifyingKeys::default().verify(&token, NOW),
        Err(AccessError::UnknownKey)
    );
}

#[test]
fn tampered_byte_is_refused() {
    let token = key(1).sign(&claims()).unwrap();
    for at in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(bytes).unwrap();
        assert!(accepted_keys().verify(&tampered, NOW).is_err(), "byte {at}");
    }
}

#[test]
fn invalid_or_missing_claim_is_refused() {
    fn check(name: &str, value: Value, expect: AccessError) {
        let token = forge(payload_with(name, value.clone()));
        assert_eq!(
            accepted_keys().verify(&token, NOW),
            Err(expect),
            "{name}: {value}"
        );
    }
    for name in ["iss", "aud", "sub", "org", "scope", "jti", "iat", "exp"] {
        check(name, Value::Null, AccessError::Malformed);
    }
    check("iss", json!("other"), AccessError::WrongIssuer);
    check("aud", json!("other"), AccessError::WrongAudience);
    check("aud", json!([AUDIENCE]), AccessError::Malformed);
    check("sub", json!("toy-1"), AccessError::Malformed);
    check("org", json!("org_1"), AccessError::Malformed);
    check("scope", json!("device root"), AccessError::Malformed);
    check("exp", json!("soon"), AccessError::Malformed);
    check("exp", json!(-1), AccessError::Malformed);
    check("exp", json!(i64::MAX), AccessError::Malformed);
    check("exp", json!(NOW), AccessError::Expired { at: NOW });
}

#[test]
fn other_algorithm_is_refused() {
    let token = key(1).sign(&claims()).unwrap();
    let (_, rest) = token.split_once('.').unwrap();
    let (payload, _) = rest.split_once('.').unwrap();
    // {"alg":"none"} and {"alg":"HS256"}, both with the id of an accepted key.
    for alg in ["none", "HS256", "Ed25519", "eddsa"] {
        let header = json!({ "alg": alg, "kid": key(1).kid }).to_string();
        let header = base64url(header.as_bytes());
        for forged in [format!("{header}.{payload}."), format!("{header}.{rest}")] {
            assert_eq!(
                accepted_keys().verify(&forged, NOW),
                Err(AccessError::Malformed),
                "{alg}"
            );
        }
    }
    for garbage in ["", ".", "..", "a.b.c", "a.b.c.d", &"x".repeat(5000)] {
        assert_eq!(
            accepted_keys().verify(garbage, NOW),
            Err(AccessError::Malformed),
            "{garbage:.9}"
        );
    }
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for digit in 0..=chunk.len() {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

#[test]
fn verifying_key_serialises_as_jwk() {
    let public = key(1).verifying_key();
    let jwk = serde_json::to_value(&public).unwrap();
    assert_eq!(
        (&jwk["kty"], &jwk["crv"]),
        (&json!("OKP"), &json!("Ed25519"))
    );
    assert_eq!((public.kid.len(), public.x.len()), (16, 43));
    assert_eq!(serde_json::from_value::<VerifyingKey>(jwk).unwrap(), public);

    let renamed = VerifyingKey {
        kid: key(2).kid,
        ..public.clone()
    };
    let broken = VerifyingKey {
        x: "AAAA".into(),
        ..public
    };
    for bad in [renamed, broken] {
        assert_eq!(VerifyingKeys::new([bad]).err(), Some(AccessError::BadKey));
    }
}

#[test]
fn private_key_is_absent_from_debug_output() {
    let shown = format!("{:?}", key(7));
    assert!(
        shown.contains(&key(7).kid) && !shown.contains("7, 7"),
        "{shown}"
    );
}

#[test]
fn restrictions_are_verified_and_bound_to_their_audience() {
    let prefix = || Some("toy-".parse().unwrap());
    let services = ["wave", "led.*"].map(|text| ServicePattern::parse(text).unwrap());
    let restricted = Claims {
        restrictions: Some(Arc::new(Restrictions {
            device_prefix: prefix(),
            device_label: None,
            services: Some(services.into()),
        })),
        ..claims()
    };
    let token = key(1).sign(&restricted).unwrap();
    assert_eq!(accepted_keys().verify(&token, NOW), Ok(restricted));
    // A node that ignored the claim would refuse the audience, and the reverse.
    let mut payload = payload_with("aud", json!(RESTRICTED_AUDIENCE));
    let refused = accepted_keys().verify(&forge(payload.clone()), NOW);
    assert_eq!(refused, Err(AccessError::WrongAudience));
    payload["restrictions"] = json!({"services": ["wave"]});
    assert!(accepted_keys().verify(&forge(payload.clone()), NOW).is_ok());
    payload["aud"] = json!(AUDIENCE);
    let refused = accepted_keys().verify(&forge(payload.clone()), NOW);
    assert_eq!(refused, Err(AccessError::WrongAudience));
    payload["restrictions"] = json!({"device_label": "room:kitchen"});
    for (audience, expected) in [
        (AUDIENCE, false),
        (RESTRICTED_AUDIENCE, false),
        (LABELLED_AUDIENCE, true),
    ] {
        payload["aud"] = json!(audience);
        let verified = accepted_keys().verify(&forge(payload.clone()), NOW);
        assert_eq!(verified.is_ok(), expected, "{audience}");
    }
    payload["restrictions"] = json!({"services": [""]});
    let refused = accepted_keys().verify(&forge(payload), NOW);
    assert_eq!(refused, Err(AccessError::Malformed));
}

#[test]
fn token_with_the_most_restrictions_is_verified() {
    let pattern = |number| ServicePattern::parse(&format!("{number:02}{}*", "x".repeat(40)));
    let patterns: Vec<_> = (0..super::super::MAX_PATTERNS)
        .map(|number| pattern(number).unwrap())
        .collect();
    let json = serde_json::to_string(&patterns).unwrap();
    assert!(json.len() > super::super::MAX_PATTERNS_JSON_BYTES - 100);
    let restricted = Claims {
        subject: format!("client:{}", "c".repeat(64)).parse().unwrap(),
        restrictions: Some(Arc::new(Restrictions {
            device_prefix: Some("d".repeat(64).parse().unwrap()),
            device_label: Some("l".repeat(63).parse().unwrap()),
            services: Some(patterns),
        })),
        ..claims()
    };
    let token = key(1).sign(&restricted).unwrap();
    assert_eq!(accepted_keys().verify(&token, NOW), Ok(restricted));
}
