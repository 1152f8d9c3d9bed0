//! What an operator sets of language models.
//! Never: a key in a log or in the help.

use std::path::PathBuf;

use http::Uri;
use secrecy::SecretString;
use switchboard_runtime::outbound::base;

use crate::LimitField;

/// How long a provider may say nothing, unless it is set.
const PAUSE_MS: u64 = 20_000;

/// What an operator sets.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Where a language model is asked, as `https://host/v1`: `POST` to `/chat/completions` below it
    #[arg(long, env = "SWITCHBOARD_COMPLETIONS_ENDPOINT", value_name = "URL", value_parser = base, requires = "completions_model")]
    pub completions_endpoint: Option<Uri>,

    /// The model that is asked there
    #[arg(
        long,
        env = "SWITCHBOARD_COMPLETIONS_MODEL",
        value_name = "NAME",
        requires = "completions_endpoint"
    )]
    pub completions_model: Option<String>,

    /// Key for that endpoint, if it wants one
    #[arg(long, env = "SWITCHBOARD_COMPLETIONS_KEY", hide_env_values = true)]
    pub completions_key: Option<SecretString>,

    /// How that endpoint calls the most tokens of a reply; `max_completion_tokens` at api.openai.com and `max_tokens`
    /// elsewhere, when not given
    #[arg(
        long,
        env = "SWITCHBOARD_COMPLETIONS_LIMIT_FIELD",
        value_enum,
        requires = "completions_endpoint",
        value_name = "FIELD"
    )]
    pub completions_limit_field: Option<LimitField>,

    /// What a million tokens cost that the model there reads, in a currency of your own
    #[arg(
        long,
        env = "SWITCHBOARD_COMPLETIONS_PROMPT_PRICE",
        default_value_t = 0.0,
        value_parser = price,
        requires = "completions_endpoint",
        value_name = "AMOUNT"
    )]
    pub completions_prompt_price: f64,

    /// What a million tokens cost that the model there writes
    #[arg(
        long,
        env = "SWITCHBOARD_COMPLETIONS_COMPLETION_PRICE",
        default_value_t = 0.0,
        value_parser = price,
        requires = "completions_endpoint",
        value_name = "AMOUNT"
    )]
    pub completions_completion_price: f64,

    /// How long any provider may say nothing; protects people from waiting. Who says nothing at all is given up when
    /// another one can be asked; who is alive may be slow with the first word
    #[arg(
        long,
        env = "SWITCHBOARD_COMPLETIONS_PAUSE_MS",
        default_value_t = PAUSE_MS,
        value_parser = clap::value_parser!(u64).range(100..=600_000),
        value_name = "MS"
    )]
    pub completions_pause_ms: u64,

    /// A JSON file that lists several providers in their order of preference: `[{"name": …, "endpoint": …, "model": …,
    /// "key_env": …}]`; the next one is asked when one fails
    #[arg(long, env = "SWITCHBOARD_COMPLETIONS_FILE", value_name = "FILE")]
    pub completions_file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            completions_endpoint: None,
            completions_model: None,
            completions_key: None,
            completions_limit_field: None,
            completions_prompt_price: 0.0,
            completions_completion_price: 0.0,
            completions_pause_ms: PAUSE_MS,
            completions_file: None,
        }
    }
}

/// An amount that can be paid.
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
    fn an_endpoint_needs_a_model_and_a_model_an_endpoint() {
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
        check(&["--completions-pause-ms=45000"], true);
        check(&["--completions-pause-ms=0"], false);
    }

    #[test]
    fn what_is_not_given_is_as_it_is_by_default() {
        let command = Config::augment_args(clap::Command::new("x"));
        let read = command.try_get_matches_from(["x"]).unwrap();
        let read = Config::from_arg_matches(&read).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", Config::default()));
    }
}
