//! Chunks of a reply, parsed leniently: a field of an unexpected type counts as absent.

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value, value::RawValue};

use crate::error_response::ErrorMessage;

/// A part of a reply, or a whole reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk {
    #[serde(deserialize_with = "lenient")]
    pub choices: Option<Vec<Choice>>,
    #[serde(deserialize_with = "lenient")]
    pub usage: Option<Usage>,
    pub error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Choice {
    #[serde(deserialize_with = "lenient")]
    pub index: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub delta: Option<Delta>,
    /// The message of a whole reply.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<Delta>,
    #[serde(deserialize_with = "lenient")]
    pub finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Delta {
    #[serde(deserialize_with = "lenient")]
    content: Option<Content>,
    #[serde(deserialize_with = "lenient")]
    reasoning_content: Option<String>,
    #[serde(deserialize_with = "lenient")]
    reasoning: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub tool_calls: Option<Vec<CallPart>>,
    /// The deprecated form of calls.
    #[serde(deserialize_with = "lenient")]
    pub function_call: Option<Function>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Part {
    Text(String),
    Typed {
        #[serde(default)]
        text: Value,
    },
    Other(IgnoredAny),
}

/// A fragment of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallPart {
    #[serde(deserialize_with = "lenient")]
    pub index: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub id: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub function: Option<Function>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Function {
    #[serde(deserialize_with = "lenient")]
    pub name: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub arguments: Option<Arguments>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Arguments {
    Text(String),
    Object(Map<String, Value>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    #[serde(deserialize_with = "lenient")]
    pub prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    pub completion_tokens: Option<u64>,
}

impl Chunk {
    /// An error of the provider, with its status code if stated.
    pub(crate) fn error(&self) -> Option<(ErrorMessage, Option<u16>)> {
        let error = self.error.as_ref()?;
        let text = match error {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => match other.get("message").and_then(Value::as_str) {
                Some(text) => text.to_owned(),
                None => other.to_string(),
            },
        };
        let code = error.get("code").and_then(|code| match code {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|code| u16::try_from(code).ok()),
        });
        let parameter = error.get("param").and_then(Value::as_str);
        Some((ErrorMessage::new(text, parameter), code))
    }
}

impl Delta {
    /// The texts, in order.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let (text, parts) = match &self.content {
            None => (None, &[] as &[Part]),
            Some(Content::Text(text)) => (Some(text.as_str()), &[] as &[Part]),
            Some(Content::Parts(parts)) => (None, parts.as_slice()),
        };
        let parts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Typed { text } => text.as_str(),
            Part::Other(_) => None,
        });
        text.into_iter()
            .chain(parts)
            .filter(|text| !text.is_empty())
    }

    /// Whether it contains reasoning, which is not a part of the reply.
    pub(crate) fn has_reasoning(&self) -> bool {
        let reasoning = [&self.reasoning_content, &self.reasoning];
        reasoning.into_iter().flatten().any(|text| !text.is_empty())
    }
}

/// A value of this type; `None` for any other. An untagged enum would copy each nested value first.
fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let json = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(json.get()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Chunk {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn text_has_several_forms() {
        #[track_caller]
        fn check(content: &str, expected: &[&str]) {
            let chunk = read(&format!(
                r#"{{"id":1,"choices":[{{"delta":{{"role":null,"content":{content}}}}}]}}"#
            ));
            let choice = chunk.choices.unwrap().remove(0);
            let delta = choice.delta.unwrap();
            assert_eq!(delta.texts().collect::<Vec<_>>(), expected);
        }
        check(r#""a""#, &["a"]);
        check(r#""""#, &[]);
        check("null", &[]);
        check("7", &[]);
        check("{}", &[]);
        let parts = r#"[{"type":"text","text":"a"},{"type":"thinking","thinking":[{"text":"b"}]},"c",7,{"text":{}}]"#;
        check(parts, &["a", "c"]);
    }

    #[test]
    fn unexpected_types_count_as_absent() {
        let chunk = read(r#"{"choices":"none","usage":7,"error":null}"#);
        assert!(chunk.choices.is_none() && chunk.usage.is_none() && chunk.error().is_none());
        let text = r#"{"choices":[{"index":"0","delta":{"tool_calls":null,"content":"a","function_call":7},
            "finish_reason":false}],"usage":{"prompt_tokens":null,"completion_tokens":3.5}}"#;
        let chunk = read(text);
        assert_eq!(chunk.usage.unwrap().completion_tokens, None);
        let choice = &chunk.choices.unwrap()[0];
        assert_eq!((choice.index, &choice.finish_reason), (None, &None));
        let delta = choice.delta.as_ref().unwrap();
        assert!(delta.tool_calls.is_none() && delta.function_call.is_none());
        assert_eq!(delta.texts().next(), Some("a"));
    }

    #[test]
    fn errors_have_several_forms() {
        #[track_caller]
        fn check(error: &str, expected: Option<(&str, Option<u16>)>) {
            let found = read(&format!(r#"{{"error":{error}}}"#)).error();
            let expected =
                expected.map(|(text, code)| (ErrorMessage::new(text.to_owned(), None), code));
            assert_eq!(found, expected, "{error}");
        }
        check(r#"{"message":"a","code":429}"#, Some(("a", Some(429))));
        check(r#"{"message":"a","code":"502"}"#, Some(("a", Some(502))));
        check(r#"{"message":"a","code":"no_quota"}"#, Some(("a", None)));
        check(r#""a""#, Some(("a", None)));
        check(r#"{"type":"a"}"#, Some((r#"{"type":"a"}"#, None)));
        check("null", None);
    }

    #[test]
    fn reasoning_is_detected() {
        fn check(delta: &str, expected: bool) {
            let delta: Delta = serde_json::from_str(delta).unwrap();
            assert_eq!(delta.has_reasoning(), expected);
        }
        check(r#"{"reasoning_content":"hm"}"#, true);
        check(r#"{"reasoning":"hm"}"#, true);
        check(r#"{"reasoning":"","content":"a"}"#, false);
        check("{}", false);
    }
}
