//! Recognition while the user speaks: words of the beginning, requests in pauses, and WebSockets.

use axum::{
    Router,
    extract::{
        Path, State, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse as _,
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};
use switchboard_speech::{Config, RATE, Recognition, Speech, SpeechError, Words};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use crate::fixture::{TEST_TIMEOUT, last_words, providers};

fn begin(speech: &Speech) -> Recognition {
    let recognizers = speech.recognizers.as_ref().unwrap();
    recognizers.begin(Some("de-DE".to_owned()))
}

async fn next(recognition: &mut Recognition) -> Result<Words, SpeechError> {
    timeout(TEST_TIMEOUT, recognition.next()).await.unwrap()
}

/// Polls a recognition until its server reports something, and checks that it does not end meanwhile.
async fn wait_for(recognition: &mut Recognition, reports: &mut mpsc::Receiver<Value>) -> Value {
    let report = async {
        loop {
            tokio::select! {
                biased;
                report = reports.recv() => return report.unwrap(),
                words = recognition.next() => assert!(matches!(words, Ok(Words::Partial(_)))),
            }
        }
    };
    timeout(TEST_TIMEOUT, report).await.unwrap()
}

/// What a realtime server received.
type Reports = mpsc::Sender<Value>;

/// Serves the realtime interfaces: `openai`, `vllm`, and some that fail.
async fn realtime(servers: &mut JoinSet<()>) -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1/realtime", listener.local_addr().unwrap());
    let (sender, reports) = mpsc::channel(1_000);
    let serve = async |Path(kind): Path<String>,
                       State(reports): State<Reports>,
                       headers: HeaderMap,
                       upgrade: WebSocketUpgrade| {
        if kind == "unauthorized" {
            return (StatusCode::UNAUTHORIZED, "wrong key s3cret-key").into_response();
        }
        let key = headers[header::AUTHORIZATION].to_str().unwrap();
        assert_eq!(key, "Bearer s3cret-key");
        upgrade.on_upgrade(async move |socket| converse(socket, &kind, reports).await)
    };
    let router = Router::new()
        .route("/v1/realtime/{kind}", get(serve))
        .with_state(sender);
    servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, reports)
}

async fn converse(mut socket: WebSocket, kind: &str, reports: Reports) {
    let is_openai = kind != "vllm";
    let created = if is_openai {
        json!({"type": "session.created", "session": {"object": "realtime.session"}})
    } else {
        json!({"type": "session.created", "id": "sess-1", "created": 1})
    };
    let send = async |socket: &mut WebSocket, event: Value| {
        let _ = socket.send(Message::text(event.to_string())).await;
    };
    match kind {
        "text" => {
            let _ = socket.send(Message::text("<html> s3cret-key")).await;
            return;
        }
        "other" => return send(&mut socket, json!({"type": "hello s3cret-key"})).await,
        "rejected" => {
            let error = json!({"type": "error", "error": {"message": "no such key: s3cret-key"}});
            return send(&mut socket, error).await;
        }
        "huge" => return send(&mut socket, json!({"type": "x".repeat(100_000)})).await,
        _ => send(&mut socket, created).await,
    }
    let mut samples = 0;
    while let Some(Ok(Message::Text(text))) = socket.recv().await {
        let event: Value = serde_json::from_str(&text).unwrap();
        match event["type"].as_str().unwrap() {
            "input_audio_buffer.append" => {
                let audio = BASE64.decode(event["audio"].as_str().unwrap()).unwrap();
                samples += audio.len() / 2;
                if kind == "vllm" && samples == RATE as usize {
                    send(
                        &mut socket,
                        json!({"type": "transcription.delta", "delta": " Guten"}),
                    )
                    .await;
                }
                continue;
            }
            "input_audio_buffer.commit" if kind == "failed" => {
                let error = json!({"message": "no s3cret-key minutes left"});
                let event = "conversation.item.input_audio_transcription.failed";
                send(&mut socket, json!({"type": event, "error": error})).await;
            }
            "input_audio_buffer.commit" if is_openai => {
                let name = "conversation.item.input_audio_transcription";
                let delta = json!({"type": format!("{name}.delta"), "delta": "Guten"});
                send(&mut socket, delta).await;
                let done =
                    json!({"type": format!("{name}.completed"), "transcript": "Guten Tag. "});
                send(&mut socket, done).await;
            }
            "input_audio_buffer.commit" if event["final"] == true => {
                send(
                    &mut socket,
                    json!({"type": "transcription.done", "text": "Guten Tag."}),
                )
                .await;
            }
            _ => {}
        }
        let report = json!({"samples": samples, "event": event});
        reports.send(report).await.unwrap();
    }
}

