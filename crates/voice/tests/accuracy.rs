//! How accurately utterances of people are found, alone and in noise. The recordings are installed by
//! `./check`: human speech of the Debian package `pocketsphinx-testdata`, and the ambiences of the Python
//! package `livekit-agents`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{fs, path::PathBuf};

use switchboard_voice::{
    RATE, Resampler, Segment, Segmenter, SegmenterSettings, activity::GatedSilero, milliseconds,
};

const SPEECH: [&str; 12] = [
    "cards/001.wav",
    "cards/002.wav",
    "cards/003.wav",
    "cards/004.wav",
    "cards/005.wav",
    "librivox/sense_and_sensibility_01_austen_64kb-0870.wav",
    "librivox/sense_and_sensibility_01_austen_64kb-0880.wav",
    "librivox/sense_and_sensibility_01_austen_64kb-0890.wav",
    "librivox/sense_and_sensibility_01_austen_64kb-0930.wav",
    "goforward.raw",
    "numbers.raw",
    "something.raw",
];
/// Silence between two utterances.
const GAP_S: usize = 2;
/// The end of an utterance is found within this time, in all cases but one of twenty.
const MAX_ERROR_MS: u64 = 700;
/// A recording is quieter than this part of its loudest 20 ms before and after its speech.
const QUIET: f64 = 0.03;
const WINDOW: usize = RATE as usize / 50;
/// The root of the mean square of the samples of a recording.
const LOUDNESS: f64 = 2_000.0;

fn speech_folder() -> PathBuf {
    let folder = std::env::var_os("SWITCHBOARD_SPEECH_SAMPLES");
    folder.map_or_else(|| "/usr/share/pocketsphinx/test/data".into(), PathBuf::from)
}

/// The folder of the virtual environment that `cargo xtask clients` installs.
fn noise_file(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let libraries = target.join("clients/speech-noise/lib");
    let python = fs::read_dir(&libraries)
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; run `cargo xtask clients`",
                libraries.display()
            )
        })
        .next();
    let packages = python.unwrap().unwrap().path().join("site-packages");
    packages.join("livekit/agents/resources").join(name)
}

/// The samples of a recording with 16 kHz, raw or as a WAV file. All are equally loud.
fn recording(name: &str) -> Vec<i16> {
    let recording = read(name);
    let factor = LOUDNESS / power(&recording).sqrt();
    let samples = recording
        .iter()
        .map(|sample| (f64::from(*sample) * factor) as i16);
    samples.collect()
}

fn read(name: &str) -> Vec<i16> {
    let path = speech_folder().join(name);
    let bytes = fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; install pocketsphinx-testdata", path.display())
    });
    match hound::WavReader::new(bytes.as_slice()) {
        Ok(reader) => {
            assert_eq!(
                (reader.spec().sample_rate, reader.spec().channels),
                (RATE, 1),
                "{name}"
            );
            reader.into_samples().map(Result::unwrap).collect()
        }
        Err(_) => bytes
            .as_chunks()
            .0
            .iter()
            .copied()
            .map(i16::from_le_bytes)
            .collect(),
    }
}

