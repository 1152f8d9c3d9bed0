//! Compatibility tests of the device protocol, access tokens and identifiers.
//!
//! Devices in the field and tokens in use were made by other releases. See `tests/compatibility`
//! for the frozen values.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use serde_json::value::RawValue;
use switchboard_protocol::{
    frame::{Decoder, FrameError, Kind, SeqFormat, TaskId, encode, encode_stream},
    id::{
        ApiKeyId, AuditEntryId, CallId, ConversationId, DeliveryId, MemoryId, NpcId, OrgId,
        PictureId, RecordingId, SkillsBookId, TemplateId, TokenId, VoiceId, WebhookId,
    },
    message::{
        AuthAccepted, AuthRequest, Call, ClientInfo, DeviceEvent, DeviceMessage, ErrorNotice,
        Goaway, ResumeTicket, ServerMessage, parse_auth_answer, write_auth_accepted,
        write_auth_refused, write_cancel, write_result,
    },
    outcome::{Delivered, Outcome},
    schema::Digest,
    session::SessionError,
    token::{AccessError, Claims, SigningKey, VerifyingKey, VerifyingKeys},
};
use switchboard_test_support::snapshot;
use uuid::Uuid;

const TASK: TaskId = TaskId(*b"task0001");

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn frames_keep_their_bytes() {
    let mut lines = Vec::new();
    let mut seen = Vec::new();
    for kind in Kind::ALL {
        for format in [SeqFormat::Plain, SeqFormat::Bracketed] {
            let payload: &[u8] = match kind {
                Kind::End | Kind::Cancel => b"",
                Kind::Audio => b"\x00\xff#",
                _ if kind.is_json() => "{\"现\":\"##\"}".as_bytes(),
                _ => "现在 ##".as_bytes(),
            };
            let mut frame = Vec::new();
            encode(&mut frame, kind, TASK, 42, format, payload);
            lines.push(frame.escape_ascii().to_string());
            let mut decoder = Decoder::new(4096);
            let (read, length) = decoder.decode(&frame).unwrap().unwrap();
            assert_eq!((read.kind, read.task, read.seq), (kind, TASK, 42));
            assert_eq!((read.payload, length), (payload, frame.len()));
        }
        seen.push(kind.byte());
    }
    let known: Vec<u8> = (0..=u8::MAX)
        .filter(|byte| Kind::from_byte(*byte).is_some())
        .collect();
    assert_eq!(seen, known);
    // Delimiters inside a payload: escaped in JSON, cut in a stream.
    let mut frame = Vec::new();
    let json = br###"{"a":"##START##END"}"###;
    encode(
        &mut frame,
        Kind::Control,
        TaskId::MCP,
        9999,
        SeqFormat::Plain,
        json,
    );
    lines.push(frame.escape_ascii().to_string());
    frame.clear();
    encode_stream(&mut frame, Kind::Text, TASK, 0, "a##END现".as_bytes(), 6).unwrap();
    lines.push(frame.escape_ascii().to_string());
    snapshot::check("protocol-frames.txt", lines);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one sequence of cases on one fixture"
)]
fn messages_of_the_server_keep_their_json() {
    let call_id = CallId::from_uuid(Uuid::from_u128(0xabcd));
    let raw: &RawValue = serde_json::from_str(r#"{ "a" : 1 }"#).unwrap();
    let accepted = AuthAccepted {
        device_id: "toy-1".parse().unwrap(),
        session: "s1".into(),
        heartbeat_s: 30,
        max_frame_bytes: 262_144,
        audio: None,
        audio_notice: None,
        locale_notice: None,
        ticket: None,
        ticket_ttl_s: None,
    };
    let resumable = AuthAccepted {
        ticket: Some(ResumeTicket::new("dGlja2V0".into())),
        ticket_ttl_s: Some(86_400),
        ..accepted.clone()
    };
    let call = |input| {
        let (method, params) = ("现在", raw);
        written(|out| {
            let call = Call {
                call_id,
                method,
                params,
                input,
            };
            call.write(out);
        })
    };
    let goaway = Goaway {
        reason: "drain".to_owned(),
        retry_after_ms: 7,
    };
    let error = ErrorNotice {
        code: "seq_gap".to_owned(),
        message: "m".to_owned(),
    };
    let control = [
        call(None),
        call(Some(raw)),
        written(|out| write_result(out, "register", None)),
        written(|out| write_result(out, "r1", Some("no"))),
        written(|out| write_cancel(out, call_id)),
    ];
    let other = [
        written(|out| write_auth_accepted(out, &accepted)),
        written(|out| write_auth_refused(out, "token_expired", "too old")),
        serde_json::to_string(&goaway).unwrap(),
        serde_json::to_string(&error).unwrap(),
        written(|out| write_auth_accepted(out, &resumable)),
    ];
    let read = |json: &String| match ServerMessage::parse(json.as_bytes()).unwrap() {
        ServerMessage::Call {
            call_id,
            method,
            params,
            input,
        } => format!(
            "{call_id} {method} {} {:?}",
            params.get(),
            input.map(RawValue::get)
        ),
        ServerMessage::Result {
            call_id,
            success,
            error,
        } => format!("{call_id} {success} {error:?}"),
        ServerMessage::Cancel { call_id } => format!("{call_id}"),
    };
    let lines = control
        .iter()
        .map(|json| format!("{json} -> {}", read(json)));
    snapshot::check(
        "protocol-server-messages.txt",
        lines.chain(other.iter().cloned()),
    );
    assert_eq!(parse_auth_answer(other[0].as_bytes()), Ok(Ok(accepted)));
    let refused = Err("too old (token_expired)".to_owned());
    assert_eq!(parse_auth_answer(other[1].as_bytes()), Ok(refused));
    assert_eq!(serde_json::from_str::<Goaway>(&other[2]).unwrap(), goaway);
    assert_eq!(
        serde_json::from_str::<ErrorNotice>(&other[3]).unwrap(),
        error
    );
    assert_eq!(parse_auth_answer(other[4].as_bytes()), Ok(Ok(resumable)));
}

/// What devices send, and what is read of it.
const DEVICE_MESSAGES: [(&str, &str); 8] = [
    (
        r#"{"type":"register","data":{"services":{"a":{}}}}"#,
        r#"register None {"a":{}}"#,
    ),
    (
        r#"{"type":"register","data":{"call_id":"r1","services":{}},"added_later":1}"#,
        r#"register Some("r1") {}"#,
    ),
    (
        r#"{"type":"result","data":{"call_id":"c","result":{"success":true,"data":[1]}}}"#,
        r#"result c true {"success":true,"data":[1]}"#,
    ),
    (
        r#"{"type":"result","data":{"call_id":"c","result":{"success":false,"error":"坏"}}}"#,
        r#"result c false {"success":false,"error":"坏"}"#,
    ),
    (
        r#"{"type":"progress","data":{"call_id":"c","progress":1,"total":2,"message":"m"}}"#,
        r#"progress c {"call_id":"c","progress":1,"total":2,"message":"m"}"#,
    ),
    (
        r#"{"type":"log","data":{"level":"info","message":"m"}}"#,
        r#"log None {"level":"info","message":"m"}"#,
    ),
    (
        r#"{"type":"call","data":{"call_id":"c"}}"#,
        r#"unknown_message Some("c")"#,
    ),
    ("{", "malformed_json None"),
];

#[test]
fn messages_of_devices_are_read_as_before() {
    for (json, expected) in DEVICE_MESSAGES {
        let read = match DeviceMessage::parse(json.as_bytes()) {
            Ok(DeviceMessage::Register { call_id, services }) => {
                format!("register {call_id:?} {}", services.get())
            }
            Ok(DeviceMessage::Result(result)) => {
                let (call_id, raw) = (result.call_id, result.raw.get());
                format!("result {call_id} {} {raw}", result.success)
            }
            Ok(DeviceMessage::Progress { call_id, raw }) => {
                format!("progress {call_id} {}", raw.get())
            }
            Ok(DeviceMessage::Log { call_id, raw }) => format!("log {call_id:?} {}", raw.get()),
            Err(error) => format!("{} {:?}", error.code(), error.call_id()),
        };
        assert_eq!(
            read, expected,
            "compatibility break: {json} is read differently"
        );
    }
    let auth = r#"{"token":"t","client":{"name":"toy","version":"1"}}"#;
    let read: AuthRequest<'_> = serde_json::from_str(auth).unwrap();
    assert_eq!(
        (&*read.token, &*read.client.as_ref().unwrap().name),
        ("t", "toy")
    );
    let request = AuthRequest {
        token: "t".into(),
        ticket: "".into(),
        client: Some(ClientInfo {
            name: "toy".into(),
            version: "1".into(),
            audio: None,
        }),
        locale: None,
    };
    assert_eq!(
        serde_json::to_string(&request).unwrap(),
        auth,
        "compatibility break"
    );
    let auth = r#"{"token":"t","ticket":"k"}"#;
    let read: AuthRequest<'_> = serde_json::from_str(auth).unwrap();
    assert_eq!((&*read.token, &*read.ticket), ("t", "k"));
    let event = DeviceEvent::parse(r#"{"name":"button","data":{"id": 1}}"#.as_bytes()).unwrap();
    assert_eq!(
        (&*event.name, event.data.unwrap().get()),
        ("button", r#"{"id": 1}"#)
    );
}

/// A token as an earlier release signed it, and the public key that verifies it.
const TOKEN: &str = include_str!("../../../tests/compatibility/token.txt");
const PUBLIC_KEY: &str = include_str!("../../../tests/compatibility/public-key.json");

#[test]
fn access_tokens_and_keys_keep_their_form() {
    let claims = Claims {
        id: TokenId::from_uuid(Uuid::from_u128(1)),
        org: OrgId::from_uuid(Uuid::from_u128(2)),
        subject: "device:toy-1".parse().unwrap(),
        scopes: "device call read admin".parse().unwrap(),
        restrictions: None,
        issued_at: 1_800_000_000,
        expires_at: 1_900_000_000,
    };
    let key = SigningKey::from_seed(&[7; 32]);
    let (token, public) = (TOKEN.trim_end(), PUBLIC_KEY.trim_end());
    assert_eq!(
        key.sign(&claims).unwrap(),
        token,
        "compatibility break: the form of tokens"
    );
    let written = serde_json::to_string(&key.verifying_key()).unwrap();
    assert_eq!(
        written, public,
        "compatibility break: the form of public keys"
    );
    let public: VerifyingKey = serde_json::from_str(public).unwrap();
    let keys = VerifyingKeys::new([public]).unwrap();
    assert_eq!(keys.verify(token, 1_850_000_000), Ok(claims));
}

#[test]
fn identifiers_and_codes_keep_their_text() {
    let id = Uuid::from_u128(0xabcd);
    let mut lines = vec![
        ApiKeyId::from_uuid(id).to_string(),
        CallId::from_uuid(id).to_string(),
        DeliveryId::from_uuid(id).to_string(),
        MemoryId::from_uuid(id).to_string(),
        NpcId::from_uuid(id).to_string(),
        OrgId::from_uuid(id).to_string(),
        PictureId::from_uuid(id).to_string(),
        RecordingId::from_uuid(id).to_string(),
        SkillsBookId::from_uuid(id).to_string(),
        TemplateId::from_uuid(id).to_string(),
        TokenId::from_uuid(id).to_string(),
        VoiceId::from_uuid(id).to_string(),
        WebhookId::from_uuid(id).to_string(),
        AuditEntryId::from_uuid(id).to_string(),
        ConversationId::from_uuid(id).to_string(),
        format!("digest {}", Digest::compute(b"{}")),
    ];
    for outcome in Outcome::ALL {
        let json = serde_json::to_string(&outcome).unwrap();
        assert_eq!(json.trim_matches('"'), outcome.as_str());
        assert_eq!(Outcome::from_code(outcome.code()), Some(outcome));
        let delivered = outcome.delivered().as_str();
        lines.push(format!(
            "outcome {} {} {delivered}",
            outcome.code(),
            outcome.as_str()
        ));
    }
    for delivered in [Delivered::No, Delivered::Unknown, Delivered::Yes] {
        let json = serde_json::to_string(&delivered).unwrap();
        lines.push(format!("delivered {} {json}", delivered as u8));
    }
    lines.extend(FrameError::CODES.map(|code| format!("frame error {code}")));
    lines.extend(SessionError::CODES.map(|code| format!("session error {code}")));
    lines.extend(AccessError::CODES.map(|code| format!("token error {code}")));
    snapshot::check("protocol-names.txt", lines);
}
