//! The hash slots of a Redis cluster.

/// The number of slots.
pub(in crate::redis) const SLOTS: u16 = 16_384;

/// The slot of a key or channel.
pub(in crate::redis) fn slot(name: &str) -> u16 {
    crc16(hash_tag(name).as_bytes()) % SLOTS
}

/// The part of a name that is hashed: what is in the first braces, unless that is empty.
fn hash_tag(name: &str) -> &str {
    let inside = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    match inside {
        Some((inside, _)) if !inside.is_empty() => inside,
        _ => name,
    }
}

/// CRC-16/XMODEM, the hash that Redis uses.
pub(in crate::redis) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let carry = crc & 0x8000 != 0;
            (crc << 1) ^ if carry { 0x1021 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: u16) {
        assert_eq!(slot(name), expected, "{name}");
    }

    #[test]
    fn slots_agree_with_redis() {
        // As returned by `CLUSTER KEYSLOT`.
        check("123456789", 12_739);
        check("", 0);
        check("foo", 12_182);
        check("sb:{foo}:bar", 12_182);
        check("{foo}{bar}", 12_182);
        check("foo{}{bar}", 8_363);
        check("foo{{bar}}zap", 4_015);
    }
}
