//! `switchboard talk`: a conversation with an NPC in the terminal.
//!
//! Invariant: text is printed as it arrives, not when the response is complete.

mod voice;

use std::{
    io::{IsTerminal as _, Write as _, stderr, stdin},
    process::ExitCode,
};

use clap_complete::ArgValueCandidates;
use serde::Deserialize;
use serde_json::json;
use switchboard_protocol::id::NpcId;
use tokio::{io::AsyncBufReadExt as _, signal};

use crate::{
    api::{Api, ApiArguments},
    commands::device::PortArguments,
    device::Listening,
    events::Event,
    exit::{self, Failure, PieceWriter, print_stderr},
    resources::{complete_ids, table::NPCS},
};

/// Talks to an NPC from the terminal.
///
/// Sends each line of stdin to the NPC and prints the response as it arrives. The NPC can call the
/// services of its devices; each call is reported on stderr. Without --npc, the default NPC of the
/// organisation is used, or its only NPC.
///
/// With --voice, the microphone and the loudspeaker of this machine are used instead, until Ctrl-C.
/// The terminal connects as the device talk-HOST-NPC, which becomes one of the NPC's devices, and
/// offers the services of `switchboard device`. Prints what was understood and the answers.
///
/// Exit codes: 0 ended normally, 1 refused or not reachable, 64 invalid settings, 69 no program for
/// sound is installed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The NPC to talk to: its id, the beginning of it, or its name
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&NPCS)))]
    npc: Option<String>,
    /// Send only this text, print the response and exit
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    /// Name of the user who talks, as in the NPC's memories, for example user:anna; new memories
    /// are stored under this name
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Speak and listen with pw-record and pw-play (PipeWire), parecord and paplay (PulseAudio),
    /// arecord and aplay (ALSA), or rec and play (SoX)
    #[arg(long, conflicts_with_all = ["say", "subject"])]
    voice: bool,
    /// When a message begins and ends: detected by the server, which does not listen while it answers;
    /// with Enter, for one message; or `realtime`, in which answers can be interrupted, for headphones
    #[arg(long, value_enum, default_value_t = Listening::Auto, requires = "voice")]
    listen: Listening,
    #[command(flatten)]
    port: PortArguments,
    #[command(flatten)]
    api: ApiArguments,
}

/// An open conversation.
struct Conversation<'a> {
    api: Api,
    path: String,
    subject: Option<&'a str>,
    /// Id of the conversation, after the first response.
    conversation: Option<String>,
    writer: PieceWriter,
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

#[derive(Deserialize)]
struct Org {
    default_npc_id: Option<NpcId>,
}

#[derive(Deserialize)]
struct NpcPage {
    npcs: Vec<ListedNpc>,
}

#[derive(Deserialize)]
struct ListedNpc {
    id: NpcId,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.voice {
        return voice::run(&arguments).await;
    }
    let api = arguments.api.connect()?;
    let npc = arguments.npc(&api).await?;
    let mut talk = Conversation {
        api,
        path: format!("/v1/npcs/{npc}/chat"),
        subject: arguments.subject.as_deref(),
        conversation: None,
        writer: PieceWriter::default(),
    };
    if let Some(text) = &arguments.say {
        talk.send(text).await?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::select! {
        ended = talk.run() => ended?,
        _ = signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// The NPC to talk to.
    async fn npc(&self, api: &Api) -> Result<NpcId, Failure> {
        match &self.npc {
            Some(npc) => NPCS.resolve_as(api, npc).await,
            None => default_npc(api).await,
        }
    }
}

/// The organisation's default NPC, or its only one.
async fn default_npc(api: &Api) -> Result<NpcId, Failure> {
    let org: Org = api.get("/v1/org").await.map_err(Failure::general)?;
    if let Some(npc) = org.default_npc_id {
        return Ok(npc);
    }
    let page: NpcPage = api
        .get("/v1/npcs?limit=2")
        .await
        .map_err(Failure::general)?;
    match page.npcs.as_slice() {
        [only] => Ok(only.id),
        [] => Err(Failure::usage(
            "the organisation has no NPC; create one with `switchboard npcs create`",
        )),
        _ => Err(Failure::usage(
            "the organisation has several NPCs and no default: name one with --npc \
             (`switchboard npcs list` lists them)",
        )),
    }
}

impl Conversation<'_> {
    /// Sends each line of stdin. On a terminal an error is reported and the conversation continues;
    /// a script ends.
    async fn run(&mut self) -> Result<(), Failure> {
        let is_interactive = stdin().is_terminal();
        let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
        loop {
            if is_interactive {
                // The prompt is optional.
                let _ = write!(stderr(), "> ").and_then(|()| stderr().flush());
            }
            let line = lines.next_line().await.map_err(Failure::general)?;
            match line {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => match self.send(&line).await {
                    Err(failure) if is_interactive => {
                        failure.report();
                    }
                    sent => sent?,
                },
                None => return Ok(()),
            }
        }
    }

    async fn send(&mut self, text: &str) -> Result<(), Failure> {
        let mut body = json!({"text": text});
        if let Some(conversation) = &self.conversation {
            body["conversation_id"] = json!(conversation);
        }
        if let Some(subject) = self.subject {
            body["subject"] = json!(subject);
        }
        let opened = self.api.events(&self.path, body.to_string().into_bytes());
        let mut events = opened.await.map_err(Failure::general)?;
        loop {
            let event = events.next().await;
            let event = event.map_err(|error| Failure::general(self.api.unreachable(error)))?;
            let Some(event) = event else {
                let broken = self.api.unreachable("the response is incomplete");
                return Err(Failure::general(broken));
            };
            if self.handle(&event)? {
                return Ok(());
            }
        }
    }

    /// Handles an event; returns whether it was the last one.
    fn handle(&mut self, event: &Event) -> Result<bool, Failure> {
        match event.name.as_str() {
            "text" => {
                let piece = self.read::<Text>(event)?.text;
                self.writer.print(piece.as_bytes())?;
            }
            "call" => {
                let call: Call = self.read(event)?;
                print_stderr(&format!("({} on {})", call.tool, call.device_id));
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
        read.map_err(|error| Failure::general(self.api.unreachable(error)))
    }
}
