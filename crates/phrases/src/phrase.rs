//! Every message, its parameters, and how they are filled in.

use std::{borrow::Cow, fmt::Display};

use crate::language::Language;

/// Defines the messages, and [`Table`] with a text for each: a language that lacks one does not compile.
macro_rules! phrases {
    ($($(#[$doc:meta])* $variant:ident $({ $($(#[$about:meta])* $name:ident: $kind:ty),+ $(,)? })? => $field:ident,)+) => {
        /// A message to a user, with its parameters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Phrase<'a> {
            $($(#[$doc])* $variant $({ $($(#[$about])* $name: $kind),+ })?,)+
        }

        /// The messages in one language. `{name}` stands for the parameter of this name.
        pub(crate) struct Table {
            $(pub(crate) $field: &'static str,)+
        }

        impl Phrase<'_> {
            /// The message in a language.
            #[must_use]
            pub fn text(self, language: Language) -> Cow<'static, str> {
                let table = language.table();
                match self {
                    $(Self::$variant $({ $($name),+ })? => {
                        fill(table.$field, &[$($((stringify!($name), &$name as &dyn Display)),+)?])
                    })+
                }
            }
        }

        /// The name of each message, its parameters, and its text in a table.
        #[cfg(test)]
        type Entry = (&'static str, &'static [&'static str], fn(&Table) -> &'static str);

        #[cfg(test)]
        const ENTRIES: &[Entry] = &[
            $((stringify!($variant), &[$($(stringify!($name)),+)?], |table| table.$field),)+
        ];
    };
}

phrases! {
    // Notices of the edge, in place of an answer or after a part of it.
    /// The message exceeds the limit.
    MessageTooLong => message_too_long,
    /// Too many turns of the device are in progress, or too much waits for devices.
    TooManyTurns => too_many_turns,
    /// Audio of a device without terms for it.
    TextOnly => text_only,
    /// No worker took the turn in time.
    Unanswered => unanswered,
    /// A part of the answer was lost. It does not ask to repeat the message: the worker may already have
    /// acted on it.
    AnswerCutOff => answer_cut_off,
    /// Separates a partial answer from the complete one of the worker that takes over.
    AnswerRestarts => answer_restarts,
    /// The bus may have accepted the turn although it returned an error.
    ChatUnreachable => chat_unreachable,
    /// The picture of a device exceeds this many KiB.
    PictureOver {
        /// The limit.
        kib: usize,
    } => picture_over,
    /// What a device sent is no picture.
    NoPicture => no_picture,

    // Spoken conversations.
    /// No provider recognises speech.
    NoRecognition => no_recognition,
    /// No provider synthesises speech.
    NoSynthesis => no_synthesis,
    /// The provider of recognition failed.
    RecognitionFailed => recognition_failed,
    /// The provider of synthesis failed.
    SynthesisFailed => synthesis_failed,
    /// The audio cannot be decoded.
    BadAudio => bad_audio,
    /// Audio arrived faster than it can have been recorded.
    AudioTooFast => audio_too_fast,
    /// There is no room for a further conversation.
    TooManyConversations => too_many_conversations,
    /// The user said more than the limit.
    TooMuchSaid => too_much_said,

    // Answers by rules.
    /// States that rules answer.
    Identity => identity,
    /// The same for a character.
    IdentityFor {
        /// The name of the character.
        name: &'a str,
    } => identity_for,
    /// The devices have no services.
    NoAbilities => no_abilities,
    /// What the devices can do.
    Abilities {
        /// Descriptions of services.
        abilities: &'a str,
    } => abilities,
    /// The same with a part of them.
    AbilitiesAndMore {
        /// Descriptions of services.
        abilities: &'a str,
        /// How many are left out.
        more: usize,
    } => abilities_and_more,
    /// How to word a command. The rules know English and Chinese only.
    HowToAsk => how_to_ask,
    /// No service matches.
    NotUnderstood => not_understood,
    /// Values of a command are missing.
    MissingValues {
        /// The description of the service.
        service: &'a str,
        /// The names of the parameters.
        parameters: &'a str,
    } => missing_values,
    /// The sentence mentions a service and is no plain command.
    NoCommand {
        /// The description of the service.
        service: &'a str,
    } => no_command,
    /// Several services match.
    WhichService {
        /// Their descriptions.
        services: &'a str,
    } => which_service,
    /// Several devices match.
    WhichDevice {
        /// Their ids.
        devices: &'a str,
    } => which_device,
    /// Answers a greeting.
    Greeting => greeting,
    /// Answers thanks.
    Thanks => thanks,
    /// Confirms a statement that becomes a memory when the conversation has ended.
    MemoryNoted => memory_noted,
    /// Answers with a memory.
    MemoryQuote {
        /// The memory.
        text: &'a str,
    } => memory_quote,
    /// Answers with a part of a skills book.
    BookQuote {
        /// The name of the book.
        book: &'a str,
        /// The part.
        text: &'a str,
    } => book_quote,
    /// The text of a memory that quotes the user.
    UserSaid {
        /// What the user said.
        quote: &'a str,
    } => user_said,

    // Results of calls.
    /// The result of a question is true.
    Yes => yes,
    /// The result of a question is false.
    No => no,
    /// True as a value in a sentence.
    True => true_value,
    /// False as a value in a sentence.
    False => false_value,
    /// The result of a question is empty.
    NoData => no_data,
    /// A command was carried out.
    Done => done,
    /// The same with a result. The end of the sentence is that of the result.
    DoneWith {
        /// The result.
        result: &'a str,
    } => done_with,
    /// The result of a question has several values.
    HereItIs {
        /// The values.
        result: &'a str,
    } => here_it_is,
    /// The result of a question is one value.
    ItIs {
        /// The value.
        result: &'a str,
    } => it_is,
    /// The device reports a failure.
    Failed {
        /// The reason, without the end of a sentence.
        reason: &'a str,
    } => failed,
    /// The same without a reason.
    FailedWithoutReason => failed_without_reason,
    /// The call was refused before it reached the device.
    Refused => refused,
    /// The same because of these values.
    RefusedValues {
        /// The names of the parameters.
        parameters: &'a str,
    } => refused_values,
    /// The call did not reach the device.
    DeviceUnreached => device_unreached,
    /// The device may have carried it out.
    NoResult => no_result,

    // Apologies.
    /// An earlier attempt may have called a service, so there is no second one.
    Interrupted => interrupted,
    /// The answer failed after a service was called.
    MayBeDone => may_be_done,
    /// The services of the devices cannot be used.
    ServicesUnreachable => services_unreachable,
    /// The NPC of the device is unknown, and with it what it may do.
    UnknownNpc => unknown_npc,
    /// The organisation is at its quota of speech for the day.
    SpeechUsedUp => speech_used_up,
    /// The organisation is at another quota of the day.
    TalkUsedUp => talk_used_up,
    /// Rules answer, and the message has a picture.
    UnseenPicture => unseen_picture,
    /// The organisation has no picture of this id.
    UnknownPicture => unknown_picture,
    /// Models do not accept a picture of this size.
    LargePicture => large_picture,
    /// The picture cannot be read at the moment.
    UnreadablePicture => unreadable_picture,
    /// No model answers.
    NoModel => no_model,
    /// The answer took longer than its limit.
    TimedOut => timed_out,
    /// The answer of the model broke off.
    LostThread => lost_thread,
    /// The model answered nothing.
    NoAnswer => no_answer,
}

/// Replaces `{name}` by the parameter of this name, in one pass: a value is not looked into.
fn fill(template: &'static str, parameters: &[(&str, &dyn Display)]) -> Cow<'static, str> {
    if parameters.is_empty() {
        return template.into();
    }
    let mut parts = template.split('{');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = parameters.iter().find(|(parameter, _)| *parameter == name);
        if let Some((_, value)) = value {
            text.push_str(&value.to_string());
        }
        text.push_str(rest);
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::detection;

    /// The names in braces.
    fn placeholders(template: &str) -> BTreeSet<&str> {
        let parts = template.split('{').skip(1);
        parts
            .filter_map(|part| Some(part.split_once('}')?.0))
            .collect()
    }

    #[test]
    fn every_text_has_exactly_the_parameters_of_its_message() {
        for language in Language::ALL {
            for (name, parameters, text) in ENTRIES {
                let text = text(language.table());
                let expected: BTreeSet<_> = parameters.iter().copied().collect();
                assert_eq!(
                    placeholders(text),
                    expected,
                    "{name} in {language:?}: {text}"
                );
                assert_eq!(text.matches('{').count(), text.matches('}').count());
                assert!(!text.trim().is_empty(), "{name} in {language:?}");
                assert_eq!(text.trim(), text, "{name} in {language:?}");
            }
        }
    }

    #[test]
    fn every_message_is_translated() {
        for (name, _, text) in ENTRIES {
            let english = text(Language::English.table());
            for language in Language::ALL.into_iter().skip(1) {
                let text = text(language.table());
                // "No." is also Spanish.
                assert!(
                    text != english || text.len() <= 3,
                    "{name} in {language:?}: {text}"
                );
            }
        }
    }

    #[test]
    fn every_sentence_is_in_the_language_of_its_table() {
        for language in Language::ALL {
            let texts = ENTRIES
                .iter()
                .map(|(name, _, text)| (name, text(language.table())));
            for (name, text) in texts.filter(|(_, text)| text.chars().count() > 24) {
                let detected = detection::detect(text, language).unwrap_or(language);
                assert_eq!(detected, language, "{name}: {text}");
            }
        }
    }

    #[test]
    fn values_are_filled_in_once() {
        let text = |phrase: Phrase<'_>| phrase.text(Language::English);
        let quote = Phrase::BookQuote {
            book: "{text}",
            text: "{book} {",
        };
        assert_eq!(text(quote), "{text} says: {book} {");
        assert!(matches!(
            text(Phrase::Thanks),
            Cow::Borrowed("You are welcome.")
        ));
        let over = Phrase::PictureOver { kib: 512 };
        assert_eq!(text(over), "The picture is too large. It may have 512 KiB.");
    }
}
