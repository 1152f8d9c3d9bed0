//! A command on a terminal of its own, as a person sees it.

use std::{
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// The size of the terminal, as most people have it.
const SIZE: &str = "stty rows 24 cols 100";
/// Timeout for a command to stop after Ctrl-C.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A running command; it ends with the value.
pub(super) struct Terminal {
    script: Child,
    keyboard: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// What was read and not yet returned.
    unread: Vec<u8>,
}

impl Terminal {
    /// Starts a command line of a shell.
    pub(super) fn open(command: Command) -> anyhow::Result<Self> {
        let mut line = format!("{SIZE}; exec");
        for word in std::iter::once(command.get_program()).chain(command.get_args()) {
            let word = word.to_str().context("a command that is not UTF-8")?;
            line = format!("{line} '{}'", word.replace('\'', r"'\''"));
        }
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            script.current_dir(folder);
        }
        let script = script
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = script.spawn().context("cannot start `script`")?;
        let keyboard = script.stdin.take().context("no stdin")?;
        let mut screen = script.stdout.take().context("no stdout")?;
        let (sender, output) = sync_channel(64);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                let read = buffer.get(..length).unwrap_or_default();
                if sender.send(read.to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            script,
            keyboard,
            output,
            unread: Vec::new(),
        })
    }

    /// What the screen shows once `part` is on it.
    ///
    /// # Errors
    /// The command ends, or the time does, before it prints the part.
    pub(super) fn read_until(&mut self, part: &str, within: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + within;
        loop {
            let shown = screen(&self.unread);
            if let Some(at) = shown.find(part)
                && shown.get(at..).is_some_and(|rest| rest.contains('\n'))
            {
                self.unread.clear();
                return Ok(shown);
            }
            match self.read(deadline) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => bail!("no {part:?} in time: {shown}"),
                Err(RecvTimeoutError::Disconnected) => bail!("ended without {part:?}: {shown}"),
            }
        }
    }

    /// The exit code of the command and what the screen shows after its end.
    ///
    /// # Errors
    /// The time ends before the command.
    pub(super) fn finish(&mut self, within: Duration) -> anyhow::Result<(u32, String)> {
        let deadline = Instant::now() + within;
        loop {
            match self.read(deadline) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("still runs: {}", screen(&self.unread)),
            }
        }
        let code = self.script.wait()?.code().context("`script` was killed")?;
        Ok((u32::try_from(code)?, screen(&self.unread)))
    }

    pub(super) fn press_ctrl_c(&mut self) -> anyhow::Result<()> {
        Ok(self.keyboard.write_all(b"\x03")?)
    }

    fn read(&mut self, deadline: Instant) -> Result<(), RecvTimeoutError> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.unread.extend(self.output.recv_timeout(left)?);
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A command that a failed step leaves behind stops as its user would stop it.
        if let Ok(None) = self.script.try_wait()
            && self.press_ctrl_c().is_ok()
        {
            let _ = self.finish(STOP_TIMEOUT);
        }
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// The lines as they stay on the screen: without colours, and without what a carriage return overwrites.
fn screen(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let text = anstream::adapter::strip_str(&text).to_string();
    let lines = text.split('\n').map(|line| {
        let line = line.trim_end_matches('\r');
        line.rsplit('\r').next().unwrap_or_default()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwritten_text_and_colours_are_not_shown() {
        assert_eq!(
            screen(b"1 of 2\r2 of 2\r\n\x1b[1mdone\x1b[0m\r\n"),
            "2 of 2\ndone\n"
        );
    }

    #[test]
    fn command_runs_on_a_terminal() {
        let mut command = Command::new("sh");
        command.args(["-c", "test -t 0 && test -t 1 && echo 'it is' && exit 3"]);
        let (code, printed) = Terminal::open(command)
            .unwrap()
            .finish(Duration::from_secs(30))
            .unwrap();
        assert_eq!((code, printed.as_str()), (3, "it is\n"));
    }
}
