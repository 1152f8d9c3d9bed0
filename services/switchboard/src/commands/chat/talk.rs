//! `switchboard chat --npc ID`: a conversation with an NPC in the terminal.
//! Never: an answer held back until it is whole.

use std::{
    io::{IsTerminal as _, Write as _, stderr, stdin},
    process::ExitCode,
};

use serde::Deserialize;
use serde_json::json;
use switchboard_protocol::id::NpcId;
use tokio::{io::AsyncBufReadExt as _, signal};

use crate::{
    api::{Api, ApiArguments},
    events::Event,
    exit::{self, Failure, say},
};

/// Who is talked to, and what is said.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// Talk to this NPC instead of answering devices
    #[arg(long, value_name = "ID")]
    pub(crate) npc: Option<NpcId>,
    /// Say only this, print the answer, and end
    #[arg(long, value_name = "TEXT", requires = "npc")]
    say: Option<String>,
    /// Who talks, as the NPC's memories name them, such as user:anna; what is worth keeping is remembered of them
    #[arg(long, value_name = "NAME", requires = "npc")]
    subject: Option<String>,
}

/// A conversation under way.
struct Talk<'a> {
    api: Api,
    path: String,
    subject: Option<&'a str>,
    /// Which conversation it is, once something was answered.
    conversation: Option<String>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
struct Call {
    device_id: String,
    tool: String,
}

#[derive(Deserialize)]
struct End {
    conversation_id: String,
}

#[derive(Deserialize)]
struct Problem {
    detail: String,
    conversation_id: Option<String>,
}

pub(super) async fn run(
    npc: NpcId,
    arguments: &Arguments,
    api: &ApiArguments,
) -> Result<ExitCode, Failure> {
    let mut talk = Talk {
        api: api.connect()?,
        path: format!("/v1/npcs/{npc}/chat"),
        subject: arguments.subject.as_deref(),
        conversation: None,
    };
    if let Some(words) = &arguments.say {
        talk.say(words).await?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::select! {
        ended = talk.run() => ended?,
        _ = signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

impl Talk<'_> {
    /// Says each line of stdin, until its end. Who sits there may say something else after a failure; a script does not go on.
    async fn run(&mut self) -> Result<(), Failure> {
        let is_asked = stdin().is_terminal();
        let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
        loop {
            if is_asked {
                // A prompt that nobody sees is missed by nobody.
                let _ = write!(stderr(), "> ").and_then(|()| stderr().flush());
            }
            let line = lines.next_line().await.map_err(Failure::general)?;
            match line {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => match self.say(&line).await {
                    Err(failure) if is_asked => {
                        failure.report();
                    }
                    said => said?,
                },
                None => return Ok(()),
            }
        }
    }

    async fn say(&mut self, words: &str) -> Result<(), Failure> {
        let mut body = json!({"text": words});
        if let Some(conversation) = &self.conversation {
            body["conversation_id"] = json!(conversation);
        }
        if let Some(subject) = self.subject {
            body["subject"] = json!(subject);
        }
        let asked = self.api.events(&self.path, body.to_string().into_bytes());
        let mut events = asked.await.map_err(Failure::general)?;
        loop {
            let event = events.next().await;
            let event = event.map_err(|error| Failure::general(self.api.unusable(error)))?;
            let Some(event) = event else {
                let broken = self.api.unusable("the answer broke off");
                return Err(Failure::general(broken));
            };
            if self.hear(&event)? {
                return Ok(());
            }
        }
    }

    /// Shows an event; whether it was the last.
    fn hear(&mut self, event: &Event) -> Result<bool, Failure> {
        match event.name.as_str() {
            "text" => exit::print_bytes(self.read::<Text>(event)?.text.as_bytes())?,
            "call" => {
                let call: Call = self.read(event)?;
                say(&format!("({} on {})", call.tool, call.device_id));
            }
            "end" => {
                self.conversation = Some(self.read::<End>(event)?.conversation_id);
                exit::print("")?;
                return Ok(true);
            }
            "error" => {
                exit::print("")?;
                let problem: Problem = self.read(event)?;
                self.conversation = problem.conversation_id.or(self.conversation.take());
                return Err(Failure::general(problem.detail));
            }
            _ => {}
        }
        Ok(false)
    }

    fn read<'de, T: Deserialize<'de>>(&self, event: &'de Event) -> Result<T, Failure> {
        let read = serde_json::from_str(&event.data);
        read.map_err(|error| Failure::general(self.api.unusable(error)))
    }
}
