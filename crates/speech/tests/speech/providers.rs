//! Providers over real sockets: what they return, and how they fail.

use std::{convert::Infallible, fs};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::stream;
use serde_json::{Value, json};
use switchboard_speech::{Config, Pcm, ProviderKind, RATE, Speech, SpeechError, SpokenStyle};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use crate::fixture::{TEST_TIMEOUT, last_words, providers};

const SAMPLES: [i16; 5] = [1, -2, 3, -4, 5];

/// What an API returns instead of speech; the name of the model selects it.
fn speech(model: &str) -> Response {
    let pcm: Vec<u8> = SAMPLES
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    let pieces =
        |pieces: Vec<Result<Vec<u8>, std::io::Error>>| Body::from_stream(stream::iter(pieces));
    match model {
        // Pieces that split samples.
        "split" => pieces(pcm.chunks(3).map(|piece| Ok(piece.to_vec())).collect()).into_response(),
        "wav" => [wav_header(pcm.len()), pcm].concat().into_response(),
        "half" => pcm[..5].to_vec().into_response(),
        "html" => (
            [(header::CONTENT_TYPE, "text/html")],
            "<html>Sign in</html>",
        )
            .into_response(),
        "empty" => StatusCode::OK.into_response(),
        "cut" => {
            let broken = std::io::Error::other("the connection breaks");
            // More than a server collects before it sends.
            pieces(vec![Ok(vec![0; 480_000]), Err(broken)]).into_response()
        }
        "endless" => {
            let silence = stream::repeat_with(|| Ok::<_, Infallible>(vec![0; 48_000]));
            Body::from_stream(silence).into_response()
        }
        "busy" => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "7")]).into_response(),
        _ => (
            StatusCode::UNAUTHORIZED,
            "wrong key s3cret-key-of-this-test",
        )
            .into_response(),
    }
}

fn wav_header(bytes: usize) -> Vec<u8> {
    let mut header = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    header.extend(22_050_u32.to_le_bytes());
    header.extend(44_100_u32.to_le_bytes());
    header.extend(b"\x02\0\x10\0data");
    header.extend(u32::try_from(bytes).unwrap().to_le_bytes());
    header
}

/// Serves an API, and passes on the requests.
async fn serve(servers: &mut JoinSet<()>) -> (String, mpsc::Receiver<(HeaderMap, Bytes)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel(16);
    let speak = async |State(requests): State<mpsc::Sender<(HeaderMap, Bytes)>>,
                       headers: HeaderMap,
                       body: Bytes| {
        let request: Value = serde_json::from_slice(&body).unwrap();
        requests.send((headers, body)).await.unwrap();
        let model = request["model"].as_str().unwrap();
        if model == "late" {
            std::future::pending::<()>().await;
        }
        speech(model)
    };
    let transcribe = async |State(requests): State<mpsc::Sender<(HeaderMap, Bytes)>>,
                            headers: HeaderMap,
                            body: Bytes| {
        let text = String::from_utf8_lossy(&body).into_owned();
        requests.send((headers, body)).await.unwrap();
        if text.contains("\r\n\r\nlate\r\n") {
            std::future::pending::<()>().await;
        }
        if text.contains("\r\n\r\nlong\r\n") {
            return json!({"text": "x".repeat(9_000)}).to_string();
        }
        if text.contains("\r\n\r\nhtml\r\n") {
            return "<html>Sign in</html>".to_owned();
        }
        json!({"text": " Hello there. "}).to_string()
    };
    let router = Router::new()
        .route("/v1/audio/speech", post(speak))
        .route("/v1/audio/transcriptions", post(transcribe))
        .with_state(sender);
    servers.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, requests)
}

async fn spoken(speech: &Speech) -> Result<Vec<Pcm>, SpeechError> {
    let synthesizers = speech.synthesizers.as_ref().unwrap();
    let style = SpokenStyle {
        voice: Some("warm-1".to_owned()),
        ..SpokenStyle::default()
    };
    let mut synthesis = synthesizers.begin("Hello.".to_owned(), style);
    let mut pieces = Vec::new();
    while let Some(piece) = timeout(TEST_TIMEOUT, synthesis.next()).await.unwrap() {
        pieces.push(piece?);
    }
    Ok(pieces)
}

async fn recognized(speech: &Speech) -> Result<String, SpeechError> {
    let mut recognition = speech
        .recognizers
        .as_ref()
        .unwrap()
        .begin(Some("de-DE".to_owned()));
    for piece in vec![7; RATE as usize].chunks(512) {
        recognition.push(piece);
    }
    recognition.finish();
    last_words(&mut recognition).await
}

