//! Which frames a session accepts, in which order.

use super::*;
use crate::frame::FrameError;

const AUTH: &str = r#"{"token":"t"}"#;
const LOG: &str = r#"{"type":"log","data":{}}"#;

fn frame<'a>(kind: Kind, task: &[u8; 8], seq: u16, payload: &'a str) -> Frame<'a> {
    let (task, payload) = (TaskId(*task), payload.as_bytes());
    Frame {
        kind,
        task,
        seq,
        seq_format: SeqFormat::Plain,
        payload,
    }
}

fn authenticated(max_open_tasks: u8) -> Session {
    let mut session = Session::new(max_open_tasks);
    session.set_authenticated();
    session
}

/// Feeds frames of `(kind, task, seq, payload)`. Returns the last one's error code, or `ok`.
fn feed(session: &mut Session, frames: &[(Kind, &[u8; 8], u16, &str)]) -> &'static str {
    let mut last = "ok";
    for &(kind, task, seq, payload) in frames {
        assert_eq!(last, "ok", "only the last frame may be invalid");
        last = match session.handle(frame(kind, task, seq, payload)) {
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
    }
    last
}

fn check(frames: &[(Kind, &[u8; 8], u16, &str)], expect: &str) {
    assert_eq!(feed(&mut authenticated(2), frames), expect, "{frames:?}");
}

#[test]
fn auth_is_required_first_and_once() {
    for kind in Kind::ALL {
        let mut session = Session::new(1);
        let expect = if kind == Kind::Auth {
            "ok"
        } else {
            "not_authenticated"
        };
        assert_eq!(
            feed(&mut session, &[(kind, b"chat    ", 0, AUTH)]),
            expect,
            "{kind:?}"
        );
        assert!(!session.is_authenticated());
    }
    check(
        &[(Kind::Auth, b"auth    ", 0, AUTH)],
        "already_authenticated",
    );
    check(&[(Kind::Goaway, b"auth    ", 0, "{}")], "unexpected_kind");
    check(&[(Kind::Error, b"auth    ", 0, "{}")], "unexpected_kind");
}

