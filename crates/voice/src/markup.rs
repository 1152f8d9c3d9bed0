//! What of a text with Markdown and emoji can be spoken.

/// Emotions that an emoji expresses.
const EMOTIONS: [(&str, &str); 8] = [
    ("😀😃😄😁🙂😊☺", "happy"),
    ("😂🤣😆", "laughing"),
    ("😢😭☹🙁😞", "sad"),
    ("😠😡", "angry"),
    ("😮😲😱", "surprised"),
    ("😍🥰❤💕", "loving"),
    ("🤔", "thinking"),
    ("😴", "sleepy"),
];

/// Characters that are syllables.
pub(crate) const fn is_ideograph(char: char) -> bool {
    matches!(char, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

/// Emoji, their modifiers and other pictographs.
const fn is_emoji(char: char) -> bool {
    matches!(char,
        '\u{200d}' | '\u{20e3}' | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}'
        | '\u{25a0}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{fe0e}' | '\u{fe0f}'
        | '\u{1f000}'..='\u{1faff}')
}

/// What of a piece of Markdown can be spoken, and the emotion of its first emoji.
pub(crate) fn speakable(raw: &str, in_code: &mut bool) -> (String, Option<&'static str>) {
    let mut text = String::new();
    let mut emotion = None;
    for line in raw.split_inclusive('\n') {
        let trimmed = line.trim();
        if let Some(after) = trimmed.strip_prefix("```") {
            // A block on one line opens and closes.
            *in_code ^= !after.contains("```");
            continue;
        }
        if *in_code {
            continue;
        }
        let content = trimmed.trim_start_matches(['#', '>', ' ']);
        let content = content
            .strip_prefix("- ")
            .or_else(|| content.strip_prefix("* "))
            .unwrap_or(content);
        speak_line(content, &mut text, &mut emotion);
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let has_words = text.chars().any(char::is_alphanumeric);
    (if has_words { text } else { String::new() }, emotion)
}

/// Appends the words of a line without markup, links and emoji.
fn speak_line(line: &str, text: &mut String, emotion: &mut Option<&'static str>) {
    for word in line.split_inclusive(char::is_whitespace) {
        if !text.is_empty() && !text.ends_with(char::is_whitespace) {
            let last = text.chars().next_back();
            let joins = last.is_some_and(is_ideograph);
            if !joins && std::ptr::eq(word.as_ptr(), line.as_ptr()) {
                text.push(' ');
            }
        }
        // `[label](address)`: the label is spoken.
        let word = match word.split_once("](") {
            Some((label, address)) => {
                let after = address.split_once(')').map_or("", |(_, after)| after);
                format!("{label}{after}")
            }
            None => word.to_owned(),
        };
        if word.contains("://") {
            text.push(' ');
            continue;
        }
        for char in word.chars() {
            if is_emoji(char) {
                *emotion = emotion.or_else(|| emotion_of(char));
            } else if !matches!(char, '*' | '`' | '_' | '~' | '[' | ']' | '|') {
                text.push(char);
            }
        }
    }
}

fn emotion_of(emoji: char) -> Option<&'static str> {
    let mut known = EMOTIONS.iter();
    known
        .find(|(emoji_of, _)| emoji_of.contains(emoji))
        .map(|(_, emotion)| *emotion)
}
