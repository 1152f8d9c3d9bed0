//! In which of a cluster's slots a key or channel is.
//! Never: another rule than Redis's own: what stands between the first braces decides, else the whole name.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key or channel.
pub(super) fn of(name: &str) -> u16 {
    crc16(tag(name).as_bytes()) % SLOTS
}

/// What decides: what is in braces, if anything is.
fn tag(name: &str) -> &str {
    let inside = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    match inside {
        Some((inside, _)) if !inside.is_empty() => inside,
        _ => name,
    }
}

/// CRC-16/XMODEM, which Redis's slots are counted with.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
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
    fn check(name: &str, slot: u16) {
        assert_eq!(of(name), slot, "{name}");
    }

    #[test]
    fn slots_are_those_that_redis_counts() {
        // As `CLUSTER KEYSLOT` answers.
        check("123456789", 12_739);
        check("", 0);
        check("foo", 12_182);
        check("sb:{foo}:bar", 12_182);
        check("{foo}{bar}", 12_182);
        check("foo{}{bar}", 8_363);
        check("foo{{bar}}zap", 4_015);
    }
}
