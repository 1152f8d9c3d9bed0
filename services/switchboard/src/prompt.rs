//! Questions to a user at a terminal.
//!
//! Invariant: the settings of the terminal are restored on every way out.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal as _, stderr, stdin},
    os::unix::fs::OpenOptionsExt as _,
};

use console::Term;
use nix::{
    fcntl::OFlag,
    sys::{
        signal::Signal,
        termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr},
    },
    unistd::ttyname,
};
use secrecy::SecretString;
use tokio::{
    io::AsyncReadExt as _,
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
};

use crate::exit::{self, Failure};

/// Maximum size of a secret.
const MAX_SECRET_BYTES: usize = 8 * 1024;
/// Exit code of a program that a signal ended, without the signal's number.
const SIGNAL_EXIT_CODE: u8 = 128;

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

/// Runs `work` until it completes or a signal ends it. Either way everything that `work` holds is
/// dropped: a terminal shows again what is typed.
///
/// # Errors
/// The failure of `work`; after a signal, one with the exit code that shells use: 128 and its number.
pub(crate) async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let listen = |kind: SignalKind| signal(kind).map_err(unusable);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let number = tokio::select! {
        done = work => return done,
        _ = interrupt.recv() => Signal::SIGINT,
        _ = quit.recv() => Signal::SIGQUIT,
        _ = terminate.recv() => Signal::SIGTERM,
        _ = hangup.recv() => Signal::SIGHUP,
    };
    let code = u8::try_from(number as i32).unwrap_or_default();
    Err(Failure::with_code(
        SIGNAL_EXIT_CODE.saturating_add(code),
        format!("ended by {number}"),
    ))
}

/// Asks for a secret, without showing it; `None` without a terminal. To be run within
/// [`until_interrupted`].
///
/// # Errors
/// When the terminal cannot be read, or nothing is entered.
pub(crate) async fn secret(question: &str) -> Result<Option<SecretString>, Failure> {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(None);
    }
    let mut input = HiddenInput::begin().map_err(unusable)?;
    let question_text = format!("{question}: ");
    Term::stderr().write_str(&question_text).map_err(unusable)?;
    let line = input.line().await.map_err(unusable)?;
    match line.trim() {
        "" => Err(Failure::usage(format!("{question}: nothing was entered"))),
        secret => Ok(Some(secret.into())),
    }
}

/// The terminal of stdin, which does not show what is typed until this is dropped.
struct HiddenInput {
    terminal: File,
    before: Termios,
    /// Whether a line was entered, which the terminal ends itself.
    is_answered: bool,
}

impl HiddenInput {
    fn begin() -> io::Result<Self> {
        // Opened again: whether reads block is a property that all users of stdin share.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(ttyname(stdin())?)?;
        let before = tcgetattr(&file)?;
        let mut hidden = before.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        hidden.local_flags.insert(LocalFlags::ECHONL);
        tcsetattr(&file, SetArg::TCSANOW, &hidden)?;
        Ok(Self {
            terminal: file,
            before,
            is_answered: false,
        })
    }

    /// Reads a line, or what is there at Ctrl-D.
    async fn line(&mut self) -> io::Result<String> {
        // A terminal is read like a pipe: it is ready once there is a line.
        let mut input = pipe::Receiver::from_file_unchecked(self.terminal.try_clone()?)?;
        let mut line = Vec::new();
        loop {
            let read = input.read_buf(&mut line).await?;
            self.is_answered = line.ends_with(b"\n");
            if read == 0 || self.is_answered {
                return String::from_utf8(line).map_err(io::Error::other);
            }
            if line.len() > MAX_SECRET_BYTES {
                return Err(io::Error::other(format!(
                    "a line of more than {MAX_SECRET_BYTES} bytes"
                )));
            }
        }
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A terminal that is gone has no settings to restore.
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before);
        if !self.is_answered {
            let _ = Term::stderr().write_line("");
        }
    }
}

fn unusable(error: std::io::Error) -> Failure {
    Failure::general(format!("cannot use the terminal: {error}"))
}
