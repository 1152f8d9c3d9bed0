//! `cargo xtask first-hour`: does what a new user does in the first hour, on terminals, and checks what
//! each command prints.
//!
//! It starts from nothing: a bare Debian with git and a Rust toolchain, a clone, and `./up`. With
//! `--here` the same commands run on this machine, in an empty folder.

mod machine;
mod terminal;

use std::{
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Args;

use self::{machine::Machine, terminal::Terminal};
use crate::packages;

/// The transcript of a run from nothing.
const TRANSCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/first-hour.md");
/// Timeout of a step; the build takes most of it.
const STEP_TIMEOUT: Duration = Duration::from_secs(3600);

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run the debug build on this machine, instead of `./up` in a bare Debian
    #[arg(long)]
    here: bool,
    /// Write the transcript to docs/first-hour.md
    #[arg(long, conflicts_with = "here")]
    write: bool,
}

/// A command of a user, and how it is known to have worked.
struct Step {
    title: &'static str,
    /// `{call}` is the last id of a call that any command printed.
    command: &'static str,
    end: End,
    /// Parts of what the command prints.
    prints: &'static [&'static str],
}

/// When a step is over.
enum End {
    /// The command exits with this code.
    Exit(u32),
    /// The command has printed `until`, and goes on in its terminal until Ctrl-C ends it.
    Runs {
        until: &'static str,
        /// The title of what it prints after that.
        afterwards: &'static str,
    },
}

const CLONE: Step = Step {
    title: "Get the source",
    command: "git clone --quiet /source switchboard",
    end: End::Exit(0),
    prints: &[],
};

const STEPS: &[Step] = &[
    Step {
        title: "Start everything",
        command: "./up",
        end: End::Runs {
            until: "README.md has the next steps",
            afterwards: "Stop everything with Ctrl-C, in the first terminal",
        },
        prints: &["Switchboard is ready", "127.0.0.1:"],
    },
    Step {
        title: "Connect a device, in a second terminal",
        command: "target/quick/switchboard device --id toy-1",
        end: End::Runs {
            until: "online",
            afterwards: "What the second terminal shows, until Ctrl-C",
        },
        prints: &["toy-1"],
    },
    Step {
        title: "Call it, from a third terminal",
        command: r#"target/quick/switchboard call toy-1 get_current_time '{"format":"detailed"}'"#,
        end: End::Exit(0),
        prints: &["20"],
    },
    Step {
        title: "Talk to it",
        command: "target/quick/switchboard device --id toy-2 --say 'What time is it?'",
        end: End::Exit(0),
        prints: &["20"],
    },
    Step {
        title: "Make a key for a program of yours",
        command: "target/quick/switchboard keys create laptop --scope call,read",
        end: End::Exit(0),
        prints: &["sb_"],
    },
    Step {
        title: "Make a call that cannot work, without waiting for its end",
        command: r#"target/quick/switchboard call toy-1 echo '{"text":5}' --async"#,
        end: End::Exit(0),
        prints: &["call_"],
    },
    Step {
        title: "Look at the calls",
        command: "target/quick/switchboard calls list",
        end: End::Exit(0),
        prints: &["toy-1", "echo", "invalid"],
    },
    Step {
        title: "Find out why the call failed",
        command: "target/quick/switchboard calls wait {call}",
        end: End::Exit(2),
        prints: &["invalid", "/text"],
    },
    Step {
        title: "Check the installation",
        command: "target/quick/switchboard doctor",
        end: End::Exit(0),
        prints: &[],
    },
];

/// What one command printed, and how long it took.
struct Record {
    title: &'static str,
    command: String,
    printed: String,
    took: Duration,
}

/// Runs every step.
///
/// # Errors
/// The first command that exits otherwise, or prints something else, than a user may expect.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let machine = match options.here {
        true => Machine::here(&packages::debug_binary())?,
        false => Machine::bare()?,
    };
    let mut records = Vec::new();
    let mut running = Vec::new();
    let clone = machine.is_bare().then_some(&CLONE);
    for next in clone.into_iter().chain(STEPS) {
        let record = step(&machine, next, &records, &mut running)?;
        println!("{:>7.1} s  {}", record.took.as_secs_f64(), record.title);
        records.push(record);
    }
    records.extend(stop(running)?);
    if options.write {
        let text = transcript(&records, &machine)?;
        fs::write(TRANSCRIPT, text).with_context(|| format!("cannot write {TRANSCRIPT}"))?;
    }
    Ok(())
}

