//! Configuration of the chat service.

use std::num::NonZeroU32;

use clap::Args;

/// Models and limits of conversations.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Conversations")]
#[group(skip)]
pub struct Config {
    /// The language models; without any, the rule responder answers.
    #[command(flatten)]
    pub completions: switchboard_completions::Config,

    /// Concurrent turns of devices on one node, of which one organisation gets a quarter; further
    /// ones wait or go to another node; also the concurrent answers over HTTP; protects memory, the
    /// devices and other organisations
    #[arg(
        long,
        env,
        default_value_t = 256,
        value_parser = clap::value_parser!(u16).range(1..=4_096),
        value_name = "COUNT"
    )]
    pub chat_turns: u16,

    /// Concurrent answers over HTTP of one organisation on one node, further requests are rejected;
    /// protects other organisations
    #[arg(
        long = "chat-max-streams-per-org",
        visible_alias = "chat-org-lines",
        env,
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=4_096),
        value_name = "COUNT"
    )]
    pub chat_org_lines: u16,

    /// Concurrent extractions of memories from ended conversations and summaries of long ones on one
    /// node, of which one organisation gets a quarter; further ones wait; protects the providers and
    /// other organisations
    #[arg(
        long,
        env,
        default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=4_096),
        value_name = "COUNT"
    )]
    pub chat_conversation_jobs: u16,

    /// Bytes of the pictures of messages that are being answered, and of what they take in requests;
    /// one organisation gets a quarter, and further ones wait; protects memory
    #[arg(long, env, default_value_t = 67_108_864, value_name = "BYTES")]
    pub chat_pictures_bytes: usize,

    /// Sustained rate of messages over HTTP of one API key or token subject; limits cost and
    /// protects other callers
    #[arg(long, env, default_value = "10", value_name = "COUNT")]
    pub chat_caller_rate_per_s: NonZeroU32,

    /// Burst of messages over HTTP of one API key or token subject after a pause
    #[arg(long, env, default_value = "50", value_name = "COUNT")]
    pub chat_caller_burst: NonZeroU32,

    /// Sustained rate of messages over HTTP of one organisation, of all its API keys and token
    /// subjects; limits cost and protects other organisations
    #[arg(long, env, default_value = "100", value_name = "COUNT")]
    pub chat_org_rate_per_s: NonZeroU32,

    /// Burst of messages over HTTP of one organisation after a pause
    #[arg(long, env, default_value = "500", value_name = "COUNT")]
    pub chat_org_burst: NonZeroU32,

    /// Timeout of an answer by a language model, including its calls; limits how long users wait
    #[arg(
        long,
        env,
        default_value_t = 90_000,
        value_parser = clap::value_parser!(u64).range(1_000..=600_000),
        value_name = "MS"
    )]
    pub chat_turn_timeout_ms: u64,

    /// Timeout of a call for a turn; a service can set a shorter one, and no longer one; limits how
    /// long users wait
    #[arg(
        long,
        env,
        default_value_t = 30_000,
        value_parser = clap::value_parser!(u64).range(100..=300_000),
        value_name = "MS"
    )]
    pub chat_call_timeout_ms: u64,

    /// Rounds of calls for one answer, after which the model must answer without calls; protects
    /// devices and limits cost
    #[arg(
        long,
        env,
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=64),
        value_name = "COUNT"
    )]
    pub chat_rounds: u32,

    /// A conversation without a message for this long has ended: memories are extracted from it,
    /// and it is deleted
    #[arg(
        long,
        env,
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        value_name = "SECONDS"
    )]
    pub chat_conversation_rest_s: u64,
}
