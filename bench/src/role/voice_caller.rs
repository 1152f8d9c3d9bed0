//! Toys that hold spoken conversations, and the providers that serve them. All are in one process, so
//! that times are measured with one clock.
//!
//! A toy sends a recording of a person at the rate at which it was recorded. Which of its frames ends
//! the utterance, and which interrupts an answer, is computed before with the detector of the edge. So
//! a latency contains neither the silence that ends an utterance nor what a frame takes to fill.

mod providers;
mod recording;

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, TaskId, next_seq};
use tokio::{
    task::JoinSet,
    time::{Interval, interval, timeout},
};

use super::{
    closed_loop::Caller,
    wire_devices::{self, WireDevice, WireFleet},
};
use recording::{FRAME, Recording};

/// Number of toys, one for each possible conversation at a time.
const MAX_TOYS: usize = 128;
const DIALOGUE_TIMEOUT: Duration = Duration::from_secs(20);
/// The toys start one after the other, as people do.
const STAGGER: Duration = Duration::from_millis(47);
/// Audio of an answer that a toy has before it plays it.
const LEAD: Duration = Duration::from_millis(300);
/// Frames of 2 s, which one operation of a stream has.
const STREAM_FRAMES: usize = 33;
/// Operations of silence within which an edge does not become idle.
const LISTENING_OPERATIONS: u64 = 6;
const TASK: TaskId = TaskId(*b"voice001");

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// From the frame that ends an utterance to the first audio of the answer, without the delays
    FirstAudio,
    /// How late the latest frame of an answer is
    LatestFrame,
    /// From the frame that interrupts an answer to its end
    Stop,
    /// Nothing: 2 s of silence are sent
    Listening,
    /// Nothing: 2 s of speech are sent
    Talking,
    /// Nothing: 2 s of an answer are received
    Speaking,
}

/// Listen address of the providers, and options of the toys.
#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// `HOST:PORT` of the providers
    #[arg(long)]
    listen: SocketAddr,
    /// A person's speech, 16 kHz, signed 16-bit samples
    #[arg(long)]
    recording: PathBuf,
    #[arg(long)]
    figure: Figure,
    /// Milliseconds of recognition, of the model and of synthesis
    #[arg(long, num_args = 3, default_values_t = [0, 0, 0])]
    delays: Vec<u64>,
    #[command(flatten)]
    devices: wire_devices::Options,
}

/// A caller that repeats dialogues.
pub(super) struct VoiceCaller {
    figure: Figure,
    recording: Recording,
    delay: Duration,
    fleet: WireFleet,
    /// Each with the seq of its next frame.
    toys: Vec<tokio::sync::Mutex<Option<(WireDevice, u16)>>>,
    // Aborts the providers when the caller is dropped.
    _providers: JoinSet<()>,
}

impl VoiceCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        let delays = options.delays.iter().copied().map(Duration::from_millis);
        let [recognition, model, synthesis] = delays
            .collect::<Vec<_>>()
            .try_into()
            .ok()
            .context("three delays")?;
        // Long enough to be interrupted, and to be late.
        let answer = match options.figure {
            Figure::FirstAudio => Duration::from_secs(1),
            Figure::LatestFrame | Figure::Stop => Duration::from_secs(3),
            Figure::Listening | Figure::Talking | Figure::Speaking => Duration::from_secs(55),
        };
        let delays = providers::Delays {
            recognition,
            model,
            synthesis,
        };
        Ok(Self {
            figure: options.figure,
            recording: Recording::load(&options.recording)?,
            delay: recognition + model + synthesis,
            fleet: WireFleet::new(options.devices)?,
            toys: (0..MAX_TOYS).map(|_| Default::default()).collect(),
            _providers: providers::start(options.listen, delays, answer).await?,
        })
    }

    /// Opus in both directions, as toys send it.
    fn terms(&self) -> Value {
        let mode = match self.figure {
            Figure::Stop => "realtime",
            // A message that never ends.
            Figure::Talking => "manual",
            Figure::FirstAudio | Figure::LatestFrame | Figure::Listening | Figure::Speaking => {
                "auto"
            }
        };
        let opus = |rate: u32| json!({"codec": "opus", "rate": rate, "frame_ms": FRAME.as_millis() as u64});
        json!({"in": opus(16_000), "out": opus(24_000), "listen": mode})
    }

    async fn run_dialogue(&self, worker: usize, sequence: u64) -> anyhow::Result<Duration> {
        let slot = self.toys.get(worker);
        let slot = slot.with_context(|| format!("at most {MAX_TOYS} toys are supported"))?;
        let mut slot = slot.lock().await;
        if sequence == 0 {
            tokio::time::sleep(STAGGER * u32::try_from(worker)?).await;
        }
        // Nothing of an earlier round waits in a new connection.
        let (device, seq) = match slot.take().filter(|_| sequence > 0) {
            Some(toy) => toy,
            None => {
                let terms = self.terms();
                let dialled = self.fleet.dial_toy(u32::try_from(worker)?, &terms);
                (dialled.await?, 0)
            }
        };
        let mut toy = Toy {
            device,
            recording: &self.recording,
            ticks: interval(FRAME),
            seq,
        };
        let measured = timeout(DIALOGUE_TIMEOUT, toy.measure(self.figure, sequence)).await??;
        *slot = Some((toy.device, toy.seq));
        Ok(match self.figure {
            Figure::FirstAudio => measured.saturating_sub(self.delay),
            _ => measured,
        })
    }
}

