//! The AUTH exchange: the device's access token or resume ticket, and the answer. (ours)
//!
//! Invariant: both appear in the payload only, not in `Debug` output or an error. (I16)

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{AudioTerms, MessageError, utf8, write_tagged};
use crate::{
    id::DeviceId,
    locale::{Locale, LocaleError},
};

/// Bytes of an invalid locale in its notice.
const MAX_QUOTED_BYTES: usize = 40;

/// The first message of a device.
#[derive(Serialize, Deserialize)]
pub struct AuthRequest<'a> {
    /// An access token with the scope `device`; empty if there is only a ticket.
    #[serde(default, borrow, skip_serializing_if = "str::is_empty")]
    pub token: Cow<'a, str>,
    /// The [`ResumeTicket`] of an earlier connection; empty without one.
    #[serde(default, borrow, skip_serializing_if = "str::is_empty")]
    pub ticket: Cow<'a, str>,
    /// The device's software, for operators.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo<'a>>,
    /// The language of the device's users, for [`Self::locale`]. An invalid one does not refuse the
    /// device.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub locale: Option<&'a RawValue>,
}

impl AuthRequest<'_> {
    /// The language of the device's users, or what is wrong with it.
    #[must_use]
    pub fn locale(&self) -> Option<Result<Locale, String>> {
        let raw = self.locale?.get();
        let locale = serde_json::from_str::<Cow<'_, str>>(raw).ok();
        let locale = locale.and_then(|text| text.parse().ok());
        Some(locale.ok_or_else(|| {
            let end = raw.floor_char_boundary(MAX_QUOTED_BYTES);
            let quoted = raw.get(..end).unwrap_or_default();
            let more = if end < raw.len() { "…" } else { "" };
            format!("`locale` is {quoted}{more}: it {LocaleError}. It is ignored.")
        }))
    }
}

impl fmt::Debug for AuthRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthRequest")
            .field("client", &self.client)
            .field("locale", &self.locale)
            .finish_non_exhaustive()
    }
}

/// The name and version of a device's firmware or SDK.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientInfo<'a> {
    /// The name.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// The version.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
    /// The audio that the device sends and plays, for [`AudioTerms::parse`]. An invalid offer does not
    /// refuse the device.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<&'a RawValue>,
}

/// What a device that comes back shows in AUTH beside its token, or instead of it. Opaque to devices,
/// and absent from `Debug` output. (I16)
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeTicket(String);

impl ResumeTicket {
    /// The ticket with this text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, as it is sent.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ResumeTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResumeTicket").finish_non_exhaustive()
    }
}

/// The answer to an accepted token or ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthAccepted {
    /// The device that the token is for.
    pub device_id: DeviceId,
    /// Identifies this connection in logs and in questions to the operator.
    pub session: String,
    /// Interval in seconds at which the device should send something. After 2.5 intervals of
    /// silence it is closed.
    pub heartbeat_s: u32,
    /// Maximum bytes of a frame from now on.
    pub max_frame_bytes: u32,
    /// What holds for audio, if the device offered it and the server accepts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<AudioTerms>,
    /// Why there is no audio, or what a spoken conversation lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio_notice: Option<String>,
    /// What is wrong with the `locale` of the device, which is ignored then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale_notice: Option<String>,
    /// For the next connections of the device, if the server issues tickets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<ResumeTicket>,
    /// For how many seconds that is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_ttl_s: Option<u64>,
}

/// Appends the answer to an accepted token.
pub fn write_auth_accepted(out: &mut Vec<u8>, accepted: &AuthAccepted) {
    #[derive(Serialize)]
    struct Accepted<'a> {
        success: bool,
        #[serde(flatten)]
        accepted: &'a AuthAccepted,
    }
    write_tagged(
        out,
        "auth",
        Accepted {
            success: true,
            accepted,
        },
    );
}

/// Appends the answer to a refused token. The connection closes after it.
pub fn write_auth_refused(out: &mut Vec<u8>, code: &str, message: &str) {
    #[derive(Serialize)]
    struct Refused<'a> {
        success: bool,
        code: &'a str,
        error: &'a str,
    }
    write_tagged(
        out,
        "auth",
        Refused {
            success: false,
            code,
            error: message,
        },
    );
}

