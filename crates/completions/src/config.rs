//! Configuration of language models.

use std::path::PathBuf;

use http::Uri;
use secrecy::SecretString;
use switchboard_runtime::outbound::parse_base_url;

use crate::LimitField;

/// Default idle timeout.
const DEFAULT_IDLE_TIMEOUT_MS: u64 = 20_000;

/// Flags of language models.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Base URL of an API with language models, as `https://host/v1`; requests go to
    /// `/chat/completions` below it
    #[arg(long, env, value_name = "URL", value_parser = parse_base_url, requires = "completions_model")]
    pub completions_endpoint: Option<Uri>,

    /// The model of this endpoint
    #[arg(long, env, value_name = "NAME", requires = "completions_endpoint")]
    pub completions_model: Option<String>,

    /// API key for this endpoint
    #[arg(long, env, hide_env_values = true)]
    pub completions_key: Option<SecretString>,

    /// Request field for the maximum tokens of a reply; by default `max_completion_tokens` at
    /// api.openai.com and `max_tokens` elsewhere
    #[arg(
        long,
        env,
        value_enum,
        requires = "completions_endpoint",
        value_name = "FIELD"
    )]
    pub completions_limit_field: Option<LimitField>,

    /// This model accepts pictures as `image_url`; without it, it reads that there is a picture
    #[arg(long, env, requires = "completions_endpoint")]
    pub completions_sees_pictures: bool,

    /// Price of a million prompt tokens of this model, in any currency
    #[arg(
        long,
        env,
        default_value_t = 0.0,
        value_parser = price,
        requires = "completions_endpoint",
        value_name = "AMOUNT"
    )]
    pub completions_prompt_price: f64,

    /// Price of a million completion tokens of this model, in the same currency
    #[arg(
        long,
        env,
        default_value_t = 0.0,
        value_parser = price,
        requires = "completions_endpoint",
        value_name = "AMOUNT"
    )]
    pub completions_completion_price: f64,

    /// Idle timeout of a provider; limits how long users wait. A provider without any response is
    /// abandoned when another one can follow; one that sends keep-alives may be slow with its first
    /// token
    #[arg(
        long,
        env,
        default_value_t = DEFAULT_IDLE_TIMEOUT_MS,
        value_parser = clap::value_parser!(u64).range(100..=600_000),
        value_name = "MS"
    )]
    pub completions_pause_ms: u64,

    /// JSON file with several providers in order of preference: `[{"name": …, "endpoint": …,
    /// "model": …, "key_env": …}]`; the next one is used when one fails
    #[arg(long, env, value_name = "FILE")]
    pub completions_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            completions_endpoint: None,
            completions_model: None,
            completions_key: None,
            completions_limit_field: None,
            completions_sees_pictures: false,
            completions_prompt_price: 0.0,
            completions_completion_price: 0.0,
            completions_pause_ms: DEFAULT_IDLE_TIMEOUT_MS,
            completions_file: None,
        }
    }
}

/// Parses a price.
fn price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok();
    let price = price.filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "it must be a number, 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    #[test]
    fn endpoint_and_model_require_each_other() {
        fn check(args: &[&str], fits: bool) {
            let command = Config::augment_args(clap::Command::new("x"));
            let read = command
                .try_get_matches_from([&["x"], args].concat())
                .and_then(|matches| Config::from_arg_matches(&matches));
            assert_eq!(read.is_ok(), fits, "{args:?}");
        }
        let endpoint = "--completions-endpoint=http://127.0.0.1:1/v1";
        check(&[], true);
        check(&["--completions-file=a.json"], true);
        check(&[endpoint, "--completions-model=a"], true);
        check(&[endpoint], false);
        check(&["--completions-model=a"], false);
        let model = "--completions-model=a";
        check(&["--completions-prompt-price=1"], false);
        check(&["--completions-completion-price=1"], false);
        check(&["--completions-limit-field=max_tokens"], false);
        check(&[endpoint, model, "--completions-prompt-price=0.25"], true);
        for price in ["-1", "NaN", "inf", "free", ""] {
            let price = format!("--completions-completion-price={price}");
            check(&[endpoint, model, &price], false);
        }
        let field = "--completions-limit-field=max_completion_tokens";
        check(&[endpoint, model, field], true);
        check(&[endpoint, model, "--completions-limit-field=limit"], false);
        check(&["--completions-sees-pictures"], false);
        check(&[endpoint, model, "--completions-sees-pictures"], true);
        check(&["--completions-pause-ms=45000"], true);
        check(&["--completions-pause-ms=0"], false);
    }

    #[test]
    fn flags_have_the_defaults_of_the_struct() {
        let command = Config::augment_args(clap::Command::new("x"));
        let read = command.try_get_matches_from(["x"]).unwrap();
        let read = Config::from_arg_matches(&read).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", Config::default()));
    }
}
