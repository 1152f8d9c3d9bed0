//! Checks of the providers of embeddings, language models and speech. No check requests a reply or
//! audio, which would cost money.

use prometheus::Registry;
use switchboard_chat::RULE_RESPONDER;
use switchboard_completions::Providers;
use switchboard_embeddings::Endpoint;
use switchboard_runtime::outbound::Contact;
use switchboard_speech::{ConfigError, Speech};

use super::{
    Arguments, CHECK_TIMEOUT,
    finding::{Check, Finding, Problem},
    stores,
    target::Target,
};

/// What was done where nothing is configured.
const SETTINGS: &str = "read the settings";

/// Embeds a letter. Without embeddings, search matches words only.
pub(super) async fn embeddings(arguments: &Arguments, target: &Target) -> Finding {
    let check = Check::Embeddings;
    let config = &arguments.embeddings;
    let (has_key, is_configured) = (
        config.embeddings_key.is_some(),
        config.embeddings_endpoint.is_some(),
    );
    if let Some(reason) = target.unknown_settings("embeddings-key", has_key, is_configured) {
        return check.skipped(SETTINGS, reason);
    }
    let Some(endpoint) = Endpoint::from_config(&arguments.embeddings) else {
        let detail = "not configured: search matches words only".to_owned();
        return check.line(SETTINGS, Ok(detail));
    };
    let result = embed(arguments, &endpoint).await;
    let url = arguments.embeddings.embeddings_endpoint.as_ref();
    let url = url.map(ToString::to_string).unwrap_or_default();
    let url = url.trim_end_matches('/');
    check.line(format!("POST {url}/embeddings with one letter"), result)
}

async fn embed(arguments: &Arguments, endpoint: &Endpoint) -> Result<String, Problem> {
    if arguments.database.database_url.is_some() {
        let store = stores::open_store(arguments)?;
        store.vector_extension().await.map_err(|error| {
            let what = format!("{error}; until then search matches words only");
            let create = "CREATE EXTENSION IF NOT EXISTS vector";
            Problem::run(what, format!("psql \"$DATABASE_URL\" -c '{create}'"))
        })?;
    }
    let vectors = endpoint.embed(&["a"], CHECK_TIMEOUT).await;
    let vectors = vectors.map_err(|error| {
        Problem::set(
            format!("{error}; until then search matches words only"),
            "SWITCHBOARD_EMBEDDINGS_ENDPOINT, _MODEL or _KEY",
        )
    })?;
    let dimensions = vectors.first().map_or(0, Vec::len);
    Ok(format!(
        "{} returns {dimensions} dimensions",
        endpoint.model()
    ))
}

/// Why the providers of a file of the `up` are not contacted.
fn absent_key(variable: &str) -> String {
    format!("the file of the `up` refers to a key that is not stored: set {variable} here")
}

/// Contacts the providers of language models.
pub(super) async fn conversations(arguments: &Arguments, target: &Target) -> Finding {
    let check = Check::Conversations;
    let config = &arguments.completions;
    let has_key = config.completions_key.is_some();
    let is_configured = config.completions_endpoint.is_some() || config.completions_file.is_some();
    if let Some(reason) = target.unknown_settings("completions-key", has_key, is_configured) {
        return check.skipped(SETTINGS, reason);
    }
    let settings = match arguments.completions.completions_file {
        Some(_) => "the file in SWITCHBOARD_COMPLETIONS_FILE",
        None => "SWITCHBOARD_COMPLETIONS_ENDPOINT and _KEY",
    };
    let missing = Providers::missing_variables(&arguments.completions);
    if let Some(variable) = missing.first()
        && target.inherits("completions-file")
    {
        return check.skipped(SETTINGS, absent_key(variable));
    }
    match Providers::from_config(&arguments.completions) {
        Ok(Some(providers)) => {
            let contacts = providers.contact(CHECK_TIMEOUT).await;
            describe(check, contacts, settings)
        }
        Ok(None) => check.line(SETTINGS, Ok(format!("no provider: {RULE_RESPONDER}"))),
        Err(error) => check.line(SETTINGS, Err(Problem::set(error, settings))),
    }
}

/// Contacts the providers of speech in both directions.
pub(super) async fn speech(arguments: &Arguments, target: &Target) -> [Finding; 2] {
    let checks = [Check::Recognition, Check::Synthesis];
    let (stt, tts) = match arguments.speech.speech_file {
        Some(_) => (
            "the file in SWITCHBOARD_SPEECH_FILE",
            "the file in SWITCHBOARD_SPEECH_FILE",
        ),
        None => (
            "SWITCHBOARD_STT_KIND, _ENDPOINT or _API_KEY",
            "SWITCHBOARD_TTS_KIND, _ENDPOINT or _API_KEY",
        ),
    };
    let speech = match Speech::from_config(&arguments.speech, &Registry::new()) {
        Ok(speech) => speech,
        Err(ConfigError::NoKey { variable, .. }) if target.inherits("speech-file") => {
            return checks.map(|check| check.skipped(SETTINGS, absent_key(&variable)));
        }
        Err(error) => {
            let error = error.to_string();
            let both = "SWITCHBOARD_STT_*, SWITCHBOARD_TTS_* or SWITCHBOARD_SPEECH_FILE";
            return checks.map(|check| check.line(SETTINGS, Err(Problem::set(&error, both))));
        }
    };
    let config = &arguments.speech;
    let unknown = |secret: &str, has_key: bool, is_configured: bool| {
        let is_configured = is_configured || config.speech_file.is_some();
        target.unknown_settings(secret, has_key, is_configured)
    };
    let (has_stt, has_tts) = (config.stt_kind.is_some(), config.tts_kind.is_some());
    let stt_unknown = unknown("stt-api-key", config.stt_api_key.is_some(), has_stt);
    let tts_unknown = unknown("tts-api-key", config.tts_api_key.is_some(), has_tts);
    let recognition = match speech.recognizers {
        _ if stt_unknown.is_some() => checks[0].skipped(SETTINGS, stt_unknown.unwrap_or_default()),
        Some(recognizers) => describe(checks[0], recognizers.contact(CHECK_TIMEOUT).await, stt),
        None => {
            let detail = "no provider recognises speech: what users speak to a device is not \
                          understood; set --stt-kind and --stt-endpoint";
            checks[0].line(SETTINGS, Ok(detail.to_owned()))
        }
    };
    let synthesis = match speech.synthesizers {
        _ if tts_unknown.is_some() => checks[1].skipped(SETTINGS, tts_unknown.unwrap_or_default()),
        Some(synthesizers) => describe(checks[1], synthesizers.contact(CHECK_TIMEOUT).await, tts),
        None => {
            let detail = "no provider speaks: answers arrive as text; install espeak-ng, or set \
                          --tts-kind and --tts-endpoint";
            checks[1].line(SETTINGS, Ok(detail.to_owned()))
        }
    };
    [recognition, synthesis]
}

/// One line about all providers: a problem if one of them cannot be used.
fn describe(check: Check, contacts: Vec<Contact>, settings: &str) -> Finding {
    let how: Vec<_> = contacts.iter().map(|one| one.attempt.as_str()).collect();
    let how = how.join(", ");
    let states = contacts.iter().map(|contact| {
        let state = match &contact.result {
            Ok(state) | Err(state) => state,
        };
        format!("{}: {state}", contact.provider)
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let is_usable = contacts.iter().all(|contact| contact.result.is_ok());
    let result = match is_usable {
        true => Ok(states),
        false => Err(Problem::set(states, settings)),
    };
    check.line(how, result)
}
