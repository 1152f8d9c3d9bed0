//! Encodes frames so that no payload contains a frame's end.

use std::{iter::Peekable, sync::LazyLock};

use memchr::memmem::Finder;

use super::{END, Kind, MAX_SEQ, START, SeqFormat, TaskId};

static END_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(END));
static START_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(START));

/// Bytes of the longest header and the end.
const OVERHEAD_BYTES: usize = 27;
/// A `#` in a JSON string, escaped.
const ESCAPED_HASH: &[u8] = br"\u0023";
/// `##END` is split after its hashes.
const SPLIT_OFFSET: usize = 2;
/// The longest UTF-8 character. A piece of text is at least this long.
const MAX_CHAR_BYTES: usize = 4;

/// The text needs more frames than four digits can number. Send it as several tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task is at most 10000 frames, its end included")]
pub struct StreamTooLong;

/// Appends one frame. `seq` is at most [`MAX_SEQ`]. Allocates nothing but the growth of `out`.
///
/// In JSON, `##END` and `##START` are written with their first `#` as `\u0023`. Any other
/// payload is truncated inside the first `##END` that it contains. A PING needs none, and text, audio
/// and pictures are encoded with [`encode_stream`], which loses nothing. (ours)
pub fn encode(
    out: &mut Vec<u8>,
    kind: Kind,
    task: TaskId,
    seq: u16,
    seq_format: SeqFormat,
    payload: &[u8],
) {
    out.reserve(payload.len().saturating_add(OVERHEAD_BYTES));
    put_header(out, kind, task, seq, seq_format);
    if kind.is_json() {
        put_json(out, payload);
    } else {
        out.extend_from_slice(before_delimiter(payload));
    }
    out.extend_from_slice(END);
}

/// Appends text, audio or a picture as frames of one task, beginning with `first_seq`. Returns the seq that
/// follows, for the next piece or the `0x03` frame.
///
/// A piece has at most `max_payload_bytes` (at least four). Text is split between two characters,
/// and any `##END` in the payload is split inside: receivers concatenate. An empty payload makes no
/// frame. The seq of audio continues at 0 after 9999. (ours)
///
/// # Errors
/// When no seq would remain for the frame that ends a text; `out` is unchanged.
pub fn encode_stream(
    out: &mut Vec<u8>,
    kind: Kind,
    task: TaskId,
    first_seq: u16,
    payload: &[u8],
    max_payload_bytes: usize,
) -> Result<u16, StreamTooLong> {
    let restart_at = out.len();
    let mut seq = first_seq;
    let mut rest = payload;
    while !rest.is_empty() {
        if seq >= MAX_SEQ && kind != Kind::Audio {
            out.truncate(restart_at);
            return Err(StreamTooLong);
        }
        let piece = first_piece(rest, kind, max_payload_bytes.max(MAX_CHAR_BYTES));
        out.reserve(piece.len().saturating_add(OVERHEAD_BYTES));
        put_header(out, kind, task, seq, SeqFormat::Plain);
        out.extend_from_slice(piece);
        out.extend_from_slice(END);
        rest = rest.get(piece.len()..).unwrap_or_default();
        seq = next_seq(seq);
    }
    Ok(seq)
}

/// Returns the seq after this one: after the largest one, 0.
#[must_use]
pub const fn next_seq(seq: u16) -> u16 {
    if seq < MAX_SEQ {
        seq.saturating_add(1)
    } else {
        0
    }
}

fn put_header(out: &mut Vec<u8>, kind: Kind, task: TaskId, seq: u16, seq_format: SeqFormat) {
    out.extend_from_slice(START);
    out.push(kind.byte());
    out.extend_from_slice(&task.0);
    let seq = seq.min(MAX_SEQ);
    let digits = [1000, 100, 10, 1].map(|unit| digit(seq, unit));
    match seq_format {
        SeqFormat::Bracketed if kind == Kind::Control => {
            out.push(b'[');
            out.extend_from_slice(&digits);
            out.push(b']');
        }
        SeqFormat::Plain | SeqFormat::Bracketed => out.extend_from_slice(&digits),
    }
}

fn digit(number: u16, unit: u16) -> u8 {
    let digit = number.checked_div(unit).unwrap_or_default() % 10;
    u8::try_from(digit).unwrap_or_default().saturating_add(b'0')
}

/// A `#` of valid JSON is always inside a string, so it can be escaped without parsing.
fn put_json(out: &mut Vec<u8>, payload: &[u8]) {
    let mut ends = END_FINDER.find_iter(payload).peekable();
    let mut starts = START_FINDER.find_iter(payload).peekable();
    let mut written = 0;
    while let Some(hash) = next_position(&mut ends, &mut starts) {
        out.extend_from_slice(payload.get(written..hash).unwrap_or_default());
        out.extend_from_slice(ESCAPED_HASH);
        written = hash.saturating_add(1);
    }
    out.extend_from_slice(payload.get(written..).unwrap_or_default());
}

