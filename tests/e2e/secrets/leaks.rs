//! The search for secrets in outputs.

use std::{fmt::Write as _, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The shortest part of a secret that is searched for.
const MIN_PART_CHARS: usize = 12;
/// Bytes around a finding that the report shows.
const CONTEXT: usize = 60;

/// Secrets by name, and what was written where.
#[derive(Default)]
pub(super) struct Witness {
    /// Names and forms of secrets that no output may contain.
    forms: Vec<(String, Vec<u8>)>,
    outputs: Vec<(String, Vec<u8>)>,
}

/// Both halves of a text, or all of it if they would be short.
fn parts(text: &str) -> Vec<&str> {
    let half = text.len() / 2;
    if half < MIN_PART_CHARS {
        return vec![text];
    }
    vec![&text[..half], &text[half..]]
}

/// How a text may be found in another encoding. Base64 has three forms, which depend on what is
/// before the text; the characters at its ends depend on its neighbours.
fn encodings(secret: &str) -> Vec<String> {
    let mut hex = String::new();
    for byte in secret.bytes() {
        write!(hex, "{byte:02x}").unwrap();
    }
    let in_base64 = (0..3).map(|before| {
        let text = [&b"xx"[..before.min(2)], secret.as_bytes()].concat();
        let encoded = STANDARD.encode(text);
        encoded[4..encoded.len() - 4].to_owned()
    });
    in_base64.chain([secret.to_owned(), hex]).collect()
}

impl Witness {
    /// Adds a secret of which no half may occur anywhere.
    pub(super) fn keep_secret(&mut self, name: &str, secret: &str) {
        assert!(secret.len() >= MIN_PART_CHARS, "{name} is too short");
        for encoded in encodings(secret) {
            let found = parts(&encoded).into_iter();
            self.forms
                .extend(found.map(|part| (name.to_owned(), part.into())));
        }
    }

    pub(super) fn saw(&mut self, place: impl Into<String>, output: impl Into<Vec<u8>>) {
        self.outputs.push((place.into(), output.into()));
    }

    /// Runs a command, and records what it prints. Returns its exit code.
    pub(super) fn run(&mut self, place: &str, command: &mut Command) -> Option<i32> {
        let output = command.output().unwrap();
        self.saw(place, [output.stdout, output.stderr].concat());
        output.status.code()
    }

    /// Sends a request, and records the response. Returns its status.
    pub(super) async fn send(&mut self, place: &str, request: reqwest::RequestBuilder) -> u16 {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        self.saw(
            format!("headers of {place}"),
            format!("{:?}", response.headers()),
        );
        self.saw(
            format!("{status} to {place}"),
            response.bytes().await.unwrap(),
        );
        status
    }

    /// Where secrets were found.
    fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        for (place, output) in &self.outputs {
            for (name, form) in &self.forms {
                let mut windows = output.windows(form.len());
                if let Some(at) = windows.position(|bytes| bytes == form) {
                    let end = output.len().min(at + form.len() + CONTEXT);
                    let around = String::from_utf8_lossy(&output[at.saturating_sub(CONTEXT)..end]);
                    leaks.push(format!("{name} in {place}: …{around}…"));
                }
            }
        }
        leaks
    }

    pub(super) fn assert_nothing_leaked(&self) {
        let leaks = self.leaks();
        assert!(leaks.is_empty(), "{}", leaks.join("\n"));
        let bytes: usize = self.outputs.iter().map(|(_, output)| output.len()).sum();
        println!(
            "searched {} forms of secrets in {} outputs of {bytes} bytes",
            self.forms.len(),
            self.outputs.len()
        );
    }
}

#[test]
fn every_form_of_a_secret_is_found() {
    let secret = "4f0c9be2d1a84477b3e05d62c8a19f35";
    let mut witness = Witness::default();
    witness.keep_secret("key", secret);
    let check = |output: &str| {
        let mut seen = Witness {
            forms: witness.forms.clone(),
            ..Witness::default()
        };
        seen.saw("a log", output);
        seen.leaks().len()
    };
    for before in ["", "u", "us", "user:"] {
        let encoded = STANDARD.encode(format!("{before}{secret}"));
        assert_eq!(check(&encoded), 2, "{before}");
    }
    assert_eq!(check(&format!("key={}…", &secret[..16])), 1);
    assert_eq!(check(&format!("key=…{}", &secret[16..])), 1);
    assert_eq!(check(&encodings(secret)[4]), 2);
    assert_eq!(check(&secret[1..15]), 0);
}
