//! Decodes frames from the front of a growing buffer.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::{END, Frame, FrameError, Kind, START, SeqFormat, TaskId};

static END_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(END));

/// Byte positions of the type, the task id and the sequence number.
const KIND_AT: usize = 7;
const TASK_AT: usize = 8;
const SEQ_AT: usize = 16;
/// A delimiter may be split between two reads: all but its last byte can be in the first.
const DELIMITER_OVERLAP: usize = END.len().saturating_sub(1);

/// Decodes frames at the front of the caller's buffer. It owns no buffer and remembers only how far
/// the incomplete frame was scanned.
///
/// Invariant: no byte of an incomplete frame is scanned twice, so a frame that arrives byte by byte
/// costs linear work. A wrong byte is reported as soon as it arrives. (I15)
#[derive(Debug)]
pub struct Decoder {
    limit_bytes: u32,
    scanned: u32,
    blank: u32,
}

impl Decoder {
    /// Creates a decoder that refuses frames of more than `limit_bytes`, delimiters included.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes: narrow(limit_bytes),
            scanned: 0,
            blank: 0,
        }
    }

    /// Changes the limit from the next call on.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = narrow(limit_bytes);
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        widen(self.limit_bytes)
    }

    /// Decodes one frame at the front of `buffer`.
    ///
    /// - `Ok(Some((frame, consumed)))`: drop `consumed` bytes and call again.
    /// - `Ok(None)`: drop [`Self::skippable`] bytes and call again when more bytes have arrived.
    ///
    /// # Errors
    /// As soon as the bytes cannot become a frame. The connection cannot continue.
    pub fn decode<'a>(
        &mut self,
        buffer: &'a [u8],
    ) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
        let bytes = buffer.trim_ascii_start();
        let blank = buffer.len().saturating_sub(bytes.len());
        self.blank = narrow(blank);
        let Some(header) = Header::read(bytes)? else {
            return self.unfinished(bytes);
        };
        let limit = widen(self.limit_bytes);
        let in_limit = bytes.get(..limit).unwrap_or(bytes);
        let from = widen(self.scanned)
            .saturating_sub(DELIMITER_OVERLAP)
            .max(header.len);
        let unscanned = in_limit.get(from..).unwrap_or_default();
        let Some(found) = END_FINDER.find(unscanned) else {
            return self.unfinished(bytes);
        };
        let end = from.saturating_add(found);
        let payload = bytes.get(header.len..end).unwrap_or_default();
        self.scanned = 0;
        self.blank = 0;
        let consumed = blank.saturating_add(end).saturating_add(END.len());
        Ok(Some((header.frame(payload), consumed)))
    }

    /// Returns the bytes of white space at the front of the buffer of the last [`Self::decode`]
    /// that returned `Ok(None)`. Dropping them keeps white space from filling the buffer.
    #[must_use]
    pub fn skippable(&self) -> usize {
        widen(self.blank)
    }

    fn unfinished<T>(&mut self, bytes: &[u8]) -> Result<Option<T>, FrameError> {
        let limit_bytes = widen(self.limit_bytes);
        if bytes.len() >= limit_bytes {
            return Err(FrameError::TooLong { limit_bytes });
        }
        self.scanned = narrow(bytes.len());
        Ok(None)
    }
}

/// Everything before the payload.
struct Header {
    kind: Kind,
    task: TaskId,
    seq: u16,
    seq_format: SeqFormat,
    len: usize,
}

impl Header {
    /// Returns `None` while the header is incomplete and correct so far.
    fn read(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        if !bytes.iter().zip(START).all(|(got, due)| got == due) {
            return Err(FrameError::Garbage);
        }
        let Some(&byte) = bytes.get(KIND_AT) else {
            return Ok(None);
        };
        let kind = Kind::from_byte(byte).ok_or(FrameError::UnknownKind(byte))?;
        let Some(seq_field) = bytes.get(SEQ_AT..) else {
            return Ok(None);
        };
        let task = bytes.get(TASK_AT..).and_then(<[u8]>::first_chunk);
        let (Some(task), Some((seq, seq_format, seq_len))) = (task, read_seq(kind, seq_field)?)
        else {
            return Ok(None);
        };
        let len = SEQ_AT.saturating_add(seq_len);
        Ok(Some(Self {
            kind,
            task: TaskId(*task),
            seq,
            seq_format,
            len,
        }))
    }

    fn frame(self, payload: &[u8]) -> Frame<'_> {
        let Self {
            kind,
            task,
            seq,
            seq_format,
            ..
        } = self;
        Frame {
            kind,
            task,
            seq,
            seq_format,
            payload,
        }
    }
}

