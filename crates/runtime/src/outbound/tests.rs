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
