//! What an operator sets of embeddings.
//! Never: a key in a log or in the help.

use http::Uri;
use secrecy::SecretString;

/// What an operator sets.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Where embeddings are made, as `https://host/v1`: `POST` of texts to `/embeddings` below it; without it searches go
    /// by words alone
    #[arg(long, env = "SWITCHBOARD_EMBEDDINGS_ENDPOINT", value_name = "URL", value_parser = base, requires = "embeddings_model")]
    pub embeddings_endpoint: Option<Uri>,

    /// The model that makes them; another one, and everything is embedded anew
    #[arg(
        long,
        env = "SWITCHBOARD_EMBEDDINGS_MODEL",
        value_name = "NAME",
        requires = "embeddings_endpoint"
    )]
    pub embeddings_model: Option<String>,

    /// Key for that endpoint, if it wants one
    #[arg(long, env = "SWITCHBOARD_EMBEDDINGS_KEY", hide_env_values = true)]
    pub embeddings_key: Option<SecretString>,
}

fn base(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| "it is no URL".to_owned())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.query().is_none();
    match uri.authority() {
        Some(host) if known && !host.as_str().contains('@') => Ok(uri),
        _ => Err(
            "it must be http:// or https:// with a host, and without a user or a query".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
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
}
