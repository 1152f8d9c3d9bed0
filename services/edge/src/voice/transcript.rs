//! What the words of an utterance show besides their meaning: that a recogniser invented them, that a
//! listener said them in passing, that the user is about to continue.

use switchboard_voice::SegmenterSettings;

/// Recognisers invent words for noise. Below this part of speech they are not believed.
pub(super) const MIN_SPEECH_PERCENT: u32 = 30;
/// Words that recognisers invent most often.
const INVENTED: [&str; 6] = [
    "thank you",
    "thanks for watching",
    "you",
    "bye",
    "谢谢观看",
    "谢谢大家",
];
/// What a listener says without wanting to interrupt.
const BACKCHANNELS: [&str; 12] = [
    "uh-huh", "uh huh", "mm-hm", "mhm", "hmm", "mm", "yeah", "ok", "okay", "嗯", "对", "好",
];
/// Words after which users pause, and continue.
const CONNECTIVES: [&str; 10] = [
    "and", "or", "but", "because", "so", "um", "uh", "嗯", "那个", "然后",
];
/// Silence that ends an utterance after a complete sentence, and after a connective.
const SENTENCE_SILENCE_MS: u32 = 400;
const CONNECTIVE_SILENCE_MS: u32 = 900;

/// The silence that ends an utterance that begins with these words, in milliseconds.
pub(super) fn end_silence_ms(words: &str) -> u32 {
    let words = words.trim_end();
    if words.ends_with(['.', '?', '!', '。', '？', '！']) && !words.ends_with("..") {
        return SENTENCE_SILENCE_MS;
    }
    let words = words.trim_end_matches(|char: char| !char.is_alphanumeric());
    let last = words.rsplit(char::is_whitespace).next().unwrap_or(words);
    let is_last = |connective: &&str| {
        last.eq_ignore_ascii_case(connective)
            || (!connective.is_ascii() && last.ends_with(*connective))
    };
    if CONNECTIVES.iter().any(is_last) {
        CONNECTIVE_SILENCE_MS
    } else {
        SegmenterSettings::default().end_silence_ms
    }
}

/// Whether recognisers return these words for noise.
pub(super) fn is_invented(words: &str) -> bool {
    is_one_of(words, &INVENTED)
}

/// Whether a listener who says this does not want to interrupt.
pub(super) fn is_backchannel(words: &str) -> bool {
    is_one_of(words, &BACKCHANNELS)
}

/// Whether a transcript is one of these, apart from case and punctuation.
fn is_one_of(words: &str, known: &[&str]) -> bool {
    let words = words.trim_matches(|char: char| !char.is_alphanumeric());
    known.iter().any(|known| words.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_depends_on_the_last_words() {
        let check = |words: &str, expect: u32| assert_eq!(end_silence_ms(words), expect, "{words}");
        check("Turn on the lamp.", 400);
        check("现在几点？", 400);
        check("turn on the lamp", 500);
        check("", 500);
        check("turn on the lamp and", 900);
        check("the lamp, um,", 900);
        check("so...", 900);
        check("I understand", 500);
        check("我想要那个", 900);
    }

    #[test]
    fn punctuation_and_case_do_not_matter() {
        assert!(is_invented(" Thank you. "));
        assert!(is_invented("谢谢观看！"));
        assert!(!is_invented("Thank you for the lamp."));
        assert!(is_backchannel("Uh-huh."));
        assert!(is_backchannel("嗯，"));
        assert!(!is_backchannel("okay stop"));
    }
}
