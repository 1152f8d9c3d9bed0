//! Sentences that need no service.

use crate::vocabulary::lists;

/// A sentence that needs no service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallTalk {
    /// Who or what answers?
    Identity,
    /// What can the device do?
    Abilities,
    /// A greeting.
    Greeting,
    /// Thanks.
    Thanks,
}

/// Starts of sentences, without spaces and signs.
const IDENTITY: &str = "whoareyou whatareyou whichmodelareyou whatmodelareyou whatisyourname \
    whatsyourname introduceyourself areyouhuman areyoureal areyouchatgpt areyouanai areyouanllm \
    areyouahuman areyouaperson areyouarobot areyoualanguagemodel 你是谁 您是谁 你是什么 你叫什么 \
    你是人 你是真人 你是机器人 你是ai 你是哪个模型 介绍一下你自己 介绍你自己";
const ABILITIES: &str = "whatcanyoudo whatdoyoudo howcanyouhelp help 你会什么 你会做什么 你能做什么 \
    你能干什么 你可以做什么 有什么功能";
/// Whole sentences.
const GREETINGS: &str =
    "hello hellothere hi hithere hey goodmorning 你好 您好 早上好 下午好 晚上好 嗨";
const THANKS: &str = "thanks thankyou thankyouverymuch thanksalot 谢谢 谢谢你 谢谢您 多谢 感谢";

/// What a sentence is, unless it means a service.
pub(crate) fn small_talk(text: &str) -> Option<SmallTalk> {
    let lower = text.to_lowercase();
    let text: String = lower.chars().filter(|c| c.is_alphanumeric()).collect();
    let starts = |list: &str| list.split_whitespace().any(|start| text.starts_with(start));
    if starts(IDENTITY) {
        Some(SmallTalk::Identity)
    } else if starts(ABILITIES) {
        Some(SmallTalk::Abilities)
    } else if lists(GREETINGS, &text) {
        Some(SmallTalk::Greeting)
    } else {
        lists(THANKS, &text).then_some(SmallTalk::Thanks)
    }
}
