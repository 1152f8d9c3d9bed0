//! How accurately utterances of people are found, alone and in noise. The recordings are installed by
//! `./check`: English speech of the Debian package `pocketsphinx-testdata`, Chinese commands to toys of the
//! Python package `xiaozhi-sdk`, and the ambiences of the Python package `livekit-agents`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use switchboard_voice::{
    RATE, Resampler, Segment, Segmenter, SegmenterSettings, activity::GatedSilero, milliseconds,
};

const ENGLISH: [&str; 12] = [
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
const CHINESE: [&str; 7] = [
    "16k_greet.wav",
    "16k_play_music.wav",
    "16k_say_hello.wav",
    "16k_take_photo.wav",
    "test_16k.wav",
    "test_24k.wav",
    "test_48k.wav",
];
/// Silence between two utterances.
const GAP_S: usize = 2;
/// The end of an utterance is found within this time, in all cases but one of twenty.
const MAX_ERROR_MS: u64 = 700;
/// Parts of the noise that the recordings are mixed with.
const NOISE_PARTS: usize = 4;
/// A recording is quieter than this part of its loudest 20 ms before and after its speech.
const QUIET: f64 = 0.03;
const WINDOW: usize = RATE as usize / 50;
/// The root of the mean square of the samples of a recording.
const LOUDNESS: f64 = 2_000.0;

fn speech_folder() -> PathBuf {
    let folder = std::env::var_os("SWITCHBOARD_SPEECH_SAMPLES");
    folder.map_or_else(|| "/usr/share/pocketsphinx/test/data".into(), PathBuf::from)
}

/// A file of the virtual environment that `cargo xtask clients` installs.
fn packaged_file(name: &str) -> PathBuf {
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
    packages.join(name)
}

/// The recordings, all equally loud.
fn recordings() -> impl Iterator<Item = Vec<i16>> {
    let english = ENGLISH.iter().map(|name| speech_folder().join(name));
    let folder = packaged_file("xiaozhi_sdk/file/audio");
    let chinese = CHINESE.iter().map(move |name| folder.join(name));
    english.chain(chinese).map(|path| recording(&path))
}

fn recording(path: &Path) -> Vec<i16> {
    let recording = read(path);
    let factor = LOUDNESS / power(&recording).sqrt();
    let samples = recording
        .iter()
        .map(|sample| (f64::from(*sample) * factor) as i16);
    samples.collect()
}

/// The samples of a recording, raw with 16 kHz or a WAV file.
fn read(path: &Path) -> Vec<i16> {
    let bytes = fs::read(path).unwrap_or_else(|error| {
        panic!("{}: {error}; install pocketsphinx-testdata", path.display())
    });
    let Ok(reader) = hound::WavReader::new(bytes.as_slice()) else {
        let samples = bytes.as_chunks().0.iter();
        return samples.copied().map(i16::from_le_bytes).collect();
    };
    let spec = reader.spec();
    assert_eq!(spec.channels, 1, "{}", path.display());
    let samples: Vec<i16> = reader.into_samples().map(Result::unwrap).collect();
    let (mut resampler, mut pcm) = (Resampler::new(spec.sample_rate, RATE), Vec::new());
    resampler.convert(&samples, &mut pcm);
    resampler.finish(&mut pcm);
    pcm
}

/// The samples of an Ogg Vorbis file, mono at 16 kHz.
fn noise(name: &str) -> Vec<i16> {
    let path = packaged_file("livekit/agents/resources").join(name);
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
    for recording in recordings() {
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

/// The distances in milliseconds between the ends of utterances and those that were found, for each that
/// was found.
fn end_errors(pcm: &[i16], truth: &[(u64, u64)]) -> Vec<u64> {
    let found = found(pcm);
    let errors = truth.iter().filter_map(|(start, end)| {
        // The last utterance that overlaps with the recording: pauses may split it.
        let overlaps = |(began, ended): &&(u64, u64)| began < end && ended > start;
        let within = found.iter().filter(overlaps);
        within.map(|(_, ended)| ended.abs_diff(*end)).next_back()
    });
    errors.collect()
}

#[test]
fn ends_of_utterances_are_found_in_quiet_and_in_office_noise() {
    let (pcm, truth) = speech();
    // Pauses within a recording do not split it.
    assert_eq!(found(&pcm).len(), truth.len());
    let office = noise("office-ambience.ogg");
    let noisy = |decibels| {
        // The recordings meet other parts of the noise.
        let parts = (0..NOISE_PARTS).map(|part| {
            let (before, after) = office.split_at(part * office.len() / NOISE_PARTS);
            mix(&pcm, &[after, before].concat(), decibels)
        });
        parts.collect::<Vec<_>>()
    };
    for (name, streams) in [
        ("quiet", vec![pcm.clone()]),
        ("office, 20 dB", noisy(20.0)),
        ("office, 10 dB", noisy(10.0)),
    ] {
        let errors = streams.iter().flat_map(|pcm| end_errors(pcm, &truth));
        let mut errors: Vec<u64> = errors.collect();
        errors.sort_unstable();
        let index = (errors.len() * 95).div_ceil(100).saturating_sub(1);
        let (error_ms, spoken) = (errors[index], truth.len() * streams.len());
        println!(
            "{name}: {} of {spoken} utterances, p95 {error_ms} ms",
            errors.len()
        );
        // The shortest command has 0.2 s of speech.
        assert!(errors.len() * 100 >= spoken * 95, "{name}");
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
