//! Whether a request comes from a page of this installation.
//!
//! A page of another site can let a browser send requests with its cookies. It cannot choose
//! `Sec-Fetch-Site`, and the browser sends the header of the console for it only after a preflight
//! request, which no route of the API grants.

use http::{HeaderMap, HeaderName, Uri, header};
use switchboard_runtime::problem::Problem;

use super::Refusal;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The host by which the client addressed the first proxy.
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Sent by the console with all requests of its own.
const CONSOLE: HeaderName = HeaderName::from_static("x-switchboard-console");

/// Checks a request that a session is used for. Media are loaded by elements of a page, which have no
/// header of their own.
pub(super) fn check(headers: &HeaderMap, is_media: bool) -> Result<(), Refusal> {
    let has_header = headers.get(CONSOLE).is_some_and(|value| value == "1");
    if is_of_same_site(headers) && (has_header || is_media) {
        Ok(())
    } else {
        Err(Refusal::CrossSite)
    }
}

/// Checks a request that begins or ends a session.
///
/// # Errors
/// 403 if a page of another site has made it.
pub fn check_site(headers: &HeaderMap) -> Result<(), Problem> {
    if is_of_same_site(headers) {
        Ok(())
    } else {
        Err(Refusal::CrossSite.problem())
    }
}

fn is_of_same_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) => site == "same-origin",
        (Some(_), Some(_)) => false,
        // Browsers that do not know the header, and programs.
        (None, _) => has_own_origin(headers),
    }
}

fn has_own_origin(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => {
            let origin = origin
                .to_str()
                .ok()
                .and_then(|text| text.parse::<Uri>().ok());
            let authority = origin.as_ref().and_then(Uri::authority);
            let hosts = [header::HOST, FORWARDED_HOST];
            authority.is_some_and(|own| {
                let is_own = |host| host == own.as_str();
                let host = hosts.iter().filter_map(|name| headers.get(name));
                host.filter_map(|host| host.to_str().ok()).any(is_own)
            })
        }
        (Some(_), Some(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(sent: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_pages_of_this_installation_use_a_session() {
        const OWN: Option<&str> = Some("https://toys.example");
        const SITES: [Option<&str>; 5] = [
            None,
            Some("same-origin"),
            Some("same-site"),
            Some("cross-site"),
            Some("none"),
        ];
        const ORIGINS: [Option<&str>; 5] = [
            None,
            OWN,
            Some("https://evil.example"),
            Some("https://toys.example:444"),
            Some("null"),
        ];
        for site in SITES {
            for origin in ORIGINS {
                for console in [None, Some("1"), Some("0")] {
                    for is_media in [false, true] {
                        let mut sent = vec![("host", "toys.example")];
                        sent.extend(site.map(|site| ("sec-fetch-site", site)));
                        sent.extend(origin.map(|origin| ("origin", origin)));
                        sent.extend(console.map(|value| ("x-switchboard-console", value)));
                        let accepted = check(&headers(&sent), is_media).is_ok();
                        let is_own = match site {
                            Some("same-origin") => true,
                            Some(_) => false,
                            None => origin.is_none() || origin == OWN,
                        };
                        let expected = is_own && (is_media || console == Some("1"));
                        assert_eq!(accepted, expected, "{sent:?}, media: {is_media}");
                    }
                }
            }
        }
    }

    #[test]
    fn own_origin_is_that_of_the_first_proxy() {
        let sent = [
            ("host", "control:8081"),
            ("x-forwarded-host", "toys.example"),
            ("origin", "https://toys.example"),
        ];
        assert!(check_site(&headers(&sent)).is_ok());
        let twice = [
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ];
        let refused = check_site(&headers(&twice)).unwrap_err();
        assert_eq!(
            (refused.status().as_u16(), refused.slug()),
            (403, "cross_site_request")
        );
    }
}
