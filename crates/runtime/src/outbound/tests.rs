//! Which addresses of endpoints are good.
//! Never: a request.

use super::*;

#[test]
fn an_endpoint_is_a_place_below_which_there_are_paths() {
    fn check(text: &str, fits: bool) {
        assert_eq!(base(text).is_ok(), fits, "{text}");
    }
    check("https://api.example.com/v1", true);
    check("http://127.0.0.1:8080", true);
    check("https://key@api.example.com/v1", false);
    check("https://api.example.com/v1?key=a", false);
    check("ftp://api.example.com", false);
    check("/v1", false);
    check("", false);
}
