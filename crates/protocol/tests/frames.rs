//! Properties of the frame codec: what is encoded decodes to the same, however the stream is split.
//! Other bytes are refused without a panic and in linear time.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use switchboard_protocol::frame::{
    Decoder, Frame, FrameError, Kind, MAX_SEQ, SeqFormat, TaskId, encode, encode_stream,
};

const LIMIT_BYTES: usize = 4096;

/// A frame that owns its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnedFrame {
    kind: Kind,
    task: TaskId,
    seq: u16,
    seq_format: SeqFormat,
    payload: Vec<u8>,
}

impl From<Frame<'_>> for OwnedFrame {
    fn from(
        Frame {
            kind,
            task,
            seq,
            seq_format,
            payload,
        }: Frame<'_>,
    ) -> Self {
        Self {
            kind,
            task,
            seq,
            seq_format,
            payload: payload.to_vec(),
        }
    }
}

/// Decodes chunks as a connection does. Returns the frames and the error that ended them.
fn read<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<OwnedFrame>, Result<(), FrameError>) {
    let mut decoder = Decoder::new(LIMIT_BYTES);
    let (mut buffer, mut frames) = (Vec::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            match decoder.decode(&buffer) {
                Ok(Some((frame, consumed))) => {
                    frames.push(OwnedFrame::from(frame));
                    buffer.drain(..consumed);
                }
                Ok(None) => {
                    buffer.drain(..decoder.skippable());
                    break;
                }
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(()))
}

/// Payloads made of fragments of delimiters.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        Just("#".as_bytes().to_vec()),
        Just(b"##".to_vec()),
        Just(b"##E".to_vec()),
        Just(b"ND".to_vec()),
        Just(b"##END".to_vec()),
        Just(b"##START".to_vec()),
        Just("好😀".as_bytes().to_vec()),
        "[a-z ]{0,8}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(fragment, 0..12).prop_map(|fragments| fragments.concat())
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(&Kind::ALL[..])
}

fn seq_format() -> impl Strategy<Value = SeqFormat> {
    prop_oneof![Just(SeqFormat::Plain), Just(SeqFormat::Bracketed)]
}

/// A frame as it is sent.
fn frame() -> impl Strategy<Value = OwnedFrame> {
    let header = (kind(), any::<[u8; 8]>(), 0..=MAX_SEQ, seq_format());
    (header, payload()).prop_map(|((kind, task, seq, seq_format), bytes)| {
        let seq_format = if kind == Kind::Control {
            seq_format
        } else {
            SeqFormat::Plain
        };
        let payload = if kind.is_json() {
            serde_json::to_vec(&String::from_utf8_lossy(&bytes)).unwrap_or_default()
        } else {
            // Only streams may contain an end.
            String::from_utf8_lossy(&bytes)
                .replace("##END", "")
                .replace("##END", "")
                .into_bytes()
        };
        OwnedFrame {
            kind,
            task: TaskId(task),
            seq,
            seq_format,
            payload,
        }
    })
}

/// Compares frames. JSON may have been escaped on the way.
fn same(got: &OwnedFrame, sent: &OwnedFrame) -> bool {
    if !sent.kind.is_json() {
        return got == sent;
    }
    let text = |json: &[u8]| serde_json::from_slice::<String>(json).ok();
    let with_sent_payload = OwnedFrame {
        payload: sent.payload.clone(),
        ..got.clone()
    };
    text(&got.payload) == text(&sent.payload) && with_sent_payload == *sent
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_decode_after_every_split(sent in prop::collection::vec(frame(), 1..4)) {
        let sent: Vec<OwnedFrame> =
            sent.into_iter().filter(|frame| !frame.payload.windows(5).any(|w| w == b"##END") || frame.kind.is_json()).collect();
        let mut stream = Vec::new();
        for frame in &sent {
            let OwnedFrame { kind, task, seq, seq_format, payload } = frame;
            encode(&mut stream, *kind, *task, *seq, *seq_format, payload);
        }
        let check = |got: (Vec<OwnedFrame>, Result<(), FrameError>)| {
            got.1 == Ok(())
                && got.0.len() == sent.len()
                && got.0.iter().zip(&sent).all(|(got, sent)| same(got, sent))
        };
        for at in 0..=stream.len() {
            let (head, tail) = stream.split_at(at);
            prop_assert!(check(read([head, tail])), "split at {at}: {}", stream.escape_ascii());
        }
        prop_assert!(check(read(stream.chunks(1))), "byte by byte: {}", stream.escape_ascii());
    }

    #[test]
    fn stream_payload_is_reassembled(
        payload in payload(),
        max_payload_bytes in 0_usize..40,
        is_text in any::<bool>(),
        first_seq in 0_u16..9000,
    ) {
        let kind = if is_text { Kind::Text } else { Kind::Audio };
        let mut stream = Vec::new();
        let (task, max) = (TaskId::MCP, max_payload_bytes);
        let next = encode_stream(&mut stream, kind, task, first_seq, &payload, max);
        let (frames, end) = read([&stream[..]]);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(next.map(usize::from), Ok(usize::from(first_seq) + frames.len()));
        let mut whole = Vec::new();
        for (frame, seq) in frames.iter().zip(first_seq..) {
            prop_assert_eq!((frame.kind, frame.seq), (kind, seq));
            prop_assert!(!frame.payload.is_empty());
            prop_assert!(frame.payload.len() <= max_payload_bytes.max(4));
            prop_assert!(!is_text || std::str::from_utf8(&frame.payload).is_ok());
            whole.extend_from_slice(&frame.payload);
        }
        prop_assert_eq!(whole, payload);
    }

    #[test]
    fn any_bytes_decode_the_same_after_any_split(
        noise in prop::collection::vec(
            prop_oneof![payload(), Just(b"##START\x06mcp00001[0000]".to_vec()),
                Just(b"##START\x04task12340000".to_vec()), prop::collection::vec(any::<u8>(), 0..9)],
            0..12,
        ),
    ) {
        let stream = noise.concat();
        prop_assert_eq!(read([&stream[..]]), read(stream.chunks(1)));
    }
}

#[test]
fn bytewise_frame_costs_linear_time() {
    let limit_bytes = 256 * 1024;
    let mut decoder = Decoder::new(limit_bytes);
    let mut frame = b"##START\x04task12340000".to_vec();
    frame.resize(limit_bytes - 5, b'#');
    frame.extend_from_slice(b"##END");
    let started = Instant::now();
    for len in 0..frame.len() {
        assert_eq!(decoder.decode(&frame[..len]), Ok(None));
    }
    assert!(matches!(decoder.decode(&frame), Ok(Some((_, consumed))) if consumed == frame.len()));
    // Rescanning would look at 34 billion bytes.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}