fn step(
    machine: &Machine,
    step: &'static Step,
    records: &[Record],
    running: &mut Vec<(&'static Step, Terminal)>,
) -> anyhow::Result<Record> {
    let command = step.command.replace("{call}", &last_call(records));
    let began = Instant::now();
    let mut terminal = Terminal::open(machine.command(&command))?;
    let printed = match step.end {
        End::Exit(code) => {
            let (exit, printed) = terminal.finish(STEP_TIMEOUT)?;
            ensure!(
                exit == code,
                "`{command}` exited with {exit}, not {code}: {printed}"
            );
            printed
        }
        End::Runs { until, .. } => {
            let printed = terminal.read_until(until, STEP_TIMEOUT);
            let printed = printed.with_context(|| format!("`{command}`"))?;
            running.push((step, terminal));
            printed
        }
    };
    for part in step.prints {
        ensure!(
            printed.contains(part),
            "`{command}` printed no {part:?}: {printed}"
        );
    }
    Ok(Record {
        title: step.title,
        command,
        printed,
        took: began.elapsed(),
    })
}

/// Ends the running commands with Ctrl-C, the last one first.
fn stop(running: Vec<(&'static Step, Terminal)>) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for (step, mut terminal) in running.into_iter().rev() {
        let began = Instant::now();
        terminal.press_ctrl_c()?;
        let (exit, printed) = terminal.finish(STEP_TIMEOUT)?;
        let command = step.command;
        ensure!(
            exit == 0,
            "`{command}` exited with {exit} after Ctrl-C: {printed}"
        );
        if let End::Runs { afterwards, .. } = step.end {
            records.push(Record {
                title: afterwards,
                command: command.to_owned(),
                printed,
                took: began.elapsed(),
            });
        }
    }
    Ok(records)
}

fn last_call(records: &[Record]) -> String {
    let words = records.iter().rev().flat_map(|record| {
        record
            .printed
            .split(|end: char| !end.is_ascii_alphanumeric() && end != '_' && end != '-')
    });
    let mut ids = words.filter(|word| word.starts_with("call_"));
    ids.next().unwrap_or_default().to_owned()
}

fn transcript(records: &[Record], machine: &Machine) -> anyhow::Result<String> {
    let total: Duration = records.iter().map(|record| record.took).sum();
    let mut text = format!(
        "# The first hour\n\nWhat a new user sees on {}, with nothing but a shell, git and Rust {}.\n`cargo \
         xtask first-hour --write` runs every command in such a system and writes this page; it\nfails when \
         a command does. The whole takes {}, most of it the first build on {} cores.\n",
        machine.system()?,
        env!("CARGO_PKG_RUST_VERSION"),
        clock(total),
        std::thread::available_parallelism()?,
    );
    for record in records {
        write!(
            text,
            "\n## {}\n\n```console\n$ {}\n{}```\n\nTook {}.\n",
            record.title,
            record.command,
            masked(&without_packages(&record.printed)),
            clock(record.took),
        )?;
    }
    Ok(text)
}

/// A duration as people say it.
fn clock(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// What was printed, with `…` in place of the lines of a package manager.
fn without_packages(printed: &str) -> String {
    let mut text = String::new();
    let mut is_installing = false;
    for line in printed.lines() {
        if line.starts_with("switchboard: ") {
            let is_repeated = line.contains(": apt-get install ");
            if is_repeated {
                continue;
            }
            is_installing = line.starts_with("switchboard: installing ");
        } else if is_installing {
            if !text.ends_with("…\n") {
                text.push_str("…\n");
            }
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What was printed, without the secret part of API keys, and with an end of line.
fn masked(printed: &str) -> String {
    let mut text = String::new();
    for line in printed.trim_end().lines() {
        let mut rest = line;
        while let Some(at) = rest.find("sb_") {
            let (before, key) = rest.split_at(at + "sb_".len());
            // Base64url.
            let end = key.find(|end: char| !end.is_ascii_alphanumeric() && !"-_".contains(end));
            text.push_str(before);
            text.push('…');
            rest = key.get(end.unwrap_or(key.len())..).unwrap_or_default();
        }
        text.push_str(rest.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_left_out() {
        let printed = "switchboard: installing make with apt-get: make\nGet:1\nswitchboard: installing make: \
                       apt-get install --yes make\nUnpacking\nDone\nswitchboard: built\nready\n";
        let shown =
            "switchboard: installing make with apt-get: make\n…\nswitchboard: built\nready\n";
        assert_eq!(without_packages(printed), shown);
    }

    #[test]
    fn keys_are_masked() {
        assert_eq!(masked("key sb_a1_b-2, id\n\n"), "key sb_…, id\n");
    }

    #[test]
    fn last_id_of_a_call_is_found() {
        let record = |printed: &str| Record {
            title: "",
            command: String::new(),
            printed: printed.to_owned(),
            took: Duration::ZERO,
        };
        let records = [
            record("{\"call_id\":\"call_1\"}"),
            record("call_2 queued"),
            record(""),
        ];
        assert_eq!(last_call(&records), "call_2");
    }
}
