//! The complete example of the supplement (S 7.1), in English and Chinese, byte for byte.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use switchboard_protocol::{
    frame::{Decoder, Frame, SeqFormat, TaskId},
    message::{DeviceMessage, ServerMessage},
    schema::{Registration, SchemaLimits},
    session::{Event, Session},
};

macro_rules! vectors {
    ($language:literal) => {
        [
            include_bytes!(concat!("vectors/", $language, "-1-register.bin")) as &[u8],
            include_bytes!(concat!("vectors/", $language, "-1-register-plain.bin")),
            include_bytes!(concat!("vectors/", $language, "-2-question.bin")),
            include_bytes!(concat!("vectors/", $language, "-3-question-end.bin")),
            include_bytes!(concat!("vectors/", $language, "-4-call.bin")),
            include_bytes!(concat!("vectors/", $language, "-4-call-plain.bin")),
            include_bytes!(concat!("vectors/", $language, "-5-result.bin")),
            include_bytes!(concat!("vectors/", $language, "-5-result-plain.bin")),
            include_bytes!(concat!("vectors/", $language, "-6-answer.bin")),
            include_bytes!(concat!("vectors/", $language, "-7-answer-end.bin")),
        ]
    };
}

const ENGLISH: [&[u8]; 10] = vectors!("en");
const CHINESE: [&[u8]; 10] = vectors!("zh");

/// The frame of a vector, decoded whole and after every split.
fn frame(vector: &[u8]) -> Frame<'_> {
    for at in 0..vector.len() {
        let mut decoder = Decoder::new(4096);
        let early = decoder.decode(vector.get(..at).unwrap_or_default());
        assert_eq!(early, Ok(None), "cut at {at}");
        assert!(
            matches!(decoder.decode(vector), Ok(Some((_, consumed))) if consumed == vector.len())
        );
    }
    match Decoder::new(4096).decode(vector) {
        Ok(Some((frame, _))) => frame,
        other => panic!("{}: {other:?}", vector.escape_ascii()),
    }
}

fn conversation(vectors: [&[u8]; 10], question: &str, answer: &str) {
    let [
        register,
        register_plain,
        question_text,
        question_end,
        call,
        call_plain,
        result,
        result_plain,
        answer_text,
        answer_end,
    ] = vectors.map(frame);
    let mut session = Session::new(1);
    session.set_authenticated();
    assert_eq!(
        (register.seq_format, register_plain.seq_format),
        (SeqFormat::Bracketed, SeqFormat::Plain)
    );
    for register in [register, register_plain] {
        let event = session.handle(register);
        let Ok(Event::Message(DeviceMessage::Register {
            call_id: None,
            services,
        })) = event
        else {
            panic!("{event:?}");
        };
        let registration = Registration::build(services, &SchemaLimits::default());
        let registration = registration.unwrap_or_else(|error| panic!("{error}"));
        let service = registration.service("get_current_time");
        for call in [call, call_plain] {
            let message = ServerMessage::parse(call.payload);
            let Ok(ServerMessage::Call {
                call_id,
                method,
                params,
                input: None,
            }) = message
            else {
                panic!("{message:?}");
            };
            assert_eq!((&*call_id, &*method), ("call_001", "get_current_time"));
            assert_eq!(service.map(|service| service.check(params)), Some(Ok(())));
        }
    }
    assert_eq!(
        (session.seq_format(), session.control_task()),
        (SeqFormat::Bracketed, TaskId::MCP)
    );

    let task = TaskId(*b"task1234");
    let event = session.handle(question_text);
    assert!(
        matches!(event, Ok(Event::Text { task: t, seq: 0, text }) if t == task && text == question)
    );
    assert!(matches!(session.handle(question_end), Ok(Event::End { task: t, .. }) if t == task));
    for result in [result, result_plain] {
        let event = session.handle(result);
        let Ok(Event::Message(DeviceMessage::Result(result))) = event else {
            panic!("{event:?}");
        };
        assert_eq!((&*result.call_id, result.success), ("call_001", true));
        assert!(result.raw.get().contains("2025-01-22 14:30:25"));
    }
    assert_eq!(
        (answer_text.payload, answer_text.seq),
        (answer.as_bytes(), 0)
    );
    assert_eq!((answer_end.payload, answer_end.seq), (&b""[..], 1));
}

#[test]
fn english_example_of_the_supplement() {
    conversation(ENGLISH, "What time is it?", "It is 14:30:25 on 22 Jan 2025");
}

#[test]
fn chinese_example_of_the_supplement() {
    conversation(CHINESE, "现在几点了?", "现在是2025年1月22日14点30分25秒");
}
