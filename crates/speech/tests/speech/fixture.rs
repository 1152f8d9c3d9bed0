//! What the tests of providers share.

use std::{fs, time::Duration};

use serde_json::Value;
use switchboard_speech::{Config, Recognition, Speech, SpeechError, Words};
use tokio::time::timeout;

pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The providers of a file.
pub fn providers(file: &Value) -> Speech {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("speech.json");
    fs::write(&path, file.to_string()).unwrap();
    let config = Config {
        speech_file: Some(path),
        ..Config::default()
    };
    Speech::from_config(&config, &prometheus::Registry::new()).unwrap()
}

/// The words of an utterance that is complete.
pub async fn last_words(recognition: &mut Recognition) -> Result<String, SpeechError> {
    loop {
        let words = timeout(TEST_TIMEOUT, recognition.next()).await.unwrap();
        if let Words::Final(words) = words? {
            return Ok(words);
        }
    }
}
