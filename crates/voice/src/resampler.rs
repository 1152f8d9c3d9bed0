//! Converts the sample rate of a stream.

use audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler as _};

/// Input of one step: 10 ms.
const STEPS_PER_S: u32 = 100;
const SCALE: f32 = 32_768.0;

/// Converts mono audio from one rate to another. Delays it by some 5 ms, and loses nothing at the end of
/// the stream.
pub struct Resampler {
    /// `None` where both rates are equal.
    converter: Option<Converter>,
}

struct Converter {
    fft: Fft<f32>,
    waiting: Vec<f32>,
    output: Vec<f32>,
    /// Output that is not due to any input.
    leading: usize,
}

impl Resampler {
    /// Creates a converter between two rates in samples per second.
    #[must_use]
    pub fn new(input_rate: u32, output_rate: u32) -> Self {
        let converter = (input_rate != output_rate)
            .then(|| Converter::new(input_rate, output_rate))
            .flatten();
        Self { converter }
    }

    /// Converts the next samples, and appends what is complete.
    pub fn convert(&mut self, pcm: &[i16], out: &mut Vec<i16>) {
        match &mut self.converter {
            None => out.extend_from_slice(pcm),
            Some(converter) => {
                let samples = pcm.iter().map(|sample| f32::from(*sample) / SCALE);
                converter.waiting.extend(samples);
                converter.run(out);
            }
        }
    }

    /// Appends the end of the stream, and begins a new one.
    pub fn finish(&mut self, out: &mut Vec<i16>) {
        let Some(converter) = &mut self.converter else {
            return;
        };
        if converter.waiting.is_empty() && converter.leading > 0 {
            // Nothing was converted.
            return;
        }
        let step = converter.fft.input_frames_next();
        let ratio = converter.fft.resample_ratio();
        let missing = converter.waiting.len() as f64 * ratio + converter.delay() as f64;
        let end = out.len() + missing.round() as usize - converter.leading.min(missing as usize);
        while out.len() < end {
            let silence = step - converter.waiting.len() % step;
            let length = converter.waiting.len() + silence;
            converter.waiting.resize(length, 0.0);
            converter.run(out);
        }
        out.truncate(end);
        converter.waiting.clear();
        converter.fft.reset();
        converter.leading = converter.delay();
    }
}

impl Converter {
    fn new(input_rate: u32, output_rate: u32) -> Option<Self> {
        let step = (input_rate / STEPS_PER_S).max(1) as usize;
        let (input, output) = (input_rate as usize, output_rate as usize);
        // The rates are positive, which is all that this can refuse.
        let fft = Fft::new(input, output, step, 1, FixedSync::Both).ok()?;
        let mut converter = Self {
            output: vec![0.0; fft.output_frames_max()],
            fft,
            waiting: Vec::new(),
            leading: 0,
        };
        converter.leading = converter.delay();
        Some(converter)
    }

    fn delay(&self) -> usize {
        self.fft.output_delay()
    }

    /// Converts the complete steps that wait.
    fn run(&mut self, out: &mut Vec<i16>) {
        let step = self.fft.input_frames_next();
        let mut read = 0;
        while let Some(input) = self.waiting.get(read..read + step) {
            read += step;
            let capacity = self.output.len();
            let converted = SequentialSlice::new(input, 1, step).ok().and_then(|input| {
                let output = SequentialSlice::new_mut(&mut self.output, 1, capacity);
                let converted = self
                    .fft
                    .process_into_buffer(&input, &mut output.ok()?, None);
                converted.ok()
            });
            let written = converted.map_or(0, |(_, written)| written);
            let skipped = self.leading.min(written);
            self.leading -= skipped;
            let samples = self.output.get(skipped..written).unwrap_or_default();
            out.extend(samples.iter().map(|sample| to_i16(*sample)));
        }
        self.waiting.drain(..read);
    }
}

/// Converts a sample between -1 and 1; louder ones are clipped.
pub(crate) fn to_i16(sample: f32) -> i16 {
    // The cast saturates.
    (sample * SCALE).round() as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone of 440 Hz.
    fn tone(rate: u32, samples: usize) -> Vec<i16> {
        let step = std::f32::consts::TAU * 440.0 / rate as f32;
        let sample = |n: usize| (step * n as f32).sin() * 16_000.0;
        (0..samples).map(|n| sample(n) as i16).collect()
    }

    #[test]
    fn stream_keeps_its_length_and_content() {
        for (input, output) in [
            (8_000, 16_000),
            (24_000, 16_000),
            (48_000, 16_000),
            (16_000, 24_000),
            (22_050, 24_000),
            (22_050, 8_000),
            (16_000, 16_000),
        ] {
            let mut resampler = Resampler::new(input, output);
            // A second stream after the first one is converted in the same way.
            for length in [input as usize, 0, 7, input as usize / 2 + 33] {
                let mut converted = Vec::new();
                for piece in tone(input, length).chunks(701) {
                    resampler.convert(piece, &mut converted);
                }
                resampler.finish(&mut converted);
                let expect = tone(
                    output,
                    (length as f64 * f64::from(output) / f64::from(input)).round() as usize,
                );
                assert!(
                    converted.len().abs_diff(expect.len()) <= 1,
                    "{input} to {output}: {} of {} samples",
                    converted.len(),
                    expect.len()
                );
                // Both ends of a tone that begins or ends suddenly ring.
                let ringing = output as usize / 10;
                let inner = ringing..expect.len().saturating_sub(ringing);
                for n in inner {
                    let error = i32::from(converted[n]) - i32::from(expect[n]);
                    // A fifth of a sample.
                    assert!(error.abs() < 1_200, "{input} to {output}: {error} at {n}");
                }
            }
        }
    }
}
