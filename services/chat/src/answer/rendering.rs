//! Results of calls as sentences.

use serde_json::Value;
use switchboard_phrases::{Language, Phrase};
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_tools::text::clean_to;

/// Bytes of a result in a sentence. Protects listeners and the write queues of small devices.
const MAX_RESULT_BYTES: usize = 2_000;

/// The end of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallEnd {
    Succeeded {
        data: Value,
        /// False if the data is not known to match the output schema of the service.
        is_valid: bool,
    },
    /// The device reports a failure, with its reason if it gives one.
    Failed(Option<String>),
    /// The device sent no result.
    NoResult {
        outcome: Outcome,
        delivered: Delivered,
        /// For a model, in English.
        detail: String,
        /// The names of the parameters that were refused.
        parameters: Vec<String>,
    },
}

/// The sentence for the end of a call; `is_question` when it was made to answer a question.
pub(crate) fn render(language: Language, is_question: bool, end: &CallEnd) -> String {
    match end {
        CallEnd::Succeeded { data, .. } => succeeded(language, is_question, data),
        CallEnd::Failed(None) => Phrase::FailedWithoutReason.text(language).into_owned(),
        CallEnd::Failed(Some(reason)) => {
            let reason = clean_to(reason, MAX_RESULT_BYTES);
            let reason = reason.trim_end_matches(['.', '。']);
            Phrase::Failed { reason }.text(language).into_owned()
        }
        CallEnd::NoResult {
            outcome,
            delivered,
            parameters,
            detail: _,
        } => no_result(language, *outcome, *delivered, parameters),
    }
}

fn succeeded(language: Language, is_question: bool, data: &Value) -> String {
    let value = clean_to(&as_text(language, data), MAX_RESULT_BYTES);
    let result = value.as_str();
    let is_structure = matches!(data, Value::Object(_) | Value::Array(_));
    let is_sentence = result.ends_with(['.', '。', '!', '！', '?', '？']);
    let phrase = match (data, is_question) {
        (Value::Bool(true), true) => Phrase::Yes,
        (Value::Bool(false), true) => Phrase::No,
        (_, true) if result.trim().is_empty() => Phrase::NoData,
        (_, false) if result.trim().is_empty() => Phrase::Done,
        (_, true) if is_structure => Phrase::HereItIs { result },
        (_, true) if is_sentence => return value,
        (_, true) => Phrase::ItIs { result },
        (_, false) => {
            let done = Phrase::DoneWith { result }.text(language);
            let period = language.punctuation().period;
            return format!("{done}{}", if is_sentence { "" } else { period });
        }
    };
    phrase.text(language).into_owned()
}

/// A value as plain text. Its depth is bounded by the parser.
fn as_text(language: Language, data: &Value) -> String {
    let punctuation = language.punctuation();
    match data {
        Value::Null => String::new(),
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(true) => Phrase::True.text(language).into_owned(),
        Value::Bool(false) => Phrase::False.text(language).into_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let items = items.iter().map(|item| as_text(language, item));
            items.collect::<Vec<_>>().join(punctuation.values)
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let name = name.replace('_', " ");
                format!("{name}{}{}", punctuation.colon, as_text(language, value))
            });
            members.collect::<Vec<_>>().join(punctuation.values)
        }
    }
}

fn no_result(
    language: Language,
    outcome: Outcome,
    delivered: Delivered,
    parameters: &[String],
) -> String {
    let names = parameters.iter().map(|name| name.replace('_', " "));
    let names: Vec<_> = names.collect();
    let names = clean_to(&names.join(language.punctuation().names), MAX_RESULT_BYTES);
    let phrase = match (outcome, delivered) {
        (Outcome::Invalid, _) if names.is_empty() => Phrase::Refused,
        (Outcome::Invalid, _) => Phrase::RefusedValues { parameters: &names },
        (_, Delivered::No) => Phrase::DeviceUnreached,
        _ => Phrase::NoResult,
    };
    phrase.text(language).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_become_sentences() {
        fn check(language: Language, is_question: bool, data: Value, expected: &str) {
            let is_valid = true;
            let end = CallEnd::Succeeded { data, is_valid };
            assert_eq!(render(language, is_question, &end), expected);
        }
        use Language::{English, French, SimplifiedChinese as Chinese};
        check(English, true, json!("09:15"), "It is 09:15.");
        check(English, false, json!("lit"), "Done: lit.");
        check(English, false, Value::Null, "Done.");
        check(English, true, json!(true), "Yes.");
        check(
            English,
            true,
            json!({"room_a": 21.5}),
            "Here it is: room a: 21.5.",
        );
        check(English, false, json!("Lit!"), "Done: Lit!");
        check(
            French,
            true,
            json!({"room_a": true}),
            "Voici\u{a0}: room a\u{a0}: oui.",
        );
        check(Chinese, true, json!("09:15"), "现在是09:15。");
        check(Chinese, false, Value::Null, "好了。");
        let failed = CallEnd::Failed(Some("no signal".into()));
        assert_eq!(
            render(English, true, &failed),
            "That did not work: no signal."
        );
        let failed = CallEnd::Failed(Some("没信号".into()));
        assert_eq!(render(Chinese, true, &failed), "没有成功：没信号。");
    }

    #[test]
    fn refused_values_are_named_in_the_language_of_the_user() {
        fn check(language: Language, parameters: &[&str], expected: &str) {
            let end = CallEnd::NoResult {
                outcome: Outcome::Invalid,
                delivered: Delivered::No,
                detail: "speed 11 is greater than the maximum of 10".into(),
                parameters: parameters.iter().map(|&name| name.to_owned()).collect(),
            };
            assert_eq!(render(language, false, &end), expected);
        }
        check(
            Language::German,
            &["speed", "room_a"],
            "Das Gerät nimmt diese Werte nicht an: speed, room a. Es wurde nichts getan.",
        );
        check(
            Language::Japanese,
            &["speed", "mode"],
            "デバイスは次の値を受け付けません：speed、mode。何も実行していません。",
        );
        check(
            Language::English,
            &[],
            "The device does not accept this command; nothing was done.",
        );
    }
}
