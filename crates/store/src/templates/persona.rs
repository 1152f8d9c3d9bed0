//! Who a character is, and how that reads as one text.
//! Never: a placeholder of a prompt replaced; only what character cards mean by `{{char}}` is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{CardRest, RENDERED_LIMIT_BYTES};
use crate::placeholders;

/// What character cards write where the character's name is meant.
const CHARACTER: &str = "char";

/// Who a character is. All of it is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Persona {
    /// What the character is to the user, in a few words.
    #[schema(example = "a watchdog")]
    pub role: Option<String>,
    /// What the character is like, for people who choose one.
    #[schema(example = "Loyal and loud.")]
    pub description: Option<String>,
    /// Its traits.
    #[schema(example = "Brave, easily distracted.")]
    pub personality: Option<String>,
    /// What happened to it so far.
    #[schema(example = "Found at a bus stop.")]
    pub backstory: Option<String>,
    /// Where and when a conversation takes place.
    #[schema(example = "A garden at night.")]
    pub scenario: Option<String>,
    /// First sentences, one of which opens a conversation.
    #[schema(example = json!(["Woof!"]))]
    pub greeting: Vec<String>,
    /// How it speaks, by an example.
    #[schema(example = "- Who is there? - Woof!")]
    pub example_dialogue: Option<String>,
    /// How it speaks, in words.
    #[schema(example = "Short, with barks.")]
    pub dialogue_style: Option<String>,
    /// What the model is told before everything else.
    #[schema(example = "Stay in character.")]
    pub system_prompt: Option<String>,
    /// What it does not talk about.
    #[schema(example = json!(["cats"]))]
    pub forbidden_topics: Vec<String>,
    /// What a character card says that templates have no field for.
    pub card: CardRest,
}

impl Persona {
    /// The persona as one text for a model: the system prompt first, then who it is, part by part. What is not set
    /// is not mentioned, so a character of whom only the name is known is only named. `{{char}}`, as character cards
    /// write it, is the name; `{{user}}` stays, since nobody here knows it.
    #[must_use]
    pub fn as_text(&self, name: &str) -> String {
        let role = self.role.as_deref().filter(|role| !is_blank(role));
        let opening = match role {
            Some(role) => format!("You are {name}, {}.", role.trim().trim_end_matches('.')),
            None => format!("You are {name}."),
        };
        let mut parts = Vec::new();
        parts.extend(
            self.system_prompt
                .as_deref()
                .map(str::trim)
                .map(str::to_owned),
        );
        parts.push(opening);
        let chapters = [
            ("Description", &self.description),
            ("Personality", &self.personality),
            ("Backstory", &self.backstory),
            ("Scenario", &self.scenario),
            ("How you speak", &self.dialogue_style),
            ("Example dialogue", &self.example_dialogue),
        ];
        parts.extend(
            chapters
                .into_iter()
                .filter_map(|(title, text)| chapter(title, text.as_deref()?)),
        );
        parts.extend(list("Ways to greet", &self.greeting));
        parts.extend(list("Never talk about", &self.forbidden_topics));
        parts.retain(|part| !part.is_empty());
        let text = parts.join("\n\n");
        let named = placeholders::substitute(&text, RENDERED_LIMIT_BYTES, |macro_name| {
            macro_name.eq_ignore_ascii_case(CHARACTER).then_some(name)
        });
        named.unwrap_or(text)
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn chapter(title: &str, text: &str) -> Option<String> {
    (!is_blank(text)).then(|| format!("{title}:\n{}", text.trim()))
}

fn list(title: &str, items: &[String]) -> Option<String> {
    let said: Vec<_> = items.iter().filter(|item| !is_blank(item)).collect();
    if said.is_empty() {
        return None;
    }
    let lines = said.iter().map(|item| format!("\n- {}", item.trim()));
    Some(format!("{title}:{}", lines.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_said() {
        fn check(persona: serde_json::Value, expected: &str) {
            let read: Persona = serde_json::from_value(persona.clone()).unwrap();
            assert_eq!(read.as_text("Bello"), expected, "{persona}");
        }
        check(serde_json::json!({}), "You are Bello.");
        check(
            serde_json::json!({"role": " a watchdog. ", "description": "  "}),
            "You are Bello, a watchdog.",
        );
        check(
            serde_json::json!({"greeting": ["Wuff!", " "], "forbidden_topics": ["cats", "baths"]}),
            "You are Bello.\n\nWays to greet:\n- Wuff!\n\nNever talk about:\n- cats\n- baths",
        );
        check(
            serde_json::json!({
                "role": "a dog", "description": "D", "personality": "P", "backstory": "B", "scenario": "S",
                "greeting": ["G"], "example_dialogue": "E", "dialogue_style": "Y", "system_prompt": "Be kind.\n",
                "forbidden_topics": ["F"],
            }),
            "Be kind.\n\nYou are Bello, a dog.\n\nDescription:\nD\n\nPersonality:\nP\n\nBackstory:\nB\n\n\
             Scenario:\nS\n\nHow you speak:\nY\n\nExample dialogue:\nE\n\nWays to greet:\n- G\n\n\
             Never talk about:\n- F",
        );
        check(
            serde_json::json!({"personality": "{{char}} calls the user {{user}}, and {{Char}} barks."}),
            "You are Bello.\n\nPersonality:\nBello calls the user {{user}}, and Bello barks.",
        );
    }
}