#[test]
fn bad_auth_error_omits_the_token() {
    for payload in [
        r#""s3cret""#,
        r#"{"token":5}"#,
        r#"{"token":"s3cret","token":"s3cret"}"#,
        "",
    ] {
        let error = Session::new(1)
            .handle(frame(Kind::Auth, b"auth    ", 0, payload))
            .unwrap_err();
        assert_eq!(error.code(), "bad_auth");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

#[test]
fn auth_without_token_and_ticket_is_told_what_is_missing() {
    for payload in [
        "{}",
        r#"{"client":{"name":"toy"}}"#,
        r#"{"token":"","ticket":""}"#,
    ] {
        let error = Session::new(1)
            .handle(frame(Kind::Auth, b"auth    ", 0, payload))
            .unwrap_err();
        assert_eq!(error, SessionError::AuthWithoutCredential, "{payload}");
        assert_eq!(error.code(), "bad_auth");
    }
}

#[test]
fn picture_is_counted_with_the_words_of_its_message() {
    use Kind::{Audio, End, Picture, Text};
    let a = b"task-a  ";
    for words in [Text, Audio] {
        let frames = [
            (Picture, a, 0, "x"),
            (Picture, a, 1, "x"),
            (words, a, 2, "y"),
            (Picture, a, 3, "x"),
            (words, a, 4, "y"),
            (End, a, 5, ""),
        ];
        check(&frames, "ok");
        check(&[(Picture, a, 0, "x"), (words, a, 0, "y")], "seq_gap");
        let mut session = authenticated(1);
        assert_eq!(feed(&mut session, &frames[..5]), "ok");
        let end = session.handle(frame(End, a, 5, "")).unwrap();
        assert!(matches!(end, Event::End { kind, .. } if kind == words));
    }
    check(
        &[(Picture, a, 0, "x"), (Text, a, 1, "y"), (Audio, a, 2, "z")],
        "mixed_task",
    );
    let mut session = authenticated(1);
    assert_eq!(feed(&mut session, &[(Picture, a, 0, "x")]), "ok");
    let end = session.handle(frame(End, a, 1, "")).unwrap();
    assert!(matches!(end, Event::End { kind: Text, .. }));
}

#[test]
fn text_and_audio_require_contiguous_seq() {
    use Kind::{Audio, End, Text};
    let (a, b, c) = (b"task-a  ", b"task-b  ", b"task-c  ");
    check(
        &[
            (Text, a, 0, "x"),
            (Text, a, 1, "y"),
            (End, a, 2, ""),
            (Text, a, 0, "z"),
        ],
        "ok",
    );
    check(
        &[
            (Text, a, 0, "x"),
            (Audio, b, 0, "y"),
            (Text, a, 1, "x"),
            (End, b, 1, ""),
        ],
        "ok",
    );
    check(&[(Text, a, 1, "x")], "seq_gap");
    check(&[(Text, a, 0, "x"), (Text, a, 2, "y")], "seq_gap");
    check(&[(Text, a, 0, "x"), (Text, a, 0, "x")], "seq_gap");
    check(&[(Text, a, 0, "x"), (End, a, 0, "")], "seq_gap");
    check(&[(Text, a, 0, "x"), (End, a, 2, "")], "seq_gap");
    check(&[(End, a, 0, "")], "nothing_to_end");
    check(
        &[(Text, a, 0, "x"), (End, a, 1, ""), (End, a, 2, "")],
        "nothing_to_end",
    );
    check(&[(Text, a, 0, "x"), (End, a, 1, "y")], "end_with_payload");
    check(&[(Text, a, 0, "x"), (Audio, a, 1, "y")], "mixed_task");
    check(
        &[(Text, a, 0, "x"), (Text, b, 0, "x"), (Text, c, 0, "x")],
        "too_many_tasks",
    );
}

#[test]
fn text_reserves_a_seq_for_its_end() {
    let task = b"task-a  ";
    let mut session = authenticated(1);
    for seq in 0..MAX_SEQ {
        session.handle(frame(Kind::Text, task, seq, "x")).unwrap();
    }
    let mut full = authenticated(1);
    full.open.get_or_insert_default().0.push(OpenTask {
        task: TaskId(*task),
        next: MAX_SEQ,
        kind: Kind::Text,
    });
    assert_eq!(
        feed(&mut full, &[(Kind::Text, task, MAX_SEQ, "x")]),
        "task_too_long"
    );
    assert_eq!(feed(&mut session, &[(Kind::End, task, MAX_SEQ, "")]), "ok");
}

#[test]
fn text_split_inside_a_character_is_refused() {
    let mut session = authenticated(1);
    let payload = "好".as_bytes().get(..2).unwrap();
    let broken = Frame {
        payload,
        ..frame(Kind::Text, b"task-a  ", 0, "")
    };
    let error = session.handle(broken).unwrap_err();
    assert_eq!(error.code(), "bad_text");
}

#[test]
fn control_seq_may_count_or_stay_zero() {
    use Kind::Control;
    let (mcp, other) = (b"mcp00001", b"other   ");
    check(
        &[
            (Control, mcp, 0, LOG),
            (Control, mcp, 0, LOG),
            (Control, mcp, 0, LOG),
        ],
        "ok",
    );
    check(
        &[
            (Control, mcp, 0, LOG),
            (Control, mcp, 1, LOG),
            (Control, mcp, 2, LOG),
        ],
        "ok",
    );
    check(
        &[
            (Control, mcp, 0, LOG),
            (Control, mcp, 1, LOG),
            (Control, mcp, 0, LOG),
        ],
        "ok",
    );
    check(
        &[
            (Control, mcp, 0, LOG),
            (Control, other, 0, LOG),
            (Control, other, 1, LOG),
        ],
        "ok",
    );
    check(&[(Control, mcp, 1, LOG)], "seq_gap");
    check(&[(Control, mcp, 0, LOG), (Control, mcp, 2, LOG)], "seq_gap");
    check(
        &[(Control, mcp, 0, LOG), (Control, other, 1, LOG)],
        "seq_gap",
    );
}

#[test]
fn server_uses_the_seq_format_and_task_of_the_device() {
    let mut session = authenticated(1);
    assert_eq!(
        (session.seq_format(), session.control_task()),
        (SeqFormat::Plain, TaskId::MCP)
    );
    let other = frame(Kind::Control, b"other   ", 0, LOG);
    session
        .handle(Frame {
            seq_format: SeqFormat::Bracketed,
            ..other
        })
        .unwrap();
    session.handle(other).unwrap();
    assert_eq!(session.seq_format(), SeqFormat::Bracketed);
    assert_eq!(session.control_task(), TaskId(*b"other   "));
}

#[test]
fn bad_message_is_rejected_without_closing() {
    fn check(kind: Kind, payload: &str, expect: Option<&str>) {
        match authenticated(1).handle(frame(kind, b"mcp00001", 0, payload)) {
            Ok(Event::Rejected { call_id, .. }) => assert_eq!(call_id.as_deref(), expect),
            other => panic!("{payload} is {other:?}"),
        }
    }
    check(Kind::Control, "{", None);
    check(
        Kind::Control,
        r#"{"type":"register","data":{"call_id":"r1"}}"#,
        Some("r1"),
    );
    check(
        Kind::Control,
        r#"{"type":"dance","data":{"call_id":"d1"}}"#,
        Some("d1"),
    );
    check(Kind::Event, "[]", Some("event"));
}

#[test]
fn idle_session_holds_no_memory() {
    assert!(size_of::<Session>() <= 48);
    let mut session = authenticated(8);
    assert!(session.open.is_none());
    session
        .handle(frame(Kind::Text, b"task-a  ", 0, "x"))
        .unwrap();
    session
        .handle(frame(Kind::End, b"task-a  ", 1, ""))
        .unwrap();
    assert!(session.open.is_none());
}

#[test]
fn codes_list_every_error() {
    let (task, limit) = (TaskId::MCP, 1);
    let errors = [
        SessionError::NotAuthenticated,
        SessionError::AlreadyAuthenticated,
        SessionError::BadAuth { line: 1, column: 1 },
        SessionError::SeqGap {
            task,
            expected: 1,
            got: 2,
        },
        SessionError::NothingToEnd { task },
        SessionError::TaskTooLong { task },
        SessionError::TooManyTasks { task, limit },
        SessionError::MixedTask { task },
        SessionError::EndWithPayload { task },
        SessionError::BadText { task, at: 0 },
        SessionError::UnexpectedKind { kind: Kind::Pong },
    ];
    let codes = errors.map(|error| error.code());
    assert_eq!(codes, SessionError::CODES);
    for error in [
        FrameError::Garbage,
        FrameError::UnknownKind(0),
        FrameError::BadSeq,
    ] {
        let code = SessionError::from(error).code();
        assert!(FrameError::CODES.contains(&code), "{code}");
    }
}
