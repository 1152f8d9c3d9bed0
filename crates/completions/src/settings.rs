//! The configured providers, from flags and from a file, as one list in order.
//! Invariant: names of providers are unique.

use http::Uri;
use secrecy::SecretString;
use serde::Deserialize;

use crate::{Config, ConfigError, file};

/// The name of the provider that is configured by flags.
const FLAGS_PROVIDER: &str = "default";
/// Maximum number of providers. Each has its own metric series.
const MAX_PROVIDERS: usize = 32;

/// The settings of one provider.
#[derive(Debug)]
pub(crate) struct Settings {
    pub name: String,
    pub endpoint: Uri,
    pub model: ModelSettings,
    /// Other models that an NPC may select.
    pub models: Vec<ModelSettings>,
    pub key: Option<SecretString>,
    pub limit_field: LimitField,
}

/// A model, its prices and abilities.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelSettings {
    pub name: String,
    #[serde(default)]
    pub prices: Prices,
    /// Whether it accepts pictures.
    #[serde(default)]
    pub sees_pictures: bool,
}

/// Prices of a million tokens, in the operator's currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prices {
    pub prompt: f64,
    pub completion: f64,
}

/// The request field for the maximum tokens of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum LimitField {
    /// `max_tokens`, the field of most providers.
    MaxTokens,
    /// `max_completion_tokens`. OpenAI's newer models reject the other.
    MaxCompletionTokens,
}

impl LimitField {
    /// The default for an endpoint.
    pub(crate) fn default_for(endpoint: &Uri) -> Self {
        let host = endpoint.host().unwrap_or_default().to_ascii_lowercase();
        if host == "api.openai.com" || host.ends_with(".api.openai.com") {
            Self::MaxCompletionTokens
        } else {
            Self::MaxTokens
        }
    }
}

/// Loads all providers, the one from flags first.
pub(crate) fn load(
    config: &Config,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Settings>, ConfigError> {
    let mut found = Vec::new();
    if let (Some(endpoint), Some(model)) = (&config.completions_endpoint, &config.completions_model)
    {
        found.push(Settings {
            name: FLAGS_PROVIDER.to_owned(),
            endpoint: endpoint.clone(),
            model: ModelSettings {
                name: model.clone(),
                prices: Prices {
                    prompt: config.completions_prompt_price,
                    completion: config.completions_completion_price,
                },
                sees_pictures: config.completions_sees_pictures,
            },
            models: Vec::new(),
            key: config.completions_key.clone(),
            limit_field: config
                .completions_limit_field
                .unwrap_or_else(|| LimitField::default_for(endpoint)),
        });
    }
    if let Some(path) = &config.completions_file {
        let invalid = |reason| ConfigError::File {
            file: path.display().to_string(),
            reason,
        };
        for (index, settings) in file::read(path, environment)
            .map_err(invalid)?
            .into_iter()
            .enumerate()
        {
            if found.iter().any(|other| other.name == settings.name) {
                let name = settings.name;
                return Err(invalid(format!(
                    "[{index}].name: duplicate provider {name:?}; names must be unique, and \
                     {FLAGS_PROVIDER:?} is the provider of --completions-endpoint"
                )));
            }
            found.push(settings);
        }
        if found.len() > MAX_PROVIDERS {
            return Err(invalid(format!(
                "at most {MAX_PROVIDERS} providers are allowed"
            )));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn config(list: &str, with_flags: bool) -> (tempfile::NamedTempFile, Config) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(list.as_bytes()).unwrap();
        let config = Config {
            completions_endpoint: with_flags.then(|| Uri::from_static("http://a/v1")),
            completions_model: with_flags.then(|| "m".to_owned()),
            completions_file: Some(file.path().to_owned()),
            ..Config::default()
        };
        (file, config)
    }

    fn entry(name: &str) -> String {
        format!(r#"{{"name":"{name}","endpoint":"http://b/v1","model":"m"}}"#)
    }

    #[test]
    fn provider_from_flags_comes_first() {
        let list = format!("[{},{}]", entry("b"), entry("a"));
        let (_file, config) = config(&list, true);
        let names: Vec<_> = load(&config, &|_| None)
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, ["default", "b", "a"]);
    }

    #[test]
    fn duplicate_names_are_rejected() {
        fn check(list: &str, with_flags: bool, expected: &str) {
            let (_file, config) = config(list, with_flags);
            let error = load(&config, &|_| None).unwrap_err().to_string();
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
    fn flags_set_all_fields_of_an_entry() {
        let mut config = Config {
            completions_endpoint: Some(Uri::from_static("https://api.openai.com/v1")),
            completions_model: Some("gpt-5-mini".to_owned()),
            completions_prompt_price: 0.25,
            completions_completion_price: 2.0,
            ..Config::default()
        };
        let one = load(&config, &|_| None).unwrap().remove(0);
        let prices = (one.model.prices.prompt, one.model.prices.completion);
        assert_eq!(prices, (0.25, 2.0));
        assert_eq!(one.limit_field, LimitField::MaxCompletionTokens);
        config.completions_limit_field = Some(LimitField::MaxTokens);
        let one = load(&config, &|_| None).unwrap().remove(0);
        assert_eq!(one.limit_field, LimitField::MaxTokens);
    }

    #[test]
    fn limit_field_depends_on_the_host() {
        fn check(endpoint: &'static str, expected: LimitField) {
            let found = LimitField::default_for(&Uri::from_static(endpoint));
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
    fn no_configuration_means_no_providers() {
        assert!(load(&Config::default(), &|_| None).unwrap().is_empty());
    }
}