/// The samples of an Ogg Vorbis file, mono at 16 kHz.
fn noise(name: &str) -> Vec<i16> {
    let path = noise_file(name);
    let file = fs::File::open(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask clients`", path.display()));
    let mut reader = lewton::inside_ogg::OggStreamReader::new(file).unwrap();
    let channels = usize::from(reader.ident_hdr.audio_channels);
    let mut resampler = Resampler::new(reader.ident_hdr.audio_sample_rate, RATE);
    let mut pcm = Vec::new();
    while let Some(samples) = reader.read_dec_packet_itl().unwrap() {
        let mono = samples.chunks(channels).map(|frame| frame[0]);
        resampler.convert(&mono.collect::<Vec<_>>(), &mut pcm);
    }
    resampler.finish(&mut pcm);
    pcm
}

fn power(pcm: &[i16]) -> f64 {
    pcm.iter()
        .map(|sample| f64::from(*sample).powi(2))
        .sum::<f64>()
        / pcm.len() as f64
}

/// All recordings with gaps between them, and where the speech of each begins and ends.
fn speech() -> (Vec<i16>, Vec<(u64, u64)>) {
    let mut pcm = vec![0; GAP_S * RATE as usize];
    let mut truth = Vec::new();
    for name in SPEECH {
        let recording = recording(name);
        let levels: Vec<f64> = recording
            .chunks(WINDOW)
            .map(|window| power(window).sqrt())
            .collect();
        let loudest = levels.iter().copied().fold(0.0, f64::max);
        let is_loud = |level: &f64| *level > QUIET * loudest;
        let first = levels.iter().position(is_loud).unwrap() * WINDOW;
        let last = (levels.iter().rposition(is_loud).unwrap() + 1) * WINDOW;
        truth.push((
            milliseconds((pcm.len() + first) as u64),
            milliseconds((pcm.len() + last) as u64),
        ));
        pcm.extend(recording);
        pcm.resize(pcm.len() + GAP_S * RATE as usize, 0);
    }
    (pcm, truth)
}

/// Adds noise, so many decibels quieter than the speech.
fn mix(speech: &[i16], noise: &[i16], decibels: f64) -> Vec<i16> {
    let factor = LOUDNESS / power(noise).sqrt() * 10_f64.powf(-decibels / 20.0);
    let noise = noise
        .iter()
        .cycle()
        .map(|sample| f64::from(*sample) * factor);
    let mixed = speech.iter().zip(noise);
    mixed
        .map(|(sample, noise)| (f64::from(*sample) + noise) as i16)
        .collect()
}

/// Where utterances were found to begin and to end, in milliseconds.
fn found(pcm: &[i16]) -> Vec<(u64, u64)> {
    let mut segmenter = Segmenter::new(GatedSilero::new(), SegmenterSettings::default());
    let (mut found, mut began) = (Vec::new(), 0);
    for (number, piece) in pcm.chunks(960).enumerate() {
        let now = milliseconds(((number + 1) * 960) as u64);
        segmenter.push(piece, &mut |segment| match segment {
            Segment::Started => began = now,
            Segment::Ended { .. } => found.push((began, now)),
            _ => {}
        });
    }
    found
}

/// The 95th percentile of the distance between the ends of utterances and those that were found, and how
/// many utterances were found.
fn end_error(pcm: &[i16], truth: &[(u64, u64)]) -> (u64, usize) {
    let found = found(pcm);
    let mut errors: Vec<u64> = truth
        .iter()
        .filter_map(|(start, end)| {
            // The last utterance that overlaps with the recording: pauses may split it.
            let overlaps = |(began, ended): &&(u64, u64)| began < end && ended > start;
            let within = found.iter().filter(overlaps);
            within.map(|(_, ended)| ended.abs_diff(*end)).next_back()
        })
        .collect();
    errors.sort_unstable();
    let index = (errors.len() * 95).div_ceil(100).saturating_sub(1);
    (errors.get(index).copied().unwrap_or(u64::MAX), errors.len())
}

#[test]
fn ends_of_utterances_are_found_in_quiet_and_in_office_noise() {
    let (pcm, truth) = speech();
    let office = noise("office-ambience.ogg");
    for (name, pcm) in [
        ("quiet", pcm.clone()),
        ("office, 20 dB", mix(&pcm, &office, 20.0)),
        ("office, 10 dB", mix(&pcm, &office, 10.0)),
    ] {
        let (error_ms, count) = end_error(&pcm, &truth);
        println!(
            "{name}: {count} of {} utterances, p95 {error_ms} ms",
            truth.len()
        );
        assert_eq!(count, truth.len(), "{name}");
        assert!(error_ms <= MAX_ERROR_MS, "{name}: {error_ms} ms");
    }
}

#[test]
fn no_utterance_is_found_in_noise_and_music() {
    let minutes = |pcm: &[i16], minutes: usize| {
        let samples = pcm.iter().copied().cycle();
        samples
            .take(minutes * 60 * RATE as usize)
            .collect::<Vec<i16>>()
    };
    let tone = |hz: f32| {
        let sample =
            |n: usize| (std::f32::consts::TAU * hz * n as f32 / RATE as f32).sin() * 8_000.0;
        (0..30 * RATE as usize)
            .map(|n| sample(n) as i16)
            .collect::<Vec<i16>>()
    };
    let mut seed = 1_u32;
    let white = (0..60 * RATE).map(|_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 20) as i16 - 2_048
    });
    for (name, pcm) in [
        ("office", minutes(&noise("office-ambience.ogg"), 4)),
        ("city", minutes(&noise("city-ambience.ogg"), 1)),
        ("forest", minutes(&noise("forest-ambience.ogg"), 1)),
        ("keyboard", minutes(&noise("keyboard-typing.ogg"), 1)),
        ("music on hold", minutes(&noise("hold_music.ogg"), 1)),
        ("white noise", white.collect()),
        ("silence", vec![0; 60 * RATE as usize]),
        ("an offset", vec![12_000; 60 * RATE as usize]),
        (
            "a clipped tone",
            tone(150.0)
                .iter()
                .map(|sample| sample.signum() * i16::MAX)
                .collect(),
        ),
        ("440 Hz", tone(440.0)),
        ("1 kHz", tone(1_000.0)),
    ] {
        assert_eq!(found(&pcm), [], "{name}");
    }
}
