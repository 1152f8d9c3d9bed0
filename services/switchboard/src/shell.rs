//! Commands that a user pastes into a shell.

use std::{borrow::Cow, path::Path};

/// Returns a word as a POSIX shell reads it. What no command line can contain, a NUL, is left out.
pub(crate) fn quote(word: &str) -> String {
    let word = word.replace('\0', "");
    shlex::try_quote(&word).map_or_else(|_| String::new(), Cow::into_owned)
}

/// The same for a path.
pub(crate) fn quote_path(path: &Path) -> String {
    quote(&path.to_string_lossy())
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
