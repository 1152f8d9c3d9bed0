//! Parsing of base URLs.

use super::*;

#[test]
fn base_url_is_absolute_without_user_or_query() {
    fn check(text: &str, fits: bool) {
        assert_eq!(parse_base_url(text).is_ok(), fits, "{text}");
    }
    check("https://api.example.com/v1", true);
    check("http://127.0.0.1:8080", true);
    check("https://key@api.example.com/v1", false);
    check("https://api.example.com/v1?key=a", false);
    check("ftp://api.example.com", false);
    check("/v1", false);
    check("", false);
}

#[test]
fn key_and_its_parts_are_removed_from_texts() {
    fn check(text: &str, key: &str, expected: &str) {
        assert_eq!(redact(text, key), expected);
    }
    let key = "sk-é4f0c9be2d1a84477";
    check(&format!("wrong {key}!"), key, "wrong (the key)!");
    check(&format!("{key}{key}"), key, "(the key)(the key)");
    check("sk-é4f0c***4477", key, "(the key)***4477");
    check("…2d1a84477 is wrong", key, "…(the key) is wrong");
    check("sk-é4f is wrong", key, "sk-é4f is wrong");
    check("short", "short\n", "(the key)");
    check("no key", "", "no key");
    check("", key, "");
}
