//! Commands that a person pastes into a shell.

use std::{borrow::Cow, path::Path};

/// Characters that no POSIX shell treats specially, besides letters and digits.
const PLAIN: &str = "_@%+=:,./-";

/// Returns a word as a POSIX shell reads it: quoted if it has other than plain characters.
pub(crate) fn quote(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || PLAIN.contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    // Between single quotes all characters but the quote itself stand for themselves.
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// The same for a path.
pub(crate) fn quote_path(path: &Path) -> String {
    quote(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn shell_reads_quoted_word_unchanged() {
        for word in ["/srv/a", "", "a b", "it's $HOME `x` \"y\" \\ *", "-n", "~"] {
            let script = format!("printf %s {}", quote(word));
            let printed = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(printed.stdout).unwrap(), word, "{script}");
        }
        assert_eq!(quote("/srv/a-b_1.c"), "/srv/a-b_1.c");
    }
}
