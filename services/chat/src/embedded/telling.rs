//! A result as a sentence that fits what was said.
//! Never: data that the device did not send, or a failure that sounds like success.

use serde_json::Value;
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_tools::text::clean_to;

use super::{Language, Manner};

/// What of a result is told. Protects whoever has to listen, and the write queue of a small device.
const TOLD_BYTES: usize = 2_000;

/// How a call ended, as far as it is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ending {
    Done(Value),
    Failed(String),
    /// Nothing came back from the device.
    Without {
        outcome: Outcome,
        delivered: Delivered,
        detail: String,
    },
}

/// The sentence.
pub(crate) fn tell(language: Language, manner: &Manner, ending: &Ending) -> String {
    match ending {
        Ending::Done(data) => done(language, manner, data),
        Ending::Failed(why) => failed(language, &clean_to(why, TOLD_BYTES)),
        Ending::Without {
            outcome,
            delivered,
            detail,
        } => without(
            language,
            *outcome,
            *delivered,
            &clean_to(detail, TOLD_BYTES),
        ),
    }
}

fn done(language: Language, manner: &Manner, data: &Value) -> String {
    if let (Value::Bool(yes), true) = (data, manner.yes_or_no) {
        let word = match (language, yes) {
            (Language::English, true) => "Yes.",
            (Language::English, false) => "No.",
            (Language::Chinese, true) => "是的。",
            (Language::Chinese, false) => "不是。",
        };
        return word.to_owned();
    }
    let told = clean_to(&spoken(language, data), TOLD_BYTES);
    let nothing = told.trim().is_empty();
    let several = matches!(data, Value::Object(_) | Value::Array(_));
    let is_sentence = told.ends_with(['.', '。', '!', '！', '?', '？']);
    match (language, manner.asked) {
        (Language::English, true) if nothing => "The device gave no answer to that.".to_owned(),
        (Language::Chinese, true) if nothing => "设备没有给出内容。".to_owned(),
        (Language::English, false) if nothing => "Done.".to_owned(),
        (Language::Chinese, false) if nothing => "好了。".to_owned(),
        (_, true) if is_sentence && !several => told,
        (Language::English, true) if several => format!("Here it is: {told}."),
        (Language::English, true) => format!("It is {told}."),
        (Language::Chinese, true) if several => format!("查到了：{told}。"),
        (Language::Chinese, true) => match &manner.topic {
            // A question word is no subject.
            Some(topic)
                if !topic.contains(['几', '幾', '多', '哪', '不']) && topic.chars().count() > 1 =>
            {
                format!("{topic}是{told}。")
            }
            _ => format!("现在是{told}。"),
        },
        (Language::English, false) => format!("Done: {told}{}", if is_sentence { "" } else { "." }),
        (Language::Chinese, false) => {
            format!("好了：{told}{}", if is_sentence { "" } else { "。" })
        }
    }
}

/// Values as people say them; what is nested is told as far as it is short.
fn spoken(language: Language, data: &Value) -> String {
    let (between, comma) = match language {
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
            let items = items.iter().map(|item| spoken(language, item));
            items.collect::<Vec<_>>().join(comma)
        }
        Value::Object(members) => {
            let told = members.iter().map(|(name, value)| {
                format!(
                    "{}{between}{}",
                    name.replace('_', " "),
                    spoken(language, value)
                )
            });
            told.collect::<Vec<_>>().join(comma)
        }
    }
}

fn failed(language: Language, why: &str) -> String {
    match language {
        Language::English => format!("That did not work: {}.", why.trim_end_matches('.')),
        Language::Chinese => format!("没有成功：{}。", why.trim_end_matches(['.', '。'])),
    }
}

fn without(language: Language, outcome: Outcome, delivered: Delivered, detail: &str) -> String {
    let english = language == Language::English;
    match (outcome, delivered) {
        (Outcome::Invalid, _) => failed(language, detail),
        (_, Delivered::No) if english => {
            "I could not reach the device for that; nothing was done.".to_owned()
        }
        (_, Delivered::No) => "我没能联系到设备，什么也没有执行。".to_owned(),
        _ if english => {
            "The device gave no answer in time. It may have done it all the same.".to_owned()
        }
        _ => "设备没有及时回应，但操作可能已经执行。".to_owned(),
    }
}
