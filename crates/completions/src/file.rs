//! The file that lists providers. Errors name the entry and the field.
//! Invariant: errors never contain a key; the file refers to keys by environment variable.

use std::{collections::HashSet, path::Path};

use secrecy::SecretString;
use serde::Deserialize;
use switchboard_runtime::outbound::parse_base_url;

use crate::settings::{LimitField, ModelSettings, Prices, Settings};

/// Maximum bytes of a provider's name, which is a label of metrics.
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of additional models of a provider.
const MAX_MODELS: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    endpoint: String,
    model: String,
    key_env: Option<String>,
    #[serde(default)]
    prices: Prices,
    #[serde(default)]
    sees_pictures: bool,
    limit_field: Option<LimitField>,
    #[serde(default)]
    models: Vec<ModelSettings>,
}

/// Reads the providers of a file, in order.
pub(crate) fn read(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Settings>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("cannot be read: {error}; give --completions-file an existing JSON file")
    })?;
    parse(&text, environment)
}

fn parse(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Settings>, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let entries: Vec<Entry> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let place = error.path().to_string();
        format!(
            "{place}: {}; the file must be a list of providers",
            error.inner()
        )
    })?;
    json.end()
        .map_err(|error| format!("more than one list: {error}"))?;
    if entries.is_empty() {
        return Err("lists no provider; list one, or leave --completions-file out".to_owned());
    }
    entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| {
            settings(entry, environment)
                .map_err(|(field, reason)| format!("[{index}].{field}: {reason}"))
        })
        .collect()
}

