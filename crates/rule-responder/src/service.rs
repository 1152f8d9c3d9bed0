//! Services as devices register them, prepared for comparison with sentences.

use serde_json::Value;

use crate::{
    vocabulary::{GENERIC, lists},
    words::{self, Kind, Token},
};

/// First words of the names of services that only read.
const READING: &str = "get list read query 获取 獲取 读取 查询 查詢 查看 列出";
/// Keys of booleans whose values are the words for on and off.
const SWITCHES: &str = "on power enabled active";

/// One service of a device.
#[derive(Debug)]
pub struct Service {
    /// The name under which it is called.
    pub name: String,
    /// Whether a call changes nothing: by the annotation `readOnlyHint`, else by the name.
    pub is_read_only: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) words: Words,
    pub(crate) first_word: String,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) type_name: String,
    /// The values of an enum or a boolean, and the words for each.
    pub(crate) choices: Vec<(Value, Vec<Token>)>,
    pub(crate) is_required: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) words: Words,
}

/// A name and a description.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) name_keys: Vec<String>,
    /// Keys of both.
    pub(crate) keys: Vec<String>,
    text: String,
}

impl Service {
    /// Reads a service from its registered definition.
    #[must_use]
    pub fn read(name: &str, definition: &Value) -> Self {
        let first_word = words::tokens(name).into_iter().next();
        let first_word = first_word.map_or_else(String::new, |token| token.raw);
        let hint = &definition["annotations"]["readOnlyHint"];
        let schema = &definition["parameters"];
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let parameters = properties.map(|(name, schema)| {
            let is_required = required.iter().any(|required| required == name);
            Parameter::read(name, schema, is_required)
        });
        Self {
            name: name.to_owned(),
            is_read_only: hint.as_bool().unwrap_or(lists(READING, &first_word)),
            parameters: parameters.collect(),
            words: Words::read(name, definition),
            first_word,
        }
    }

    /// The share of the name's specific words that the sentence contains, in percent.
    pub(crate) fn share_of_name(&self, sentence: &[Token]) -> usize {
        let own = self.words.name_keys.iter();
        let names: Vec<&String> = own.filter(|key| !lists(GENERIC, key)).collect();
        let is_in_sentence = |key: &&&String| sentence.iter().any(|token| token.is(key));
        names.iter().filter(is_in_sentence).count() * 100 / names.len().max(1)
    }
}

impl Parameter {
    fn read(name: &str, schema: &Value, is_required: bool) -> Self {
        let words = Words::read(name, schema);
        let kind = &schema["type"];
        let type_name = kind.get(0).unwrap_or(kind).as_str().unwrap_or("string");
        let values = schema["enum"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let values = values.map(|value| (value.clone(), words::tokens(&text(value))));
        let mut choices: Vec<_> = values.collect();
        if type_name == "boolean" && words.keys.iter().any(|key| lists(SWITCHES, key)) {
            choices.push((true.into(), words::tokens("on")));
            choices.push((false.into(), words::tokens("off")));
        }
        Self {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            choices,
            is_required,
            maximum: schema["maximum"].as_f64(),
            words,
        }
    }

    /// Whether its values are free numbers or texts.
    pub(crate) fn takes(&self, is_number: bool) -> bool {
        let types = ["string", "integer number"][usize::from(is_number)];
        self.choices.is_empty() && lists(types, &self.type_name)
    }
}

impl Words {
    fn read(name: &str, definition: &Value) -> Self {
        let description = definition["description"].as_str().unwrap_or_default();
        let keys = |text: &str| {
            let words = words::tokens(text).into_iter();
            let words = words.filter(|token| token.kind == Kind::Word);
            let keys = words.map(|token| token.key);
            let keys = keys.filter(|key| !key.starts_with(['~', '@']));
            keys.collect::<Vec<_>>()
        };
        Self {
            name_keys: keys(name),
            keys: [keys(name), keys(description)].concat(),
            text: format!("{name}\n{description}").to_lowercase(),
        }
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }
}
