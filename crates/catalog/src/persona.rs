//! A character's persona, and its rendering as one text for a model.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CardRest, MAX_RENDERED_BYTES, placeholders};

/// The placeholder for the character's name in character cards.
const NAME_PLACEHOLDER: &str = "char";

/// A character's identity and style. All fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Persona {
    /// The character's role towards the user, in a few words.
    #[schema(example = "a watchdog")]
    pub role: Option<String>,
    /// A short description for people who choose a character.
    #[schema(example = "Loyal and loud.")]
    pub description: Option<String>,
    /// The character's traits.
    #[schema(example = "Brave, easily distracted.")]
    pub personality: Option<String>,
    /// The character's history.
    #[schema(example = "Found at a bus stop.")]
    pub backstory: Option<String>,
    /// The setting of a conversation.
    #[schema(example = "A garden at night.")]
    pub scenario: Option<String>,
    /// Possible first sentences; one of them opens a conversation.
    #[schema(example = json!(["Woof!"]))]
    pub greeting: Vec<String>,
    /// An example dialogue that shows the character's style.
    #[schema(example = "- Who is there? - Woof!")]
    pub example_dialogue: Option<String>,
    /// A description of the character's style.
    #[schema(example = "Short, with barks.")]
    pub dialogue_style: Option<String>,
    /// Instructions to the model; they precede everything else.
    #[schema(example = "Stay in character.")]
    pub system_prompt: Option<String>,
    /// Topics that the character avoids.
    #[schema(example = json!(["cats"]))]
    pub forbidden_topics: Vec<String>,
    /// Members of an imported character card that templates have no field for.
    pub card: CardRest,
}

impl Persona {
    /// The persona as one text for a model: the system prompt, then one part per field. Unset
    /// fields are omitted; an empty persona yields only the name. `{{char}}`, the character cards'
    /// placeholder, becomes the name; `{{user}}` remains, because the user's name is unknown here.
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
        let sections = [
            ("Description", &self.description),
            ("Personality", &self.personality),
            ("Backstory", &self.backstory),
            ("Scenario", &self.scenario),
            ("How you speak", &self.dialogue_style),
            ("Example dialogue", &self.example_dialogue),
        ];
        parts.extend(
            sections
                .into_iter()
                .filter_map(|(title, text)| section(title, text.as_deref()?)),
        );
        parts.extend(list("Ways to greet", &self.greeting));
        parts.extend(list("Never talk about", &self.forbidden_topics));
        parts.retain(|part| !part.is_empty());
        let text = parts.join("\n\n");
        let named = placeholders::substitute(&text, MAX_RENDERED_BYTES, |placeholder| {
            placeholder
                .eq_ignore_ascii_case(NAME_PLACEHOLDER)
                .then_some(name)
        });
        named.unwrap_or(text)
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn section(title: &str, text: &str) -> Option<String> {
    (!is_blank(text)).then(|| format!("{title}:\n{}", text.trim()))
}

fn list(title: &str, items: &[String]) -> Option<String> {
    let items: Vec<_> = items.iter().filter(|item| !is_blank(item)).collect();
    if items.is_empty() {
        return None;
    }
    let lines = items.iter().map(|item| format!("\n- {}", item.trim()));
    Some(format!("{title}:{}", lines.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persona_text_contains_set_fields() {
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
