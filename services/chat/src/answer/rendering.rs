//! Results of calls as sentences in English and Chinese.

use serde_json::Value;
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_tools::text::clean_to;

use crate::answer::phrases::Language;

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
    Failed(String),
    /// The device sent no result.
    NoResult {
        outcome: Outcome,
        delivered: Delivered,
        detail: String,
    },
}

/// The sentence for the end of a call; `is_question` when it was made to answer a question.
pub(crate) fn render(language: Language, is_question: bool, end: &CallEnd) -> String {
    match end {
        CallEnd::Succeeded { data, .. } => succeeded(language, is_question, data),
        CallEnd::Failed(reason) => failed(language, &clean_to(reason, MAX_RESULT_BYTES)),
        CallEnd::NoResult {
            outcome,
            delivered,
            detail,
        } => {
            let detail = clean_to(detail, MAX_RESULT_BYTES);
            no_result(language, *outcome, *delivered, &detail)
        }
    }
}

fn succeeded(language: Language, is_question: bool, data: &Value) -> String {
    if let (Value::Bool(value), true) = (data, is_question) {
        let sentence = match (language, value) {
            (Language::English, true) => "Yes.",
            (Language::English, false) => "No.",
            (Language::Chinese, true) => "是的。",
            (Language::Chinese, false) => "不是。",
        };
        return sentence.to_owned();
    }
    let text = clean_to(&as_text(language, data), MAX_RESULT_BYTES);
    let is_empty = text.trim().is_empty();
    let is_structure = matches!(data, Value::Object(_) | Value::Array(_));
    let is_sentence = text.ends_with(['.', '。', '!', '！', '?', '？']);
    match (language, is_question) {
        (Language::English, true) if is_empty => "The device gave no answer to that.".to_owned(),
        (Language::Chinese, true) if is_empty => "设备没有给出内容。".to_owned(),
        (Language::English, false) if is_empty => "Done.".to_owned(),
        (Language::Chinese, false) if is_empty => "好了。".to_owned(),
        (_, true) if is_sentence && !is_structure => text,
        (Language::English, true) if is_structure => format!("Here it is: {text}."),
        (Language::English, true) => format!("It is {text}."),
        (Language::Chinese, true) if is_structure => format!("查到了：{text}。"),
        (Language::Chinese, true) => format!("现在是{text}。"),
        (Language::English, false) => format!("Done: {text}{}", if is_sentence { "" } else { "." }),
        (Language::Chinese, false) => {
            format!("好了：{text}{}", if is_sentence { "" } else { "。" })
        }
    }
}

/// A value as plain text. Its depth is bounded by the parser.
fn as_text(language: Language, data: &Value) -> String {
    let (colon, comma) = match language {
        Language::English => (": ", ", "),
        Language::Chinese => ("：", "，"),
    };
    match data {
        Value::Null => String::new(),
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(value) => match (language, value) {
            (Language::English, true) => "yes".to_owned(),
            (Language::English, false) => "no".to_owned(),
            (Language::Chinese, true) => "是".to_owned(),
            (Language::Chinese, false) => "否".to_owned(),
        },
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let items = items.iter().map(|item| as_text(language, item));
            items.collect::<Vec<_>>().join(comma)
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let name = name.replace('_', " ");
                format!("{name}{colon}{}", as_text(language, value))
            });
            members.collect::<Vec<_>>().join(comma)
        }
    }
}

fn failed(language: Language, reason: &str) -> String {
    match language {
        Language::English => format!("That did not work: {}.", reason.trim_end_matches('.')),
        Language::Chinese => format!("没有成功：{}。", reason.trim_end_matches(['.', '。'])),
    }
}

fn no_result(language: Language, outcome: Outcome, delivered: Delivered, detail: &str) -> String {
    let is_english = language == Language::English;
    match (outcome, delivered) {
        (Outcome::Invalid, _) => failed(language, detail),
        (_, Delivered::No) if is_english => {
            "I could not reach the device for that; nothing was done.".to_owned()
        }
        (_, Delivered::No) => "我没能联系到设备，什么也没有执行。".to_owned(),
        _ if is_english => {
            "The device gave no answer in time. It may have done it all the same.".to_owned()
        }
        _ => "设备没有及时回应，但操作可能已经执行。".to_owned(),
    }
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
        use Language::{Chinese, English};
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
        check(Chinese, true, json!("09:15"), "现在是09:15。");
        check(Chinese, false, Value::Null, "好了。");
        let failed = CallEnd::Failed("no signal".into());
        assert_eq!(
            render(English, true, &failed),
            "That did not work: no signal."
        );
        let failed = CallEnd::Failed("没信号".into());
        assert_eq!(render(Chinese, true, &failed), "没有成功：没信号。");
    }
}