fn with_key(url: &str, kind: &str) -> Speech {
    let config = Config {
        stt_kind: Some(switchboard_speech::ProviderKind::Realtime),
        stt_endpoint: Some(format!("{url}/{kind}")),
        stt_model: Some("m-1".to_owned()),
        stt_api_key: Some("s3cret-key".into()),
        ..Config::default()
    };
    Speech::from_config(&config, &prometheus::Registry::new()).unwrap()
}

#[tokio::test]
async fn openai_receives_24_khz_and_one_commit() {
    let mut servers = JoinSet::new();
    let (url, mut reports) = realtime(&mut servers).await;
    let mut recognition = begin(&with_key(&url, "openai"));
    let update = wait_for(&mut recognition, &mut reports).await;
    let expect = json!({
        "type": "session.update",
        "session": {"type": "transcription", "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "transcription": {"model": "m-1", "language": "de"},
            "turn_detection": null,
        }}},
    });
    assert_eq!(update, json!({"samples": 0, "event": expect}));
    for _ in 0..10 {
        recognition.push(&[1_000; 1_600]);
    }
    recognition.finish();
    let partial = next(&mut recognition).await.unwrap();
    assert_eq!(partial, Words::Partial("Guten".to_owned()));
    let words = next(&mut recognition).await.unwrap();
    assert_eq!(words, Words::Final("Guten Tag.".to_owned()));
    let commit = reports.recv().await.unwrap();
    let event = json!({"type": "input_audio_buffer.commit"});
    assert_eq!(commit, json!({"samples": 24_000, "event": event}));
}

#[tokio::test]
async fn vllm_recognises_while_the_user_speaks() {
    let mut servers = JoinSet::new();
    let (url, mut reports) = realtime(&mut servers).await;
    let mut recognition = begin(&with_key(&url, "vllm"));
    for expect in [
        json!({"type": "session.update", "model": "m-1"}),
        json!({"type": "input_audio_buffer.commit"}),
    ] {
        assert_eq!(
            wait_for(&mut recognition, &mut reports).await["event"],
            expect
        );
    }
    recognition.push(&[1_000; RATE as usize]);
    let partial = next(&mut recognition).await.unwrap();
    assert_eq!(partial, Words::Partial("Guten".to_owned()));
    recognition.push(&[1_000; 160]);
    recognition.finish();
    let words = next(&mut recognition).await.unwrap();
    assert_eq!(words, Words::Final("Guten Tag.".to_owned()));
    let commit = reports.recv().await.unwrap();
    let event = json!({"type": "input_audio_buffer.commit", "final": true});
    assert_eq!(commit, json!({"samples": RATE + 160, "event": event}));
}

#[tokio::test]
async fn socket_that_fails_is_replaced_and_keeps_its_key() {
    let mut servers = JoinSet::new();
    let (url, _reports) = realtime(&mut servers).await;
    let (good, _transcripts) = wyoming(&mut servers).await;
    for kind in [
        "unauthorized",
        "text",
        "other",
        "rejected",
        "huge",
        "failed",
    ] {
        let mut recognition = begin(&with_key(&url, kind));
        recognition.push(&[1_000; 1_600]);
        recognition.finish();
        let Err(SpeechError::Failed(reason)) = next(&mut recognition).await else {
            panic!("{kind} succeeds");
        };
        assert!(!reason.contains("s3cret"), "{reason}");
    }
    let closed = json!({"name": "closed", "kind": "realtime", "endpoint": "ws://127.0.0.1:9/"});
    let speech = providers(&json!({"stt": [closed, good]}));
    let mut recognition = begin(&speech);
    recognition.push(&[1_000; 1_600]);
    recognition.finish();
    let words = last_words(&mut recognition).await.unwrap();
    assert_eq!(words, "1600 samples");
}

