//! Fuzz targets of `switchboard-protocol`. The result depends on the input only.

use serde_json::value::RawValue;
use switchboard_protocol::{
    frame::{Decoder, Frame, FrameError, Kind, SeqFormat, encode},
    message::{
        Call, DeviceEvent, DeviceMessage, DeviceVoice, MessageError, ServerMessage,
        parse_auth_answer, write_result,
    },
    schema::{Registration, SchemaLimits},
    session::Session,
};

const LIMIT_BYTES: usize = 4096;

/// A stream decodes to the same frames in one piece and byte by byte. A decoded frame encodes
/// again, and a session accepts or refuses any of them.
pub fn decoder(input: &[u8]) {
    let whole = read(std::iter::once(input));
    let bytewise = read(input.chunks(1));
    assert_eq!(whole, bytewise);
    let (frames, _) = whole;
    let mut session = Session::new(4);
    for (index, bytes) in frames.iter().enumerate() {
        let Ok(Some((frame, _))) = Decoder::new(LIMIT_BYTES * 2).decode(bytes) else {
            panic!("an encoded frame must decode: {}", bytes.escape_ascii());
        };
        if index == 1 {
            session.set_authenticated();
        }
        if session
            .handle(frame)
            .is_err_and(|error| error.to_string().is_empty())
        {
            panic!("an error must have a text");
        }
    }
}

/// Every frame encoded again, and the error that ended the stream.
fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
    let mut decoder = Decoder::new(LIMIT_BYTES);
    let (mut buffer, mut frames) = (Vec::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        loop {
            match decoder.decode(&buffer) {
                Ok(Some((frame, consumed))) => {
                    frames.push(encoded(frame));
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

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let Frame {
        kind,
        task,
        seq,
        seq_format,
        payload,
    } = frame;
    encode(&mut out, kind, task, seq, seq_format, payload);
    let Ok(Some((again, consumed))) = Decoder::new(LIMIT_BYTES * 8).decode(&out) else {
        panic!("an encoded frame must decode: {}", out.escape_ascii());
    };
    assert_eq!(consumed, out.len());
    let header = |frame: Frame<'_>| Frame {
        payload: &[],
        ..frame
    };
    assert_eq!(header(again), header(frame));
    let escaped = kind.is_json() && payload.windows(7).any(|window| window == b"##START");
    assert!(escaped || again.payload == payload);
    out
}

/// Any payload is a message or fails with an error. What is accepted is JSON.
pub fn messages(input: &[u8]) {
    let is_json = serde_json::from_slice::<&RawValue>(input).is_ok();
    for error in [
        DeviceMessage::parse(input).err(),
        ServerMessage::parse(input).err(),
        DeviceEvent::parse(input).err(),
        DeviceVoice::parse(input).err(),
        parse_auth_answer(input).err(),
    ] {
        match error {
            None => assert!(is_json),
            Some(MessageError::Malformed(detail)) => assert!(detail.len() < 300),
            Some(error) => assert!(error.to_string().len() < 600, "{error}"),
        }
    }
    if let Ok(ServerMessage::Call {
        call_id,
        method,
        params,
        input: answers,
    }) = ServerMessage::parse(input)
    {
        round_trip_call(&method, params, answers);
        round_trip_result(&call_id, &method);
    }
}

/// A call that is written in a frame is read back unchanged.
fn round_trip_call(method: &str, params: &RawValue, answers: Option<&RawValue>) {
    let call_id = switchboard_protocol::id::CallId::from_uuid(Default::default());
    let (mut json, mut out) = (Vec::new(), Vec::new());
    Call {
        call_id,
        method,
        params,
        input: answers,
    }
    .write(&mut json);
    let task = switchboard_protocol::frame::TaskId::MCP;
    encode(&mut out, Kind::Control, task, 0, SeqFormat::Plain, &json);
    let Ok(Some((frame, _))) = Decoder::new(out.len() + 1).decode(&out) else {
        panic!("an encoded frame must decode: {}", out.escape_ascii());
    };
    let read = ServerMessage::parse(frame.payload);
    let Ok(ServerMessage::Call { method: read, .. }) = read else {
        panic!("a written call must parse: {read:?}");
    };
    assert_eq!(read, method);
}

fn round_trip_result(call_id: &str, error: &str) {
    let mut json = Vec::new();
    write_result(&mut json, call_id, Some(error));
    let read = ServerMessage::parse(&json);
    let Ok(ServerMessage::Result {
        call_id: id,
        success: false,
        error: Some(read),
    }) = read
    else {
        panic!("a written result must parse: {read:?}");
    };
    assert_eq!((&*id, &*read), (call_id, error));
}

/// The first line is services, the rest params for each of them. All are refused or checked within
/// bounds.
pub fn schema_gate(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else {
        return;
    };
    let (services, params) = input.split_once('\n').unwrap_or((input, "{}"));
    let Ok(services) = serde_json::from_str::<&RawValue>(services) else {
        return;
    };
    let registration = match Registration::build(services, &SchemaLimits::default()) {
        Ok(registration) => registration,
        Err(error) => {
            assert!(error.to_string().len() < 1000, "{error}");
            return;
        }
    };
    assert_eq!(registration.json, services.get());
    assert!((services.get().len()..16 << 20).contains(&registration.memory_bytes()));
    let Ok(params) = serde_json::from_str::<&RawValue>(params) else {
        return;
    };
    for service in registration.services() {
        assert!(registration.service(&service.name).is_some());
        let checked = service.check(params);
        let at_once = service.try_check(params);
        let at_once = at_once.unwrap_or_else(|left| service.finish_check(params, left));
        assert_eq!(at_once, checked);
        let Err(violations) = checked else {
            assert!(params.get().starts_with('{'));
            continue;
        };
        assert!((1..=16).contains(&violations.len()));
        for violation in violations {
            assert!(violation.pointer.len() < 400 && violation.detail.len() < 400);
        }
    }
}