fn openai(url: &str, model: &str) -> Value {
    json!({"name": model, "kind": "openai", "endpoint": url, "model": model})
}

#[tokio::test]
async fn api_speaks_in_any_pieces() {
    let mut servers = JoinSet::new();
    let (url, mut requests) = serve(&mut servers).await;
    for (model, rate, expect) in [
        ("split", 24_000, &SAMPLES[..]),
        ("wav", 22_050, &SAMPLES[..]),
        ("half", 24_000, &SAMPLES[..2]),
    ] {
        let speech = providers(&json!({"tts": [openai(&url, model)]}));
        let pieces = spoken(&speech).await.unwrap();
        assert!(pieces.iter().all(|piece| piece.rate == rate), "{model}");
        let samples: Vec<i16> = pieces.into_iter().flat_map(|piece| piece.samples).collect();
        assert_eq!(samples, expect, "{model}");
        let (_, body) = requests.recv().await.unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap();
        let expect =
            json!({"model": model, "input": "Hello.", "voice": "warm-1", "response_format": "pcm"});
        assert_eq!(request, expect);
    }
}

#[tokio::test]
async fn provider_that_fails_before_its_first_audio_is_replaced() {
    let mut servers = JoinSet::new();
    let (url, _requests) = serve(&mut servers).await;
    for model in ["html", "empty", "busy", "refused"] {
        let speech = providers(&json!({"tts": [openai(&url, model), openai(&url, "split")]}));
        let samples: usize = spoken(&speech)
            .await
            .unwrap()
            .iter()
            .map(|piece| piece.samples.len())
            .sum();
        assert_eq!(samples, SAMPLES.len(), "{model}");
        let config = Config {
            tts_kind: Some(ProviderKind::Openai),
            tts_endpoint: Some(url.clone()),
            tts_model: Some(model.to_owned()),
            tts_api_key: Some("s3cret-key-of-this-test".into()),
            ..Config::default()
        };
        let alone = Speech::from_config(&config, &prometheus::Registry::new()).unwrap();
        let Err(SpeechError::Failed(reason)) = spoken(&alone).await else {
            panic!("{model} speaks");
        };
        assert!(!reason.contains("s3cret"), "{reason}");
    }
}

/// Its first audio is late after 8 s, a transcript after 15 s.
#[tokio::test]
async fn provider_that_is_late_is_replaced() {
    let mut servers = JoinSet::new();
    let (url, _requests) = serve(&mut servers).await;
    let speech = providers(&json!({
        "stt": [openai(&url, "late"), openai(&url, "whisper")],
        "tts": [openai(&url, "late"), openai(&url, "split")],
    }));
    let (words, pieces) = tokio::join!(recognized(&speech), spoken(&speech));
    assert_eq!(words.unwrap(), "Hello there.");
    assert!(!pieces.unwrap().is_empty());
}

#[tokio::test]
async fn provider_that_fails_later_is_not_repeated_and_bounded() {
    let mut servers = JoinSet::new();
    let (url, mut requests) = serve(&mut servers).await;
    for model in ["cut", "endless"] {
        let speech = providers(&json!({"tts": [openai(&url, model), openai(&url, "split")]}));
        assert!(
            matches!(spoken(&speech).await, Err(SpeechError::Failed(_))),
            "{model}"
        );
        requests.recv().await.unwrap();
        assert!(requests.try_recv().is_err(), "{model}");
    }
}

#[tokio::test]
async fn api_recognises_a_wav_file() {
    let mut servers = JoinSet::new();
    let (url, mut requests) = serve(&mut servers).await;
    let speech = providers(&json!({"stt": [openai(&url, "whisper")]}));
    assert_eq!(recognized(&speech).await.unwrap(), "Hello there.");
    let (headers, body) = requests.recv().await.unwrap();
    let boundary = headers[header::CONTENT_TYPE].to_str().unwrap();
    let boundary = boundary
        .strip_prefix("multipart/form-data; boundary=")
        .unwrap();
    let text = String::from_utf8_lossy(&body);
    assert!(text.ends_with(&format!("--{boundary}--\r\n")));
    assert!(text.contains("name=\"language\"\r\n\r\nde\r\n"), "{text}");
    assert!(body.len() > 2 * RATE as usize);
    for model in ["long", "html"] {
        let speech = providers(&json!({"stt": [openai(&url, model), openai(&url, "whisper")]}));
        assert_eq!(
            recognized(&speech).await.unwrap(),
            "Hello there.",
            "{model}"
        );
    }
}