/// Validates one entry. An error is the invalid field and the reason.
fn settings(
    entry: Entry,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, (String, String)> {
    let invalid = |field: &str, reason: String| (field.to_owned(), reason);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if entry.name.is_empty() || entry.name.len() > MAX_NAME_BYTES || !entry.name.chars().all(plain)
    {
        let reason = format!("it must be 1 to {MAX_NAME_BYTES} characters of a-z A-Z 0-9 - _ .");
        return Err(invalid("name", reason));
    }
    let endpoint = parse_base_url(&entry.endpoint).map_err(|reason| invalid("endpoint", reason))?;
    let model = ModelSettings {
        name: entry.model,
        prices: entry.prices,
        sees_pictures: entry.sees_pictures,
    };
    check_model(&model).map_err(|(field, reason)| match field {
        "name" => invalid("model", reason),
        other => invalid(other, reason),
    })?;
    check_unique_names(&model, &entry.models)?;
    let key = entry.key_env.map(|name| key(&name, environment));
    let key = key
        .transpose()
        .map_err(|reason| invalid("key_env", reason))?;
    Ok(Settings {
        name: entry.name,
        limit_field: entry
            .limit_field
            .unwrap_or_else(|| LimitField::default_for(&endpoint)),
        endpoint,
        model,
        models: entry.models,
        key,
    })
}

/// Checks name and prices of a model. An error is the invalid field and the reason.
fn check_model(model: &ModelSettings) -> Result<(), (&'static str, String)> {
    if model.name.trim().is_empty() {
        return Err((
            "name",
            "it must be the name of a model, not empty".to_owned(),
        ));
    }
    let fits = |price: f64| price.is_finite() && price >= 0.0;
    if !fits(model.prices.prompt) || !fits(model.prices.completion) {
        return Err(("prices", "a price must be 0 or more".to_owned()));
    }
    Ok(())
}

/// Checks that each model is listed once, so that it has one price.
fn check_unique_names(
    own: &ModelSettings,
    models: &[ModelSettings],
) -> Result<(), (String, String)> {
    if models.len() > MAX_MODELS {
        let reason = format!("at most {MAX_MODELS} models are allowed");
        return Err(("models".to_owned(), reason));
    }
    let mut names = HashSet::from([own.name.as_str()]);
    for (index, model) in models.iter().enumerate() {
        let invalid =
            |(field, reason): (&str, String)| (format!("models[{index}].{field}"), reason);
        check_model(model).map_err(invalid)?;
        if !names.insert(&model.name) {
            let reason = "duplicate model; each model is listed once, and `model` counts";
            return Err(invalid(("name", reason.to_owned())));
        }
    }
    Ok(())
}

/// The key in this variable. An invalid name is not repeated in the error: it may be the key
/// itself.
fn key(name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<SecretString, String> {
    let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || !name.chars().all(capital) {
        return Err(
            "it must be the name of an environment variable, of A-Z 0-9 _; the key itself is not allowed in this file"
                .to_owned(),
        );
    }
    match environment(name) {
        Some(key) if !key.trim().is_empty() => Ok(key.into()),
        _ => Err(format!(
            "the environment variable {name} must contain the key, and is not set"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    fn environment(name: &str) -> Option<String> {
        match name {
            "OPENAI_API_KEY" => Some("sk-1".to_owned()),
            "EMPTY" => Some(" ".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn entry_is_parsed() {
        let list = r#"[{"name":"openai","endpoint":"https://api.openai.com/v1","model":"gpt-5-mini",
            "key_env":"OPENAI_API_KEY","prices":{"prompt":0.25,"completion":2},"limit_field":"max_completion_tokens"},
            {"name":"local","endpoint":"http://127.0.0.1:8080/v1/","model":"m"}]"#;
        let found = parse(list, &environment).unwrap();
        assert_eq!(found[0].name, "openai");
        assert_eq!(found[0].key.as_ref().unwrap().expose_secret(), "sk-1");
        assert_eq!(found[0].model.prices.prompt, 0.25);
        assert_eq!(found[0].model.prices.completion, 2.0);
        assert_eq!(found[0].limit_field, LimitField::MaxCompletionTokens);
        assert!(found[1].key.is_none());
        assert_eq!(found[1].model.prices, Prices::default());
        assert_eq!(found[1].limit_field, LimitField::MaxTokens);
        assert!(found[1].models.is_empty());
    }

    #[test]
    fn models_have_their_own_prices() {
        let list = r#"[{"name":"a","endpoint":"https://api.openai.com/v1","model":"m","models":[
            {"name":"n","prices":{"prompt":3,"completion":4},"sees_pictures":true},{"name":"o"}]}]"#;
        let one = parse(list, &environment).unwrap().remove(0);
        assert_eq!(one.limit_field, LimitField::MaxCompletionTokens);
        let found: Vec<_> = one
            .models
            .iter()
            .map(|model| (model.name.as_str(), model.prices.completion))
            .collect();
        assert_eq!(found, [("n", 4.0), ("o", 0.0)]);
        let sees = |model: &ModelSettings| model.sees_pictures;
        assert!(!sees(&one.model) && sees(&one.models[0]) && !sees(&one.models[1]));
    }

    #[test]
    fn error_names_the_model() {
        #[track_caller]
        fn check(models: &str, place: &str, hint: &str) {
            let list =
                format!(r#"[{{"name":"a","endpoint":"http://a","model":"m","models":{models}}}]"#);
            let error = parse(&list, &environment).err().unwrap();
            assert!(error.starts_with(place), "{error}");
            assert!(error.contains(hint), "{error}");
        }
        check(r#"["n"]"#, "[0].models[0]", "");
        check(
            r#"[{"name":" "}]"#,
            "[0].models[0].name",
            "the name of a model",
        );
        check(r#"[{"name":"m"}]"#, "[0].models[0].name", "`model`");
        check(
            r#"[{"name":"n"},{"name":"n"}]"#,
            "[0].models[1].name",
            "once",
        );
        check(
            r#"[{"name":"n","prices":{"prompt":-1,"completion":0}}]"#,
            "[0].models[0].prices",
            "0 or more",
        );
        check(r#"[{"name":"n","price":1}]"#, "[0].models[0]", "`prices`");
        let many: Vec<_> = (0..65)
            .map(|number| format!(r#"{{"name":"{number}"}}"#))
            .collect();
        check(&format!("[{}]", many.join(",")), "[0].models", "64");
    }

    #[test]
    fn error_names_entry_field_and_fix() {
        #[track_caller]
        fn check(list: &str, place: &str, hint: &str) {
            let error = parse(list, &environment).err().unwrap();
            assert!(error.starts_with(place), "{error}");
            assert!(error.contains(hint), "{error}");
            assert!(!error.contains("sk-"), "{error}");
        }
        fn with(more: &str) -> String {
            let good = r#""name":"a","endpoint":"http://a/v1","model":"m""#;
            format!(r#"[{{"name":"b","endpoint":"http://b","model":"m"}},{{{good}{more}}}]"#)
        }
        check("[]", "lists no provider", "list one");
        check("{}", "", "a list of providers");
        check(&format!("{} x", with("")), "more than one list", "");
        check(&with(r#","key":"sk-secret""#), "[1]", "`key_env`");
        check(
            &with(r#","limit_field":"n""#),
            "[1].limit_field",
            "`max_tokens`",
        );
        check(
            &with(r#","prices":{"prompt":1}"#),
            "[1].prices",
            "`completion`",
        );
        check(
            &with(r#","prices":{"prompt":-1,"completion":1}"#),
            "[1].prices",
            "0 or more",
        );
        check(
            &with(r#","key_env":"sk-secret""#),
            "[1].key_env",
            "environment variable",
        );
        check(&with(r#","key_env":"MISSING""#), "[1].key_env", "MISSING");
        check(&with(r#","key_env":"EMPTY""#), "[1].key_env", "EMPTY");
        check(r#"[{"name":"a","endpoint":"http://a"}]"#, "[0]", "`model`");
        check(
            r#"[{"name":"a","endpoint":"http://a","model":" "}]"#,
            "[0].model",
            "name",
        );
        check(
            r#"[{"name":"a","endpoint":"a","model":"m"}]"#,
            "[0].endpoint",
            "http://",
        );
        check(
            r#"[{"name":"a b","endpoint":"http://a","model":"m"}]"#,
            "[0].name",
            "a-z",
        );
        check(
            r#"[{"name":"","endpoint":"http://a","model":"m"}]"#,
            "[0].name",
            "1 to 64",
        );
    }
}
