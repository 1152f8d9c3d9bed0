//! Tickets that are sealed, opened and changed, and the keys of their periods.

use switchboard_protocol::id::{DeviceKey, OrgId, TokenId};
use uuid::Uuid;

use super::*;
use crate::auth::TokenCheck;

const NOW_S: u64 = 1_800_000_000;

fn keys(period: u64, seeds: [u8; 3]) -> TicketKeys {
    let keys = TicketKeys::new();
    keys.adopt(period, seeds.map(|seed| TicketSecret([seed; 32])));
    keys
}

fn holder(device: &str) -> TicketHolder {
    let org = OrgId::from_uuid(Uuid::from_u128(1));
    TicketHolder {
        device: DeviceKey {
            org,
            device: device.parse().unwrap(),
        },
        token: TokenCheck {
            id: TokenId::from_uuid(Uuid::from_u128(2)),
            org,
            key: "0123456789abcdef".parse().unwrap(),
            expires_at: NOW_S + 100 * MAX_TTL_S,
        },
        digest: TokenDigest::compute("token"),
    }
}

#[test]
fn ticket_opens_until_it_or_its_token_expires() {
    #[track_caller]
    fn check(device: &str, token_lasts_s: u64, expected_ttl_s: u64) {
        let keys = keys(5, [1, 2, 3]);
        let mut holder = holder(device);
        holder.token.expires_at = NOW_S + token_lasts_s;
        let (ticket, ttl_s) = keys.seal(&holder, NOW_S).unwrap();
        assert_eq!(ttl_s, expected_ttl_s);
        let opened = |now_s| keys.open(ticket.expose(), now_s);
        assert_eq!(opened(NOW_S + ttl_s - 1), Some(holder));
        assert_eq!(opened(NOW_S + ttl_s), None);
    }
    check("t", 60, 60);
    check(&"x".repeat(64), 366 * 24 * 3600, MAX_TTL_S);
}

#[test]
fn key_opens_tickets_from_a_period_before_its_own_until_one_after() {
    let sealing = keys(5, [5, 6, 4]);
    let (ticket, _) = sealing.seal(&holder("toy-1"), NOW_S).unwrap();
    #[track_caller]
    fn check(ticket: &ResumeTicket, keys: &TicketKeys, opens: bool) {
        assert_eq!(keys.open(ticket.expose(), NOW_S).is_some(), opens);
    }
    check(&ticket, &keys(4, [4, 5, 3]), true);
    check(&ticket, &keys(6, [6, 7, 5]), true);
    check(&ticket, &keys(7, [7, 8, 6]), false);
    check(&ticket, &TicketKeys::new(), false);
    assert!(TicketKeys::new().seal(&holder("toy-1"), NOW_S).is_none());
}

#[test]
fn changed_ticket_does_not_open() {
    let keys = keys(5, [1, 2, 3]);
    let (ticket, _) = keys.seal(&holder("toy-1"), NOW_S).unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(ticket.expose()).unwrap();
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        assert_eq!(keys.open(&URL_SAFE_NO_PAD.encode(&changed), NOW_S), None);
        let shorter = URL_SAFE_NO_PAD.encode(&bytes[..index]);
        assert_eq!(keys.open(&shorter, NOW_S), None);
    }
    for text in ["", "no ticket", &"A".repeat(10_000)] {
        assert_eq!(keys.open(text, NOW_S), None);
    }
}

#[test]
fn known_keys_are_proposed_again() {
    let former = keys(5, [5, 6, 4]);
    let [current, next, previous] = former.propose(6);
    assert!(current == (6, TicketSecret([6; 32])) && previous == (5, TicketSecret([5; 32])));
    assert!(next.0 == 7 && next.1 != former.propose(6)[1].1);
}
