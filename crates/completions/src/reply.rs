//! Complete replies.

use serde_json::{Map, Value};

use crate::{chunk, settings::Prices};

/// A complete reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The text, as it was sent to the sink.
    pub text: String,
    /// The tool calls, in order.
    pub calls: Vec<ToolCall>,
    /// Why the reply ended.
    pub finish_reason: FinishReason,
    /// The reported usage.
    pub usage: Usage,
    /// The name of the provider that replied.
    pub provider: String,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id, unique in the reply.
    pub id: String,
    /// The name of the tool as the model sent it. It may be empty or unknown.
    pub name: String,
    /// The arguments; the raw text when it is no JSON object.
    pub arguments: Result<Map<String, Value>, String>,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The reply is complete.
    Stop,
    /// It reached a length limit; the last call may be cut off.
    Length,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// A content filter withheld the rest.
    Filtered,
    /// An unknown reason.
    Other,
}

impl FinishReason {
    /// Parses a provider's finish reason.
    pub(crate) fn parse(reason: &str) -> Self {
        match reason {
            "stop" | "eos" | "end_turn" | "stop_sequence" => Self::Stop,
            "length" | "max_tokens" => Self::Length,
            "tool_calls" | "function_call" | "tool_use" => Self::ToolCalls,
            "content_filter" | "safety" => Self::Filtered,
            _ => Self::Other,
        }
    }

    /// The reason corrected by whether the reply has calls; some providers report it wrongly.
    pub(crate) const fn with_calls(self, has_calls: bool) -> Self {
        match self {
            Self::Stop | Self::Other if has_calls => Self::ToolCalls,
            Self::ToolCalls if !has_calls => Self::Stop,
            other => other,
        }
    }
}

/// The usage of a request; zeros when the provider does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    pub completion_tokens: u64,
    /// The cost, in the currency of the configured prices.
    pub cost: f64,
}

impl Usage {
    pub(crate) fn from_chunk(usage: Option<&chunk::Usage>, prices: Prices) -> Self {
        let Some(usage) = usage else {
            return Self::default();
        };
        let prompt_tokens = usage.prompt_tokens.unwrap_or(0);
        let completion_tokens = usage.completion_tokens.unwrap_or(0);
        Self {
            prompt_tokens,
            completion_tokens,
            cost: cost(prompt_tokens, prices.prompt) + cost(completion_tokens, prices.completion),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a reply has less than 2^53 tokens"
)]
fn cost(tokens: u64, price_per_million: f64) -> f64 {
    tokens as f64 * price_per_million / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_correct_the_finish_reason() {
        fn check(word: &str, calls: bool, expected: FinishReason) {
            assert_eq!(
                FinishReason::parse(word).with_calls(calls),
                expected,
                "{word} {calls}"
            );
        }
        check("stop", false, FinishReason::Stop);
        check("stop", true, FinishReason::ToolCalls);
        check("length", true, FinishReason::Length);
        check("tool_calls", true, FinishReason::ToolCalls);
        check("tool_calls", false, FinishReason::Stop);
        check("content_filter", false, FinishReason::Filtered);
        check("whatever", false, FinishReason::Other);
        check("whatever", true, FinishReason::ToolCalls);
    }

    #[test]
    fn cost_is_computed_from_tokens() {
        let prices = Prices {
            prompt: 0.25,
            completion: 2.0,
        };
        let usage = chunk::Usage {
            prompt_tokens: Some(2_000_000),
            completion_tokens: Some(500_000),
        };
        assert_eq!(Usage::from_chunk(Some(&usage), prices).cost, 1.5);
        assert_eq!(Usage::from_chunk(None, prices), Usage::default());
    }
}
