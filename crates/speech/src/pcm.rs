//! Samples in a stream of bytes: raw, or a WAV file.

use crate::failure::Failure;

/// Bytes of the longest header of a WAV file.
const MAX_HEADER_BYTES: usize = 4_096;
const FORMAT_PCM: u16 = 1;
const FORMAT_EXTENSIBLE: u16 = 0xfffe;
/// The format chunk up to its bits per sample.
const FORMAT_BYTES: usize = 16;
const BITS: u16 = 16;

/// Reads samples of 16 bits in whatever pieces they arrive. A WAV header in front of them is read, and
/// several channels are mixed down.
pub(crate) struct PcmReader {
    waiting: Vec<u8>,
    rate: u32,
    channels: usize,
    is_begun: bool,
}

impl PcmReader {
    /// Reads samples that have this rate unless a header says otherwise.
    pub(crate) const fn new(rate: u32, channels: usize) -> Self {
        Self {
            waiting: Vec::new(),
            rate,
            channels,
            is_begun: false,
        }
    }

    /// Samples per second.
    pub(crate) const fn rate(&self) -> u32 {
        self.rate
    }

    /// Takes bytes, and returns the samples that are complete.
    ///
    /// # Errors
    /// When a header is invalid, or of another format.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<i16>, Failure> {
        self.waiting.extend_from_slice(bytes);
        if !self.is_begun && !self.begin()? {
            return Ok(Vec::new());
        }
        let frame = 2 * self.channels;
        let whole = self.waiting.len() / frame * frame;
        let (frames, _) = self.waiting.split_at(whole);
        let samples = frames.chunks_exact(frame).map(|frame| {
            let samples = frame.as_chunks().0.iter().copied();
            let sum: i32 = samples
                .map(|bytes| i32::from(i16::from_le_bytes(bytes)))
                .sum();
            let count = i32::try_from(self.channels).unwrap_or(1);
            i16::try_from(sum / count.max(1)).unwrap_or_default()
        });
        let samples = samples.collect();
        self.waiting.drain(..whole);
        Ok(samples)
    }

    /// Skips the header, if there is one. Returns false while it is incomplete.
    fn begin(&mut self) -> Result<bool, Failure> {
        let head = self.waiting.get(..4);
        match head {
            None => return Ok(false),
            Some(b"RIFF") => {}
            Some(_) => {
                self.is_begun = true;
                return Ok(true);
            }
        }
        let mut at = 12;
        loop {
            let invalid = |reason: &str| Failure::Invalid(format!("its WAV header {reason}"));
            if at > MAX_HEADER_BYTES {
                return Err(invalid("has no samples"));
            }
            let Some((id, length)) = self.waiting.get(at..at + 8).map(|head| head.split_at(4))
            else {
                return Ok(false);
            };
            let length = <[u8; 4]>::try_from(length).map_or(0, u32::from_le_bytes) as usize;
            let content = at + 8;
            match id {
                b"data" => {
                    self.waiting.drain(..content);
                    self.is_begun = true;
                    return Ok(true);
                }
                b"fmt " => {
                    let Some(format) = self.waiting.get(content..content + FORMAT_BYTES) else {
                        return Ok(false);
                    };
                    let number = |at: usize| {
                        let bytes = format.get(at..at + 2).unwrap_or_default();
                        <[u8; 2]>::try_from(bytes).map_or(0, u16::from_le_bytes)
                    };
                    let rate = format.get(4..8).unwrap_or_default();
                    self.rate = <[u8; 4]>::try_from(rate).map_or(0, u32::from_le_bytes);
                    self.channels = number(2).into();
                    let is_pcm = matches!(number(0), FORMAT_PCM | FORMAT_EXTENSIBLE);
                    if !is_pcm || number(14) != BITS || !(1..=8).contains(&self.channels) {
                        return Err(invalid("describes no samples of 16 bits"));
                    }
                    if !(4_000..=192_000).contains(&self.rate) {
                        return Err(invalid("has an impossible rate"));
                    }
                }
                _ => {}
            }
            at = content.saturating_add(length).saturating_add(length % 2);
        }
    }
}

/// A WAV file of mono samples.
pub(crate) fn wav(samples: &[i16], rate: u32) -> Vec<u8> {
    let bytes = u32::try_from(2 * samples.len()).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(44 + 2 * samples.len());
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&bytes.saturating_add(36).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend_from_slice(&16_u32.to_le_bytes());
    file.extend_from_slice(&FORMAT_PCM.to_le_bytes());
    file.extend_from_slice(&1_u16.to_le_bytes());
    file.extend_from_slice(&rate.to_le_bytes());
    file.extend_from_slice(&rate.saturating_mul(2).to_le_bytes());
    file.extend_from_slice(&2_u16.to_le_bytes());
    file.extend_from_slice(&BITS.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&bytes.to_le_bytes());
    file.extend(samples.iter().copied().flat_map(i16::to_le_bytes));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], size: usize) -> Result<(Vec<i16>, u32), Failure> {
        let mut reader = PcmReader::new(24_000, 1);
        let mut samples = Vec::new();
        for piece in bytes.chunks(size) {
            samples.extend(reader.read(piece)?);
        }
        Ok((samples, reader.rate()))
    }

    #[test]
    fn header_is_read_in_any_pieces() {
        let samples: Vec<i16> = (0..500).collect();
        let raw: Vec<u8> = samples.iter().copied().flat_map(i16::to_le_bytes).collect();
        let file = wav(&samples, 22_050);
        for size in [1, 3, 44, 45, 10_000] {
            assert_eq!(read(&raw, size), Ok((samples.clone(), 24_000)));
            assert_eq!(read(&file, size), Ok((samples.clone(), 22_050)));
        }
        // Half a sample at the end is dropped.
        assert_eq!(read(&raw[..5], 2).unwrap().0, [0, 1]);
        assert_eq!(read(&[], 1).unwrap().0, Vec::<i16>::new());
        let mut stereo = wav(&[100, 300, -5, -7], 8_000);
        stereo[22] = 2;
        assert_eq!(read(&stereo, 7), Ok((vec![200, -6], 8_000)));
        let mut bits = file.clone();
        bits[34] = 8;
        assert!(matches!(read(&bits, 7), Err(Failure::Invalid(_))));
        let mut endless = b"RIFF\0\0\0\0WAVE".to_vec();
        endless.extend(b"junk\0\0\0\0".repeat(1_000));
        assert!(matches!(read(&endless, 99), Err(Failure::Invalid(_))));
    }
}