/// Serves one connection after the other, and answers the last event of a request with these bytes.
async fn wyoming(servers: &mut JoinSet<()>, last: &'static str, answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    servers.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            // Audio has line feeds as well.
            while !String::from_utf8_lossy(&line).contains(last) {
                line.clear();
                if stream.read_until(b'\n', &mut line).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(&answer).await;
        }
    });
    address
}

#[tokio::test]
async fn wyoming_server_answers_or_is_replaced() {
    let mut servers = JoinSet::new();
    let good = b"{\"type\":\"info\"}\n{\"type\":\"transcript\",\"data_length\":18}\n{\"text\": \"Hello.\"}".to_vec();
    let good = wyoming(&mut servers, "audio-stop", good).await;
    for answer in [
        &b"no event\n"[..],
        b"{\"type\":\"transcript\"}\n",
        b"{\"type\":\"error\",\"data\":{\"text\":\"no model\"}}\n",
        b"{\"type\":\"transcript\",\"data_length\":99999999}\n",
        b"{\"type\":\"transcript\",\"payload_length\":99999999}\n",
        b"{\"type\":\"transcript\",\"data_length\":50}\n{}",
        b"",
    ] {
        let bad = wyoming(&mut servers, "audio-stop", answer.to_vec()).await;
        let server = |name: &str, endpoint: &str| json!({"name": name, "kind": "wyoming", "endpoint": endpoint});
        let speech = providers(&json!({"stt": [server("bad", &bad), server("good", &good)]}));
        assert_eq!(
            recognized(&speech).await.unwrap(),
            "Hello.",
            "{}",
            answer.escape_ascii()
        );
        let alone = providers(&json!({"stt": [server("bad", &bad)]}));
        assert!(
            recognized(&alone).await.is_err(),
            "{}",
            answer.escape_ascii()
        );
    }
}

#[tokio::test]
async fn wyoming_server_speaks_in_its_own_format() {
    let mut servers = JoinSet::new();
    let speak = async |servers: &mut JoinSet<()>, answer: &[u8]| {
        let address = wyoming(servers, "synthesize", answer.to_vec()).await;
        let server = json!({"name": "piper", "kind": "wyoming", "endpoint": address});
        spoken(&providers(&json!({"tts": [server]}))).await
    };
    let stereo = b"{\"type\":\"audio-start\",\"data\":{\"rate\":22050,\"width\":2,\"channels\":2}}\n\
        {\"type\":\"audio-chunk\",\"data\":{\"rate\":22050,\"width\":2,\"channels\":2},\"payload_length\":8}\n\
        \x01\0\x03\0\x05\0\x07\0{\"type\":\"audio-stop\"}\n";
    let pieces = speak(&mut servers, stereo).await.unwrap();
    let expect = Pcm {
        samples: vec![2, 6],
        rate: 22_050,
    };
    assert_eq!(pieces, [expect]);
    let wide = b"{\"type\":\"audio-start\",\"data\":{\"rate\":22050,\"width\":4,\"channels\":1}}\n";
    assert!(speak(&mut servers, wide).await.is_err());
    let silent = b"{\"type\":\"audio-start\",\"data\":{\"rate\":22050,\"width\":2,\"channels\":1}}\n{\"type\":\"audio-stop\"}\n";
    assert!(speak(&mut servers, silent).await.is_err());
}

#[test]
fn file_names_what_is_wrong() {
    let check = |file: Value, expect: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("speech.json");
        fs::write(&path, file.to_string()).unwrap();
        let config = Config {
            speech_file: Some(path),
            ..Config::default()
        };
        let Err(error) = Speech::from_config(&config, &prometheus::Registry::new()) else {
            panic!("{file} is valid");
        };
        let mut text = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            text = format!("{text}: {source}");
        }
        assert!(text.contains(expect), "{text}");
    };
    let server =
        |endpoint: &str| json!({"stt": [{"name": "a", "kind": "wyoming", "endpoint": endpoint}]});
    check(server("localhost"), "`localhost` is not HOST:PORT");
    check(
        json!({"stt": [{"name": "a", "kind": "openai", "endpoint": "ftp://a"}]}),
        "expected http://",
    );
    check(
        json!({"stt": [{"name": "a", "kind": "command", "endpoint": " "}]}),
        "the program is missing",
    );
    check(
        json!({"stt": [{"name": "a", "kind": "psychic", "endpoint": "x"}]}),
        "unknown variant `psychic`",
    );
    check(json!({"tts": [], "sst": []}), "unknown field `sst`");
    let key = json!({"name": "a", "kind": "command", "endpoint": "x", "key_env": "SWITCHBOARD_NO_SUCH_KEY"});
    check(json!({"tts": [key]}), "SWITCHBOARD_NO_SUCH_KEY is not set");
}
