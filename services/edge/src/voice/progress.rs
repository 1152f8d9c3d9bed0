//! Which words of an answer the device has played.

use std::time::Duration;

/// The sentences of one answer with the audio of each, in the order in which the device plays them.
#[derive(Debug, Default)]
pub(super) struct Progress {
    sentences: Vec<(String, Duration)>,
}

impl Progress {
    /// The audio that follows is that of this sentence.
    pub(super) fn begin(&mut self, sentence: &str) {
        self.sentences.push((sentence.to_owned(), Duration::ZERO));
    }

    /// Adds audio of the last sentence.
    pub(super) fn add(&mut self, audio: Duration) {
        if let Some((_, total)) = self.sentences.last_mut() {
            *total += audio;
        }
    }

    /// Returns the duration of all audio.
    pub(super) fn total(&self) -> Duration {
        self.sentences.iter().map(|(_, audio)| *audio).sum()
    }

    /// Returns the words in this much audio. Of the last sentence it is an estimate, rounded down to
    /// words, or to characters where no spaces separate them.
    pub(super) fn words(&self, played: Duration) -> String {
        let mut left = played;
        let mut words = Vec::new();
        for (text, audio) in &self.sentences {
            if left < *audio {
                words.push(beginning(text, left.as_secs_f64() / audio.as_secs_f64()));
                break;
            }
            left -= *audio;
            words.push(text);
        }
        words.retain(|text| !text.is_empty());
        words.join(" ")
    }
}

/// Returns this part of a text.
fn beginning(text: &str, part: f64) -> &str {
    let count = (text.chars().count() as f64 * part) as usize;
    let end = text.char_indices().nth(count);
    let (head, rest) = text.split_at(end.map_or(text.len(), |(index, _)| index));
    let is_cut = text.contains(' ') && !rest.starts_with(' ') && !rest.is_empty();
    let head = match head.rfind(' ') {
        Some(space) if is_cut => &head[..space],
        None if is_cut => "",
        _ => head,
    };
    head.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn answer(sentences: &[(&str, u32)]) -> Progress {
        let mut progress = Progress::default();
        for (sentence, seconds) in sentences {
            progress.begin(sentence);
            (0..*seconds).for_each(|_| progress.add(SECOND));
        }
        progress
    }

    #[test]
    fn words_are_those_that_were_played() {
        let progress = answer(&[("Good morning.", 1), ("The lamp is red.", 2), ("", 0)]);
        let check = |ms, expect| {
            assert_eq!(progress.words(Duration::from_millis(ms)), expect, "{ms}");
        };
        check(0, "");
        check(500, "Good");
        check(999, "Good");
        check(1_000, "Good morning.");
        check(1_600, "Good morning. The");
        check(2_000, "Good morning. The lamp");
        check(3_000, "Good morning. The lamp is red.");
        check(9_000, "Good morning. The lamp is red.");
        let progress = answer(&[("你好，今天天气很好。", 1)]);
        assert_eq!(progress.words(SECOND / 2), "你好，今天");
    }
}
