//! Patterns that are accepted and what they match, hostile patterns, and the two engines compared.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// More than any compilation or match may take, in a debug build on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(3);

fn text(pattern: &str, max_length: Option<usize>) -> PatternUse {
    PatternUse {
        pointer: String::new(),
        pattern: pattern.to_owned(),
        kind: PatternKind::Text { max_length },
    }
}

fn name(pattern: &str) -> PatternUse {
    PatternUse {
        kind: PatternKind::Name,
        ..text(pattern, None)
    }
}

/// Patterns of real schemas, each with a text that matches and one that does not.
const ORDINARY: [(&str, &str, &str); 48] = [
    ("^[a-z]{1,64}$", "light", "Light"),
    (
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        "0188a3c4-0000-7000-8000-0123456789ab",
        "0188a3c4",
    ),
    (r"^\d{4}-\d{2}-\d{2}$", "2025-01-22", "2025-1-22"),
    (
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
        "2025-01-22T08:30:00Z",
        "2025-01-22",
    ),
    (r"^([01]\d|2[0-3]):[0-5]\d$", "23:59", "24:00"),
    (r"^[\w.+-]+@[\w-]+\.[\w.]+$", "a.b@example.com", "a.b"),
    (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", "玩具@example.com", "a b@c.d"),
    (
        r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$",
        "a@b.example",
        "a@-b",
    ),
    (r"^1[3-9]\d{9}$", "13800138000", "12800138000"),
    (r"^\+?[1-9]\d{1,14}$", "+4915112345678", "0151"),
    ("^#[0-9a-fA-F]{6}$", "#12ab4f", "#12345g"),
    ("^#([0-9a-f]{3}|[0-9a-f]{6})$", "#abc", "#abcd"),
    (
        r"^rgb\(\d{1,3}, ?\d{1,3}, ?\d{1,3}\)$",
        "rgb(1, 22, 255)",
        "rgb(1)",
    ),
    (r"^\p{L}+$", "玩具", "玩具1"),
    ("^[\\p{L}\\p{N} _-]+$", "玩具 1", "a!"),
    ("^[\\p{L}\\p{N} ]{1,20}$", "Küche 2", ""),
    ("^\\p{Lu}[\\p{L}'’ -]{0,15}$", "Émile O'Neil", "émile"),
    (r"^\p{Script=Han}{2,8}$", "玩具", "toy"),
    ("^[\u{4e00}-\u{9fa5}]{1,20}$", "玩具", "toy"),
    ("[\u{4e00}-\u{9fa5}]", "a玩", "toy"),
    ("^.{1,64}$", "a", ""),
    ("^.{0,200}$", "", "a\nb"),
    ("^.+$", "a", ""),
    (r"^\S+$", "ab", "a b"),
    (r"^\S(.*\S)?$", "a b", " a"),
    (r"\S", "a", "  "),
    (r"^[\w.-]{1,64}$", "a.txt", "a/b"),
    (r"^[^\\/:*?<>|]{1,100}$", "a.txt", "a/b"),
    (r"^(/[\w.-]+)+/?$", "/var/log/a.log", "var"),
    (
        r"^((25[0-5]|2[0-4]\d|1?\d?\d)(\.|$)){4}$",
        "10.0.0.255",
        "10.0.0.256",
    ),
    (
        "^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$",
        "00:1a:2B:3c:4d:5e",
        "00:1a",
    ),
    (
        "^([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$",
        "1:2:3:4:5:6:7:8",
        "1::8",
    ),
    (
        r"^https?://[^\s/$.?#].[^\s]*$",
        "https://example.com/a?b",
        "ftp://example.com",
    ),
    (
        r"^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$",
        "api.example.com",
        "-a.com",
    ),
    (
        r"^v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[\w.-]+)?(\+[\w.-]+)?$",
        "v1.2.3-rc.1",
        "1.2",
    ),
    ("^[A-Za-z0-9+/]*={0,2}$", "QUJD", "QU!D"),
    ("^[A-Za-z0-9_-]+$", "a_b-c", "a b"),
    (
        "^[0-9a-f]{64}$",
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "44",
    ),
    (
        r"^eyJ[\w-]*\.[\w-]*\.[\w-]*$",
        "eyJhbGciOiJ9.e30.c2ln",
        "eyJ",
    ),
    (r"^-?\d+(\.\d+)?$", "-3.5", "3."),
    ("^(on|off|auto)$", "auto", "ON"),
    ("(?i)^(on|off|auto)$", "ON", "none"),
    (
        "^(mon|tue|wed|thu|fri|sat|sun)(,(mon|tue|wed|thu|fri|sat|sun)){0,6}$",
        "mon,fri",
        "mon;fri",
    ),
    (
        r"^(\*|[0-5]?\d)( (\*|[01]?\d|2[0-3]))( (\*|[12]?\d|3[01])){1}$",
        "5 12 *",
        "61 1 1",
    ),
    (r"^PT(\d+H)?(\d+M)?(\d+S)?$", "PT1H30M", "P1D"),
    (
        "^[A-Z]{2}\\d{2}[A-Z0-9]{11,30}$",
        "DE89370400440532013000",
        "de89",
    ),
    (
        r"^[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼][A-Z][A-Z0-9]{5,6}$",
        "京A12345",
        "A12345",
    ),
    (r"\bwifi\b", "the wifi here", "wifis"),
];

#[test]
fn ordinary_pattern_is_accepted_without_a_max_length() {
    for (pattern, matching, other) in ORDINARY {
        let mut patterns = Patterns::default();
        let started = Instant::now();
        if let Err(fault) = patterns.add(&text(pattern, None)) {
            panic!("{pattern}: {fault}");
        }
        let took = started.elapsed();
        assert!(took < TIMEOUT, "{pattern} took {took:?}");
        let bytes = patterns.bytes();
        assert!(bytes <= MAX_NFA_BYTES, "{pattern} takes {bytes} bytes");
        let program = &patterns.programs[pattern];
        assert!(program.is_match(matching), "{pattern} on {matching}");
        assert!(!program.is_match(other), "{pattern} on {other}");
    }
}

#[test]
fn ordinary_patterns_fit_into_few_registrations() {
    let (mut patterns, mut registrations) = (Patterns::default(), 1);
    for (pattern, _, _) in ORDINARY {
        if patterns.add(&text(pattern, Some(200))).is_err() {
            registrations += 1;
            patterns = Patterns::default();
            patterns.add(&text(pattern, Some(200))).unwrap();
        }
        let before = patterns.bytes();
        patterns.add(&text(pattern, None)).unwrap();
        assert_eq!(patterns.bytes(), before, "{pattern} is compiled once");
    }
    assert!(registrations <= 3, "{registrations}");
}

#[test]
fn costly_pattern_is_refused_with_its_remedy() {
    for pattern in [
        "(?:a?){900}a{900}c",
        "(?:a|aa){300}b[ab]{100}c",
        "([^x]{0,9}a){9}c",
        "[ab]*a[ab]{300}c|[ab]*b[ab]{301}d",
        r"\b(\w+\s){1,200}\w*[^\w]{99}\b",
    ] {
        let started = Instant::now();
        let fault = Patterns::default().add(&text(pattern, None)).unwrap_err();
        assert!(started.elapsed() < TIMEOUT, "{pattern}");
        let SchemaFault::PatternTooCostly {
            steps, max_length, ..
        } = &fault
        else {
            panic!("{pattern}: {fault}");
        };
        assert!(*steps > MAX_STEPS && *max_length > 0, "{pattern}: {fault}");
        let sentence = fault.to_string();
        assert!(
            sentence.contains(pattern) && sentence.contains("10485760"),
            "{sentence}"
        );
        let mut patterns = Patterns::default();
        assert!(
            patterns.add(&text(pattern, Some(*max_length))).is_ok(),
            "{pattern}"
        );
        let beyond = max_length.saturating_add(1);
        assert!(
            patterns.add(&text(pattern, Some(beyond))).is_err(),
            "{pattern}"
        );
    }
}

#[test]
fn pattern_at_the_bound_matches_in_time() {
    let mut patterns = Patterns::default();
    let pattern = "(?:a?){900}a{900}c";
    let used = text(pattern, Some(700));
    patterns.add(&used).unwrap();
    let program = &patterns.programs[pattern];
    let started = Instant::now();
    assert!(!program.is_match(&"a".repeat(2_800)));
    assert!(started.elapsed() < TIMEOUT);
}

#[test]
fn registration_bounds_the_memory_and_the_time_of_its_patterns() {
    let (mut patterns, mut accepted) = (Patterns::default(), 0);
    let started = Instant::now();
    let fault = loop {
        let pattern = format!("^.{{1,120}}x{accepted}y");
        match patterns.add(&text(&pattern, Some(100))) {
            Ok(_) => accepted += 1,
            Err(fault) => break fault,
        }
    };
    assert!(accepted > 4, "{accepted}");
    assert!(
        fault.to_string().contains("1048576 bytes together"),
        "{fault}"
    );

    // Each of these is tried in vain, until no further one is tried.
    let mut patterns = Patterns::default();
    for number in 0..128 {
        patterns
            .add(&text(&format!("[ab]*a[ab]{{60}}c{number}"), Some(100)))
            .unwrap();
    }
    assert_eq!(patterns.dfa_failures, MAX_DFA_FAILURES);
    assert!(started.elapsed() < TIMEOUT * 2, "{:?}", started.elapsed());
}

#[test]
fn pattern_for_names_is_bounded() {
    let mut patterns = Patterns::default();
    for pattern in [
        "^x-",
        "^(a|b)$",
        r"^(foo|bar)_\d+$",
        r"^\p{L}+$",
        "^[a-z_]{1,64}$",
    ] {
        let steps = patterns.add(&name(pattern)).unwrap();
        assert!((1..=MAX_NAME_STATES).contains(&steps.name), "{pattern}");
    }
    for pattern in ["(?:a?){900}a{900}c", r"^(\p{L}+)x$", "^.{1,120}$"] {
        let fault = Patterns::default().add(&name(pattern)).unwrap_err();
        assert!(fault.to_string().contains("patternProperties"), "{fault}");
    }
    let too_many = (0..9).find_map(|number| {
        let pattern = format!("^[a-z]{{{number}}}[0-9]");
        patterns.add(&name(&pattern)).err()
    });
    assert!(matches!(
        too_many,
        Some(SchemaFault::PatternsTooLarge { .. })
    ));
}

#[test]
fn bad_pattern_is_refused() {
    for pattern in [
        "(?=a)",
        r"(a)\1",
        "a(",
        "(a{200}){200}",
        "(?:){1000000000}x{99999}",
    ] {
        let fault = Patterns::default().add(&text(pattern, None)).unwrap_err();
        assert_eq!(fault, SchemaFault::BadPattern, "{pattern}");
    }
}

proptest! {
    #[test]
    fn engines_agree(
        pattern in r"\^?([abx.]|[ab]\*|\[\^a\]\+|\(a\|bx\)\?|b\{0,3\}|\\w|\\s\?){0,8}\$?",
        texts in proptest::collection::vec("[ab x玩\n]{0,12}", 8),
    ) {
        let (one_state, _) = Program::compile(&pattern, true).unwrap();
        let (all_states, _) = Program::compile(&pattern, false).unwrap();
        prop_assert!(!matches!(one_state.engine, Engine::Nfa(_)));
        prop_assert!(matches!(all_states.engine, Engine::Nfa(_)));
        for text in texts {
            prop_assert_eq!(one_state.is_match(&text), all_states.is_match(&text), "{}", text);
        }
    }
}