/// Serves a Wyoming server whose words are the length of the audio; reports each connection that has
/// its end.
async fn wyoming(servers: &mut JoinSet<()>) -> (Value, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let (sender, reports) = mpsc::channel(16);
    servers.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(recognise(BufReader::new(stream), sender.clone()));
        }
    });
    let provider = json!({"name": "wyoming", "kind": "wyoming", "endpoint": endpoint});
    (provider, reports)
}

async fn recognise(mut stream: BufReader<TcpStream>, reports: Reports) -> std::io::Result<()> {
    let mut samples = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let event: Value = serde_json::from_str(&line).unwrap();
        let mut payload = vec![0; event["payload_length"].as_u64().unwrap() as usize];
        stream.read_exact(&mut payload).await?;
        samples += payload.len() / 2;
        if event["type"] == "audio-stop" {
            break;
        }
    }
    reports.send(samples.into()).await.unwrap();
    for (kind, text) in [
        ("transcript-chunk", "160"),
        ("transcript", &*format!("{samples} samples")),
    ] {
        let event = json!({"type": kind, "data": {"text": text}});
        stream.write_all(format!("{event}\n").as_bytes()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn pause_requests_the_transcript_and_speech_cancels_it() {
    let mut servers = JoinSet::new();
    let (provider, mut reports) = wyoming(&mut servers).await;
    let speech = providers(&json!({"stt": [provider]}));
    let mut recognition = begin(&speech);
    recognition.push(&[1_000; 1_600]);
    recognition.pause();
    // This belongs to the utterance only if the user continues.
    recognition.push(&[0; 800]);
    assert_eq!(wait_for(&mut recognition, &mut reports).await, 1_600);
    while next(&mut recognition).await.unwrap() != Words::Partial("1600 samples".to_owned()) {}
    recognition.resume();
    recognition.push(&[1_000; 400]);
    recognition.pause();
    assert_eq!(wait_for(&mut recognition, &mut reports).await, 2_800);
    recognition.push(&[0; 800]);
    recognition.finish();
    assert_eq!(last_words(&mut recognition).await.unwrap(), "2800 samples");
    assert!(reports.try_recv().is_err(), "one request for each pause");
}

#[tokio::test]
async fn early_requests_are_few_and_can_be_switched_off() {
    let mut servers = JoinSet::new();
    let (mut provider, mut reports) = wyoming(&mut servers).await;
    let speech = providers(&json!({"stt": [provider.clone()]}));
    let mut recognition = begin(&speech);
    for _ in 0..3 {
        recognition.push(&[1_000; 100]);
        recognition.pause();
        wait_for(&mut recognition, &mut reports).await;
        recognition.resume();
    }
    provider["early"] = false.into();
    let late = providers(&json!({"stt": [provider]}));
    for mut recognition in [recognition, begin(&late)] {
        recognition.push(&[1_000; 100]);
        recognition.pause();
        recognition.push(&[1_000; 100]);
        recognition.finish();
        last_words(&mut recognition).await.unwrap();
        let samples = reports.recv().await.unwrap().as_u64().unwrap();
        // What follows the pause at the end does not belong to the utterance.
        assert!(matches!(samples, 500 | 100), "{samples}");
    }
}

#[tokio::test]
async fn stream_of_a_provider_that_is_not_asked_early_goes_on_after_a_pause() {
    let mut servers = JoinSet::new();
    let (url, mut reports) = realtime(&mut servers).await;
    let mut recognition = begin(&with_key(&url, "openai"));
    wait_for(&mut recognition, &mut reports).await;
    for _ in 0..2 {
        recognition.push(&[1_000; 1_600]);
        recognition.pause();
        recognition.push(&[0; 800]);
        recognition.resume();
    }
    recognition.finish();
    let words = last_words(&mut recognition).await;
    assert_eq!(words, Ok("Guten Tag.".to_owned()));
    // One session, which has received all of it.
    let commit = reports.recv().await.unwrap();
    assert_eq!(commit["event"]["type"], "input_audio_buffer.commit");
    assert_eq!(commit["samples"], 2 * (1_600 + 800) * 3 / 2);
    assert!(reports.try_recv().is_err());
}