/// Reads the number, its format and its length in bytes. Returns `None` while digits are missing.
fn read_seq(kind: Kind, field: &[u8]) -> Result<Option<(u16, SeqFormat, usize)>, FrameError> {
    if kind == Kind::Control && field.first() == Some(&b'[') {
        let Some(seq) = read_digits(field.get(1..).unwrap_or_default())? else {
            return Ok(None);
        };
        return match field.get(5) {
            None => Ok(None),
            Some(b']') => Ok(Some((seq, SeqFormat::Bracketed, 6))),
            Some(_) => Err(FrameError::BadSeq),
        };
    }
    let seq = read_digits(field)?;
    Ok(seq.map(|seq| (seq, SeqFormat::Plain, 4)))
}

/// Reads four digits. Returns `None` while some are missing and the others are digits.
fn read_digits(field: &[u8]) -> Result<Option<u16>, FrameError> {
    let digits = field.get(..4).unwrap_or(field);
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(FrameError::BadSeq);
    }
    let value = digits.iter().fold(0_u16, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u16::from(digit.saturating_sub(b'0')))
    });
    Ok((digits.len() == 4).then_some(value))
}

/// Positions are 32 bits wide, which keeps the decoder small. A limit of 4 GiB is no limit.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn widen(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for an input that arrives byte by byte, and after how many bytes it is known.
    fn decode_bytewise(input: &[u8], limit: usize) -> (Result<bool, FrameError>, usize) {
        let mut decoder = Decoder::new(limit);
        for len in 0..=input.len() {
            match decoder.decode(&input[..len]) {
                Ok(None) => {}
                Ok(Some((_, consumed))) => {
                    assert_eq!(consumed, len);
                    return (Ok(true), len);
                }
                Err(error) => return (Err(error), len),
            }
        }
        (Ok(false), input.len())
    }

    #[test]
    fn bad_header_is_reported_at_its_first_wrong_byte() {
        fn check(input: &[u8], error: FrameError, after: usize) {
            let shown = input.escape_ascii();
            assert_eq!(decode_bytewise(input, 4096), (Err(error), after), "{shown}");
        }
        check(b"x", FrameError::Garbage, 1);
        check(b" \r\n\tGET / HTTP/1.1", FrameError::Garbage, 5);
        check(b"#START", FrameError::Garbage, 2);
        check(b"##STARS", FrameError::Garbage, 7);
        check(b"##START\x05", FrameError::UnknownKind(5), 8);
        check(b"##START\x06mcp00001x", FrameError::BadSeq, 17);
        check(b"##START\x06mcp0000100a0{}##END", FrameError::BadSeq, 19);
        check(b"##START\x06mcp00001[12a4]", FrameError::BadSeq, 20);
        check(b"##START\x06mcp00001[1234}", FrameError::BadSeq, 22);
        check(b"##START\x04mcp00001[1234]", FrameError::BadSeq, 17);
    }

    #[test]
    fn limit_includes_the_delimiters() {
        let frame = b"##START\x04task12340000hello##END";
        assert_eq!(decode_bytewise(frame, frame.len()), (Ok(true), frame.len()));
        let limit_bytes = frame.len() - 1;
        let too_long = FrameError::TooLong { limit_bytes };
        assert_eq!(
            decode_bytewise(frame, limit_bytes),
            (Err(too_long), limit_bytes)
        );
        assert_eq!(Decoder::new(limit_bytes).decode(frame), Err(too_long));
        assert_eq!(
            decode_bytewise(b"##START\x04task12340000hello##EN", 4096),
            (Ok(false), 29)
        );
    }

    #[test]
    fn white_space_between_frames_is_skippable() {
        let mut decoder = Decoder::new(64);
        assert_eq!(decoder.decode(b" \r\n").unwrap(), None);
        assert_eq!(decoder.skippable(), 3);
        assert_eq!(decoder.decode(b" \r\n##STA").unwrap(), None);
        assert_eq!(
            decoder.decode(b"##START\x03task12340001##EN").unwrap(),
            None
        );
        assert_eq!(decoder.skippable(), 0);
        let (frame, consumed) = decoder
            .decode(b"\n##START\x03task12340001##END")
            .unwrap()
            .unwrap();
        assert_eq!((frame.kind, frame.seq, consumed), (Kind::End, 1, 26));
    }

    #[test]
    fn task_id_may_contain_delimiters() {
        let input = b"##START\x04##END#\x0000007a##END";
        let (frame, consumed) = Decoder::new(64).decode(input).unwrap().unwrap();
        assert_eq!(frame.task, TaskId(*b"##END#\x000"));
        assert_eq!(
            (frame.seq, frame.payload, consumed),
            (7, &b"a"[..], input.len())
        );
    }

    #[test]
    fn decoder_is_at_most_16_bytes() {
        assert!(size_of::<Decoder>() <= 16);
    }
}
