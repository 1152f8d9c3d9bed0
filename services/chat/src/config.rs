//! What can be set about conversations.
//! Never: an address of ours or a secret; those belong to the process.

use std::num::NonZeroU32;

use clap::Args;

/// Who answers, and the limits of conversations.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Conversations")]
#[group(skip)]
pub struct Config {
    /// Which language models answer; without any, the embedded responder does.
    #[command(flatten)]
    pub completions: switchboard_completions::Config,

    /// Turns that one node answers at a time, others wait for it or go to another, and as many people over HTTP; protects
    /// memory and the devices
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_TURNS",
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=4_096),
        value_name = "COUNT"
    )]
    pub chat_turns: u16,

    /// People of one organisation that one node answers over HTTP at a time, further ones are refused; protects everybody else
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_ORG_LINES",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=4_096),
        value_name = "COUNT"
    )]
    pub chat_org_lines: u16,

    /// How often one API key or token subject may say something over HTTP in the long run; protects purses and everybody else
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_CALLER_RATE_PER_S",
        default_value = "10",
        value_name = "COUNT"
    )]
    pub chat_caller_rate_per_s: NonZeroU32,

    /// How often it may do so at once after a pause
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_CALLER_BURST",
        default_value = "50",
        value_name = "COUNT"
    )]
    pub chat_caller_burst: NonZeroU32,

    /// How long a language model has for an answer, calls of services included; protects people from waiting
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_TURN_TIMEOUT_MS",
        default_value_t = 90_000,
        value_parser = clap::value_parser!(u64).range(1_000..=600_000),
        value_name = "MS"
    )]
    pub chat_turn_timeout_ms: u64,

    /// How long a service called for a turn may take, where the device does not say; protects people from waiting
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_CALL_TIMEOUT_MS",
        default_value_t = 30_000,
        value_parser = clap::value_parser!(u64).range(100..=300_000),
        value_name = "MS"
    )]
    pub chat_call_timeout_ms: u64,

    /// How often a language model may call services for one answer before it has to answer; protects devices and purses
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_ROUNDS",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=64),
        value_name = "COUNT"
    )]
    pub chat_rounds: u32,

    /// A conversation without a word for so long has ended: what is worth keeping of it becomes memories, and the rest is
    /// forgotten
    #[arg(
        long,
        env = "SWITCHBOARD_CHAT_CONVERSATION_REST_S",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        value_name = "SECONDS"
    )]
    pub chat_conversation_rest_s: u64,
}