impl Caller for VoiceCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        self.run_dialogue(worker, sequence).await.map(drop)
    }

    async fn timed_call(&self, worker: usize, sequence: u64) -> anyhow::Result<Duration> {
        self.run_dialogue(worker, sequence).await
    }
}

/// One dialogue of a device.
struct Toy<'a> {
    device: WireDevice,
    recording: &'a Recording,
    ticks: Interval,
    seq: u16,
}

impl Toy<'_> {
    /// Returns the figure of a dialogue, or the time that 2 s of a stream take.
    async fn measure(&mut self, figure: Figure, sequence: u64) -> anyhow::Result<Duration> {
        let began = Instant::now();
        match figure {
            Figure::FirstAudio => {
                let (ended, answered) = self.ask().await?;
                let first = ended.context("the answer begins before its question ends")?;
                self.receive_rest(answered).await?;
                return Ok(answered.saturating_duration_since(first));
            }
            Figure::LatestFrame => {
                let (_, answered) = self.ask().await?;
                return self.receive_rest(answered).await;
            }
            Figure::Stop => {
                self.ask().await?;
                return self.interrupt().await;
            }
            Figure::Listening => {
                if sequence.is_multiple_of(LISTENING_OPERATIONS) {
                    self.listen().await?;
                }
                self.send_stream(self.recording.silence()).await?;
            }
            Figure::Talking => self.send_stream(self.recording.speech()).await?,
            Figure::Speaking => self.receive_stream(sequence).await?,
        }
        Ok(began.elapsed())
    }

    /// Asks. Returns when the frame that ends the question was written, and when the answer began.
    async fn ask(&mut self) -> anyhow::Result<(Option<Instant>, Instant)> {
        self.listen().await?;
        let ended = self.speak(self.recording.end, Kind::Audio).await?;
        Ok((ended, Instant::now()))
    }

    /// Interrupts an answer. Returns the time to its end.
    async fn interrupt(&mut self) -> anyhow::Result<Duration> {
        let decided = self
            .speak(self.recording.interruption, Kind::Cancel)
            .await?;
        let stopped = Instant::now();
        let after = self.device.next_frame().await?;
        ensure!(after == Kind::End, "{after:?} after CANCEL");
        let decided = decided.context("the answer ends before it is interrupted")?;
        Ok(stopped.saturating_duration_since(decided))
    }

    /// Sends 2 s of audio.
    async fn send_stream(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        self.ticks.reset_immediately();
        for frame in frames.iter().cycle().take(STREAM_FRAMES) {
            self.ticks.tick().await;
            self.device
                .send_to(Kind::Audio, TASK, self.seq, frame)
                .await?;
            self.seq = next_seq(self.seq);
        }
        Ok(())
    }

    /// Receives 2 s of an answer, and asks again when it ends.
    async fn receive_stream(&mut self, sequence: u64) -> anyhow::Result<()> {
        let mut has_answer = sequence > 0;
        let mut received = 0;
        while received < STREAM_FRAMES {
            if !has_answer {
                self.ask().await?;
                has_answer = true;
            }
            match self.device.next_frame().await? {
                Kind::Audio => received += 1,
                Kind::End => has_answer = false,
                _ => {}
            }
        }
        Ok(())
    }

    async fn listen(&mut self) -> anyhow::Result<()> {
        let listen = json!({"listen": "start"}).to_string();
        self.device
            .send_to(Kind::Voice, TASK, 0, listen.as_bytes())
            .await
    }

    /// Speaks until a frame of this kind arrives. Returns when the frame of this index was written.
    async fn speak(&mut self, index: usize, until: Kind) -> anyhow::Result<Option<Instant>> {
        let mut written = None;
        let mut frames = self.recording.frames.iter().enumerate();
        self.ticks.reset_immediately();
        loop {
            tokio::select! {
                biased;
                kind = self.device.next_frame() => if kind? == until {
                    return Ok(written);
                },
                // After this frame, a person is silent and a toy sends nothing.
                _ = self.ticks.tick(), if written.is_none() => {
                    let Some((sent, frame)) = frames.next() else {
                        bail!("no {until:?} for the recording");
                    };
                    self.device.send_to(Kind::Audio, TASK, self.seq, frame).await?;
                    self.seq = next_seq(self.seq);
                    written = (sent == index).then(Instant::now);
                }
            }
        }
    }

    /// Receives an answer to its end. Returns how late its latest frame was.
    async fn receive_rest(&mut self, first: Instant) -> anyhow::Result<Duration> {
        let (mut latest, mut due) = (Duration::ZERO, FRAME);
        loop {
            match self.device.next_frame().await? {
                Kind::Audio => {
                    let late = first.elapsed().saturating_sub(due.saturating_sub(LEAD));
                    latest = latest.max(late);
                    due += FRAME;
                }
                Kind::End => return Ok(latest),
                _ => {}
            }
        }
    }
}