/// Merges two ascending sequences: returns the smaller of their next positions.
fn next_position<I: Iterator<Item = usize>>(
    one: &mut Peekable<I>,
    other: &mut Peekable<I>,
) -> Option<usize> {
    match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if second < first => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    }
}

/// The part of a payload before its first `##END` would be complete.
fn before_delimiter(payload: &[u8]) -> &[u8] {
    let Some(found) = END_FINDER.find(payload) else {
        return payload;
    };
    payload
        .get(..found.saturating_add(SPLIT_OFFSET))
        .unwrap_or(payload)
}

fn first_piece(rest: &[u8], kind: Kind, max_bytes: usize) -> &[u8] {
    let Some(window) = rest.get(..max_bytes) else {
        return before_delimiter(rest);
    };
    let whole = if kind == Kind::Text {
        whole_characters(window, rest.get(max_bytes))
    } else {
        window
    };
    before_delimiter(whole)
}

/// `window` without the beginning of a character that continues in `next`.
fn whole_characters<'a>(window: &'a [u8], next: Option<&u8>) -> &'a [u8] {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    if !next.is_some_and(continues) {
        return window;
    }
    let broken = window
        .iter()
        .rev()
        .take(MAX_CHAR_BYTES)
        .take_while(|byte| continues(byte))
        .count();
    let len = window.len().saturating_sub(broken).saturating_sub(1);
    match window.get(..len) {
        Some(whole) if !whole.is_empty() => whole,
        _ => window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(kind: Kind, seq: u16, seq_format: SeqFormat, payload: &str) -> String {
        let mut out = Vec::new();
        encode(
            &mut out,
            kind,
            TaskId::MCP,
            seq,
            seq_format,
            payload.as_bytes(),
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn header_has_the_requested_seq_format() {
        fn check(kind: Kind, seq: u16, seq_format: SeqFormat, expect: &str) {
            assert_eq!(encoded(kind, seq, seq_format, "{}"), expect);
        }
        check(
            Kind::Control,
            42,
            SeqFormat::Plain,
            "##START\x06mcp000010042{}##END",
        );
        check(
            Kind::Control,
            9999,
            SeqFormat::Bracketed,
            "##START\x06mcp00001[9999]{}##END",
        );
        check(
            Kind::Text,
            0,
            SeqFormat::Bracketed,
            "##START\x04mcp000010000{}##END",
        );
        check(
            Kind::Ping,
            u16::MAX,
            SeqFormat::Plain,
            "##START\x11mcp000019999{}##END",
        );
    }

    #[test]
    fn json_payload_escapes_only_delimiters() {
        fn check(payload: &str, expect: &str) {
            let frame = encoded(Kind::Control, 0, SeqFormat::Plain, payload);
            assert_eq!(frame, format!("##START\x06mcp000010000{expect}##END"));
        }
        check(r##"{"a":"#1 ##E ##STAR"}"##, r##"{"a":"#1 ##E ##STAR"}"##);
        check(r###"{"a":"##END"}"###, r##"{"a":"\u0023#END"}"##);
        check(
            r####"{"###END":"##START##END"}"####,
            r####"{"#\u0023#END":"\u0023#START\u0023#END"}"####,
        );
    }

    #[test]
    fn stream_splits_delimiters_but_no_characters() {
        fn check(payload: &str, max: usize, expect: &[&str]) {
            let mut out = Vec::new();
            let next = encode_stream(
                &mut out,
                Kind::Text,
                TaskId::MCP,
                7,
                payload.as_bytes(),
                max,
            );
            let frames = expect
                .iter()
                .zip(7..)
                .map(|(piece, seq)| format!("##START\x04mcp00001{seq:04}{piece}##END"));
            assert_eq!(String::from_utf8(out).unwrap(), frames.collect::<String>());
            assert_eq!(usize::from(next.unwrap()), 7 + expect.len());
        }
        check("", 100, &[]);
        check("hello", 100, &["hello"]);
        check("a##END##ENDb", 100, &["a##", "END##", "ENDb"]);
        check("现在几点", 7, &["现在", "几点"]);
        check("现在几点", 0, &["现", "在", "几", "点"]);
        check("😀😀", 5, &["😀", "😀"]);
    }

    #[test]
    fn stream_reserves_a_seq_for_its_end() {
        let mut out = b"before".to_vec();
        let task = TaskId::MCP;
        let last = encode_stream(&mut out, Kind::Text, task, 9998, b"abcd", 4);
        assert_eq!(last, Ok(9999));
        out.truncate(6);
        let more = encode_stream(&mut out, Kind::Text, task, 9998, b"abcde", 4);
        assert_eq!((more, out.as_slice()), (Err(StreamTooLong), &b"before"[..]));
        let audio = encode_stream(&mut out, Kind::Audio, task, 9998, b"abcde##ENDf", 4);
        assert_eq!(audio, Ok(1));
    }

    #[test]
    fn binary_payload_is_truncated_at_a_delimiter() {
        let frame = encoded(Kind::Ping, 0, SeqFormat::Plain, "a##END##START");
        assert_eq!(frame, "##START\x11mcp000010000a####END");
    }
}
