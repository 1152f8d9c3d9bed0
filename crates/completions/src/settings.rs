//! The providers that an operator set, by flags and in a file, as one list in its order.
//! Never: two providers of one name.

use http::Uri;
use secrecy::SecretString;
use serde::Deserialize;

use crate::{Config, ConfigError, file};

/// The name of the one that is set by flags.
const BY_FLAGS: &str = "default";
/// How many there may be: each has metrics of its own.
const MOST: usize = 32;

/// One provider, as it was set.
#[derive(Debug)]
pub(crate) struct Settings {
    pub name: String,
    pub endpoint: Uri,
    pub model: Listed,
    /// Others that an NPC may wish for.
    pub models: Vec<Listed>,
    pub key: Option<SecretString>,
    pub limit_field: LimitField,
}

/// A model, and what it costs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    pub name: String,
    #[serde(default)]
    pub prices: Prices,
}

/// What a million tokens cost, in the operator's own currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prices {
    pub prompt: f64,
    pub completion: f64,
}

/// How a provider calls the most tokens that a reply may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum LimitField {
    /// As most do.
    MaxTokens,
    /// As OpenAI does for its newer models, which refuse the other.
    MaxCompletionTokens,
}

impl LimitField {
    /// What is right there, unless the operator says otherwise.
    pub(crate) fn at(endpoint: &Uri) -> Self {
        let host = endpoint.host().unwrap_or_default().to_ascii_lowercase();
        if host == "api.openai.com" || host.ends_with(".api.openai.com") {
            Self::MaxCompletionTokens
        } else {
            Self::MaxTokens
        }
    }
}

/// All that are set, the one by flags first.
pub(crate) fn all(
    config: &Config,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Settings>, ConfigError> {
    let mut found = Vec::new();
    if let (Some(endpoint), Some(model)) = (&config.completions_endpoint, &config.completions_model)
    {
        found.push(Settings {
            name: BY_FLAGS.to_owned(),
            endpoint: endpoint.clone(),
            model: Listed {
                name: model.clone(),
                prices: Prices {
                    prompt: config.completions_prompt_price,
                    completion: config.completions_completion_price,
                },
            },
            models: Vec::new(),
            key: config.completions_key.clone(),
            limit_field: config
                .completions_limit_field
                .unwrap_or_else(|| LimitField::at(endpoint)),
        });
    }
    if let Some(path) = &config.completions_file {
        let wrong = |reason| ConfigError::File {
            file: path.display().to_string(),
            reason,
        };
        for (index, listed) in file::read(path, environment)
            .map_err(wrong)?
            .into_iter()
            .enumerate()
        {
            if found.iter().any(|other| other.name == listed.name) {
                let name = listed.name;
                return Err(wrong(format!(
                    "[{index}].name: there is a provider {name:?} already; each needs a name of its own, and \
                     {BY_FLAGS:?} is the one of --completions-endpoint"
                )));
            }
            found.push(listed);
        }
        if found.len() > MOST {
            return Err(wrong(format!("there may be {MOST} providers at most")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn config(list: &str, by_flags: bool) -> (tempfile::NamedTempFile, Config) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(list.as_bytes()).unwrap();
        let config = Config {
            completions_endpoint: by_flags.then(|| Uri::from_static("http://a/v1")),
            completions_model: by_flags.then(|| "m".to_owned()),
            completions_file: Some(file.path().to_owned()),
            ..Config::default()
        };
        (file, config)
    }

    fn entry(name: &str) -> String {
        format!(r#"{{"name":"{name}","endpoint":"http://b/v1","model":"m"}}"#)
    }

    #[test]
    fn the_one_by_flags_comes_first() {
        let list = format!("[{},{}]", entry("b"), entry("a"));
        let (_file, config) = config(&list, true);
        let names: Vec<_> = all(&config, &|_| None)
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, ["default", "b", "a"]);
    }

    #[test]
    fn a_name_is_given_once() {
        fn check(list: &str, by_flags: bool, expected: &str) {
            let (_file, config) = config(list, by_flags);
            let error = all(&config, &|_| None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        check(
            &format!("[{},{}]", entry("a"), entry("a")),
            false,
            "[1].name",
        );
        check(&format!("[{}]", entry("default")), true, "[0].name");
        let many: Vec<_> = (0..33).map(|number| entry(&number.to_string())).collect();
        check(&format!("[{}]", many.join(",")), false, "32 providers");
    }

    #[test]
    fn flags_say_all_that_an_entry_can() {
        let mut config = Config {
            completions_endpoint: Some(Uri::from_static("https://api.openai.com/v1")),
            completions_model: Some("gpt-5-mini".to_owned()),
            completions_prompt_price: 0.25,
            completions_completion_price: 2.0,
            ..Config::default()
        };
        let one = all(&config, &|_| None).unwrap().remove(0);
        let prices = (one.model.prices.prompt, one.model.prices.completion);
        assert_eq!(prices, (0.25, 2.0));
        assert_eq!(one.limit_field, LimitField::MaxCompletionTokens);
        config.completions_limit_field = Some(LimitField::MaxTokens);
        let one = all(&config, &|_| None).unwrap().remove(0);
        assert_eq!(one.limit_field, LimitField::MaxTokens);
    }

    #[test]
    fn a_limit_is_called_by_its_host() {
        fn check(endpoint: &'static str, expected: LimitField) {
            let found = LimitField::at(&Uri::from_static(endpoint));
            assert_eq!(found, expected, "{endpoint}");
        }
        check("https://api.openai.com/v1", LimitField::MaxCompletionTokens);
        check(
            "https://EU.API.openai.com:443/v1",
            LimitField::MaxCompletionTokens,
        );
        check("https://openrouter.ai/api/v1", LimitField::MaxTokens);
        check("https://notapi.openai.com/v1", LimitField::MaxTokens);
        check("http://127.0.0.1:11434/v1", LimitField::MaxTokens);
    }

    #[test]
    fn nothing_set_is_nothing() {
        assert!(all(&Config::default(), &|_| None).unwrap().is_empty());
    }
}