/// Parses the server's answer, for a device. The inner error is the server's refusal.
///
/// # Errors
/// When the payload is not an answer to an AUTH frame.
pub fn parse_auth_answer(payload: &[u8]) -> Result<Result<AuthAccepted, String>, MessageError> {
    #[derive(Deserialize)]
    struct Answer {
        data: AnswerData,
    }
    #[derive(Deserialize)]
    struct AnswerData {
        success: bool,
        #[serde(default)]
        code: Option<String>,
        #[serde(default)]
        error: Option<String>,
    }
    #[derive(Deserialize)]
    struct AcceptedAnswer {
        data: AuthAccepted,
    }
    let json = utf8(payload)?;
    let malformed = |error: serde_json::Error| MessageError::from_json(&error, None);
    let Answer { data } = serde_json::from_str(json).map_err(malformed)?;
    if data.success {
        let accepted: AcceptedAnswer = serde_json::from_str(json).map_err(malformed)?;
        return Ok(Ok(accepted.data));
    }
    let error = data
        .error
        .unwrap_or_else(|| "token refused without a reason".to_owned());
    Ok(Err(match data.code {
        Some(code) => format!("{error} ({code})"),
        None => error,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_answer_round_trips() {
        let accepted = AuthAccepted {
            device_id: "toy-1".parse().unwrap(),
            session: "s1".into(),
            heartbeat_s: 30,
            max_frame_bytes: 262_144,
            audio: None,
            audio_notice: Some("no provider of speech recognition".into()),
            locale_notice: None,
            ticket: Some(ResumeTicket::new("dGlja2V0".into())),
            ticket_ttl_s: Some(60),
        };
        let mut out = Vec::new();
        write_auth_accepted(&mut out, &accepted);
        let text = String::from_utf8(out.clone()).unwrap();
        assert!(text.starts_with(r#"{"type":"auth","data":{"success":true,"device_id":"toy-1""#));
        assert_eq!(parse_auth_answer(&out), Ok(Ok(accepted)));

        out.clear();
        write_auth_refused(&mut out, "token_expired", "the token has expired");
        let refused = Err("the token has expired (token_expired)".to_owned());
        assert_eq!(parse_auth_answer(&out), Ok(refused));
        assert!(parse_auth_answer(b"{}").is_err());
    }

    #[test]
    fn invalid_locale_is_explained() {
        fn check(locale: &str, expected: Result<&str, &str>) {
            let payload = format!(r#"{{"token":"t","locale":{locale}}}"#);
            let request: AuthRequest<'_> = serde_json::from_str(&payload).unwrap();
            let locale = request.locale().unwrap();
            let locale = locale.as_ref().map(Locale::as_str);
            match expected {
                Ok(tag) => assert_eq!(locale, Ok(tag)),
                Err(start) => assert!(locale.is_err_and(|error| error.starts_with(start))),
            }
        }
        check(r#""zh-CN""#, Ok("zh-CN"));
        check(r#""zh_CN""#, Err(r#"`locale` is "zh_CN": it must be"#));
        check("5", Err("`locale` is 5: it must be"));
        check(
            r#"{"language":"de"}"#,
            Err(r#"`locale` is {"language":"de"}: "#),
        );
        let long = format!("\"{}\"", "好".repeat(1_000));
        let start = format!("`locale` is \"{}…: it", "好".repeat(13));
        check(&long, Err(&start));
        for absent in [r#"{"token":"t"}"#, r#"{"token":"t","locale":null}"#] {
            let request: AuthRequest<'_> = serde_json::from_str(absent).unwrap();
            assert_eq!(request.locale(), None);
        }
    }

    #[test]
    fn token_and_ticket_are_absent_from_debug_output() {
        let auth = r#"{"token":"s3cret","ticket":"s3cret","client":{"name":"toy"}}"#;
        let request: AuthRequest<'_> = serde_json::from_str(auth).unwrap();
        let ticket = ResumeTicket::new(request.ticket.to_string());
        assert_eq!(ticket.expose(), "s3cret");
        let shown = format!("{request:?} {ticket:?}");
        assert!(
            shown.contains("toy") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
