//! What a language model replied, when all of it was heard.
//! Never: half a call.

use serde_json::{Map, Value};

use crate::{chunk, settings::Prices};

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// All that was heard, in one piece.
    pub text: String,
    /// What the model calls, in its order.
    pub calls: Vec<ToolCall>,
    /// Why the reply ended.
    pub finish: Finish,
    /// What it took.
    pub usage: Usage,
    /// The name of the provider that replied.
    pub provider: String,
}

/// A call that the model makes.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Its id: unique in the reply.
    pub id: String,
    /// What is called. Nobody has checked that there is such a tool; it may be empty.
    pub name: String,
    /// The arguments; the raw text when they are no JSON object.
    pub arguments: Result<Map<String, Value>, String>,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// All is said.
    Stop,
    /// It became too long; what was called last may be cut off.
    Length,
    /// The calls want their results.
    ToolCalls,
    /// The provider keeps the rest to itself.
    Filtered,
    /// For a reason that is not known here.
    Other,
}

impl Finish {
    /// What the provider's word for it means.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "stop" | "eos" | "end_turn" | "stop_sequence" => Self::Stop,
            "length" | "max_tokens" => Self::Length,
            "tool_calls" | "function_call" | "tool_use" => Self::ToolCalls,
            "content_filter" | "safety" => Self::Filtered,
            _ => Self::Other,
        }
    }

    /// What it means of a reply with or without calls, whatever was said of it.
    pub(crate) const fn with(self, calls: bool) -> Self {
        match self {
            Self::Stop | Self::Other if calls => Self::ToolCalls,
            Self::ToolCalls if !calls => Self::Stop,
            other => other,
        }
    }
}

/// What a reply took; zeros when the provider does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Tokens of what was asked.
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    pub completion_tokens: u64,
    /// What that costs, in the unit of the provider's prices.
    pub cost: f64,
}

impl Usage {
    pub(crate) fn of(said: Option<&chunk::Usage>, prices: Prices) -> Self {
        let Some(said) = said else {
            return Self::default();
        };
        let prompt_tokens = said.prompt_tokens.unwrap_or(0);
        let completion_tokens = said.completion_tokens.unwrap_or(0);
        Self {
            prompt_tokens,
            completion_tokens,
            cost: cost(prompt_tokens, prices.prompt) + cost(completion_tokens, prices.completion),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nobody counts 2^53 tokens in one reply"
)]
fn cost(tokens: u64, price_per_million: f64) -> f64 {
    tokens as f64 * price_per_million / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_say_more_than_the_word() {
        fn check(word: &str, calls: bool, expected: Finish) {
            assert_eq!(Finish::of(word).with(calls), expected, "{word} {calls}");
        }
        check("stop", false, Finish::Stop);
        check("stop", true, Finish::ToolCalls);
        check("length", true, Finish::Length);
        check("tool_calls", true, Finish::ToolCalls);
        check("tool_calls", false, Finish::Stop);
        check("content_filter", false, Finish::Filtered);
        check("whatever", false, Finish::Other);
        check("whatever", true, Finish::ToolCalls);
    }

    #[test]
    fn a_reply_costs_what_its_tokens_cost() {
        let prices = Prices {
            prompt: 0.25,
            completion: 2.0,
        };
        let said = chunk::Usage {
            prompt_tokens: Some(2_000_000),
            completion_tokens: Some(500_000),
        };
        assert_eq!(Usage::of(Some(&said), prices).cost, 1.5);
        assert_eq!(Usage::of(None, prices), Usage::default());
    }
}
