//! Transcripts that are none: words that recognisers invent, and what listeners say in passing.

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
    fn punctuation_and_case_do_not_matter() {
        assert!(is_invented(" Thank you. "));
        assert!(is_invented("谢谢观看！"));
        assert!(!is_invented("Thank you for the lamp."));
        assert!(is_backchannel("Uh-huh."));
        assert!(is_backchannel("嗯，"));
        assert!(!is_backchannel("okay stop"));
    }
}
