//! The nesting depth of JSON, checked before a recursive parser reads it.

/// The maximum depth, as in most JSON parsers.
pub const MAX_DEPTH: usize = 128;

/// Returns true when arrays and objects are nested deeper than [`MAX_DEPTH`]. Does not recurse, and
/// skips strings. The result for invalid JSON is unspecified.
#[must_use]
pub fn is_too_deep(json: &[u8]) -> bool {
    // Every level costs an opening and a closing byte, so most messages are too short to be deep.
    if json.len() <= MAX_DEPTH.saturating_mul(2) {
        return false;
    }
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => depth = depth.saturating_add(1),
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_ignores_strings() {
        fn check(json: &str, expect: bool) {
            assert_eq!(is_too_deep(json.as_bytes()), expect, "{:.40}", json);
        }
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        check(&nested(MAX_DEPTH), false);
        check(&nested(MAX_DEPTH + 1), true);
        check(&"[".repeat(100_000), true);
        check(&format!("[\"{}\"]", "[".repeat(1000)), false);
        check(&format!("[\"\\\"{}\"]", "[".repeat(1000)), false);
        check(&"[],".repeat(1000), false);
    }
}
