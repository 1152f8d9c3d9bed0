//! Exit codes and terminal output. Every exit code is documented in the `--help` of its subcommand.
//!
//! Invariant: text of devices, models and other users cannot control a terminal: characters that
//! have no visible form are escaped on stderr, on a terminal, and in JSON.

use std::{
    fmt::Display,
    io::{IsTerminal as _, Write, stdout},
    process::ExitCode,
};

use anyhow::Context as _;
use serde_json::value::RawValue;
use switchboard_runtime::{settings::SettingsError, telemetry};
use switchboard_tools::text::{escape, escape_after, escape_json};

/// General failure.
const GENERAL: u8 = 1;
/// Invalid command line, environment or file (`EX_USAGE`).
const USAGE: u8 = 64;
/// A required program is not installed (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;

/// A failed subcommand: exit code, and message for the terminal.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Creates a failure with a code specific to the subcommand.
    pub(crate) fn with_code(code: u8, text: impl Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    /// Creates a general failure.
    pub(crate) fn general(text: impl Display) -> Self {
        Self::with_code(GENERAL, text)
    }

    /// Creates a failure for an invalid setting; the text names it.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self::with_code(USAGE, text)
    }

    /// Creates a failure for a missing program.
    pub(crate) fn unavailable(text: impl Display) -> Self {
        Self::with_code(UNAVAILABLE, text)
    }

    /// The failure with this code, if it is a general one.
    pub(crate) fn in_place_of_general(self, code: u8) -> Self {
        match self.code {
            GENERAL => Self { code, ..self },
            _ => self,
        }
    }

    /// Prints the message on stderr and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        print_stderr(&format!("switchboard: {}", self.text));
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::general(format!("{error:#}"))
    }
}

/// Prints the output of the settings parser: help and version on stdout, errors on stderr.
pub(crate) fn report_settings(error: &SettingsError) -> ExitCode {
    if error.exit_code == 0 {
        // Stdout may be closed, as in `switchboard --help | head`.
        let _ = stdout().write_all(error.text.as_bytes());
    } else {
        print_stderr(error.text.trim_end());
    }
    ExitCode::from(error.exit_code)
}

/// Prints a line on stderr; ignores a closed stderr.
pub(crate) fn print_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", escape(line));
}

/// A colour of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    Red,
    Green,
    Yellow,
}

/// Prints a line of several parts on stderr, in colour where stderr shows it.
pub(crate) fn print_stderr_colored(parts: &[(&str, Option<Color>)]) {
    let line = colored(parts, telemetry::has_color());
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn colored(parts: &[(&str, Option<Color>)], has_color: bool) -> String {
    let paint = |(text, color): &(&str, Option<Color>)| {
        let text = escape(text);
        // Select Graphic Rendition of ECMA-48.
        let code = match color.filter(|_| has_color) {
            Some(Color::Red) => 31,
            Some(Color::Green) => 32,
            Some(Color::Yellow) => 33,
            None => return text.into_owned(),
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    };
    parts.iter().map(paint).collect()
}

/// Returns a text with escapes in place of characters that have no visible form.
pub(crate) fn escaped(text: &str) -> String {
    escape(text).into_owned()
}

/// Prints a line on stdout.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    print_bytes(format!("{line}\n").as_bytes())
}

/// Prints bytes on stdout: unmodified into a pipe.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    PieceWriter::default().print(bytes)
}

/// Prints JSON on stdout, indented on a terminal.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print_json(json: &RawValue) -> Result<(), Failure> {
    if !stdout().is_terminal() {
        return print_json_line(json);
    }
    let value: serde_json::Value =
        serde_json::from_str(json.get()).context("the response is not JSON")?;
    print(&escape_json(&format!("{value:#}")))
}

/// Prints JSON on stdout, as it is formatted.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn print_json_line(json: &RawValue) -> Result<(), Failure> {
    print(&escape_json(json.get()))
}

/// Prints a text on stdout that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct PieceWriter {
    /// The last character, which may be an emoji that the next piece continues.
    last: Option<char>,
}

impl PieceWriter {
    /// Prints the next piece: unmodified into a pipe.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn print(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let mut out = stdout().lock();
        let written = if out.is_terminal() {
            out.write_all(self.escape(piece).as_bytes())
        } else {
            out.write_all(piece)
        };
        written
            .and_then(|()| out.flush())
            .map_err(|error| Failure::general(format!("cannot write to stdout: {error}")))
    }

    fn escape(&mut self, piece: &[u8]) -> String {
        let text = String::from_utf8_lossy(piece);
        let escaped = escape_after(self.last, &text).into_owned();
        self.last = text.chars().next_back().or(self.last);
        escaped
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn color_is_ours_and_text_is_escaped() {
        let parts = [("a\u{1b}[31m ", None), ("failed", Some(Color::Red))];
        assert_eq!(colored(&parts, false), "a\\u{1b}[31m failed");
        let expected = "a\\u{1b}[31m \u{1b}[31mfailed\u{1b}[0m";
        assert_eq!(colored(&parts, true), expected);
    }

    #[test]
    fn pieces_are_escaped_like_the_whole_text() {
        let mut writer = PieceWriter::default();
        let pieces = ["I ❤", "\u{fe0f} you", "\u{1b}[2J\u{9b}31m", "\u{202e}\n"];
        let escaped: String = pieces.map(|piece| writer.escape(piece.as_bytes())).concat();
        assert_eq!(escaped, "I ❤\u{fe0f} you\\u{1b}[2J\\u{9b}31m\\u{202e}\n");
    }

    /// Text for a terminal goes through this module. The rest is for programs, or is audio.
    #[test]
    fn only_programs_receive_unescaped_output() {
        fn writers(folder: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    writers(&path, found);
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                let writes = |line: &str| {
                    let names = ["stdout()", "stderr()", "println!", "print!"];
                    let is_checked = line.contains("is_terminal()") || line.contains("Command::");
                    names.iter().any(|name| line.contains(name)) && !is_checked
                };
                if text.lines().any(writes) {
                    let name = path.strip_prefix(SOURCES).unwrap();
                    found.push(name.display().to_string());
                }
            }
        }
        const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut found = Vec::new();
        writers(Path::new(SOURCES), &mut found);
        found.sort();
        let expected = [
            "commands/convert.rs",
            "commands/read_skills_book.rs",
            "commands/stdio.rs",
            // Its prompt.
            "commands/talk.rs",
            "device/speaker.rs",
            "exit.rs",
            // Clears the screen.
            "output.rs",
            // Escapes its questions.
            "prompt.rs",
        ];
        assert_eq!(found, expected);
    }
}
