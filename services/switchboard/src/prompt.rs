//! Questions to a person at a terminal.

use std::io::{IsTerminal as _, stderr, stdin};

use console::Term;
use secrecy::SecretString;

use crate::exit::{self, Failure};

/// Asks before a change that cannot be undone. Programs are not asked: only a terminal is.
///
/// # Errors
/// When the answer is not yes.
pub(crate) fn confirm(question: &str, is_confirmed: bool) -> Result<(), Failure> {
    if is_confirmed || !stdin().is_terminal() {
        return Ok(());
    }
    if !stderr().is_terminal() {
        let text = "a question cannot be asked, as stderr is not a terminal; confirm with --yes";
        return Err(Failure::usage(text));
    }
    let term = Term::stderr();
    let question = format!("{} [y/N] ", exit::escaped(question));
    let asked = term.write_str(&question).and_then(|()| term.read_line());
    let answer = asked.map_err(unusable)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::general("nothing was changed")),
    }
}

/// Asks for a secret, without showing it; `None` without a terminal.
///
/// # Errors
/// When the terminal cannot be read.
pub(crate) fn secret(question: &str) -> Result<Option<SecretString>, Failure> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(None);
    }
    let term = Term::stderr();
    let asked = term.write_str(&format!("{question}: "));
    let secret = asked
        .and_then(|()| term.read_secure_line())
        .map_err(unusable)?;
    Ok(Some(secret.trim().into()))
}

fn unusable(error: std::io::Error) -> Failure {
    Failure::general(format!("cannot use the terminal: {error}"))
}
