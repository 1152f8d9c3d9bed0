//! The first exchange of a connection: a token, and whether it was good enough. (ours)
//! Never: a token in `Debug`, in an error or anywhere else than in the payload.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use super::{MessageError, utf8, write_tagged};
use crate::id::DeviceId;

/// What a device sends first.
#[derive(Serialize, Deserialize)]
pub struct AuthRequest<'a> {
    /// An access token with the scope `device`.
    #[serde(borrow)]
    pub token: Cow<'a, str>,
    /// What the device runs, for people who look at it.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo<'a>>,
}

impl fmt::Debug for AuthRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthRequest")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

/// A device's firmware or SDK, as it calls itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClientInfo<'a> {
    /// Its name.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// Its version.
    #[serde(borrow, default)]
    pub version: Cow<'a, str>,
}

/// The server's answer to a good token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthAccepted {
    /// The device that the token is for.
    pub device_id: DeviceId,
    /// Names this connection in logs and in questions to the operator.
    pub session: String,
    /// How often the device should be heard, in seconds; after 2.5 times that it is gone.
    pub heartbeat_s: u32,
    /// The longest frame that is taken from now on.
    pub max_frame_bytes: u32,
}

/// Appends the answer to a good token.
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

/// Appends the answer to a bad token; the connection is closed behind it.
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

/// Reads the server's answer, as a device does; the inner error is the server's refusal.
///
/// # Errors
/// When the payload is no answer to an AUTH frame.
pub fn parse_auth_answer(payload: &[u8]) -> Result<Result<AuthAccepted, String>, MessageError> {
    #[derive(Deserialize)]
    struct Answer {
        data: Verdict,
    }
    #[derive(Deserialize)]
    struct Verdict {
        success: bool,
        #[serde(default)]
        code: Option<String>,
        #[serde(default)]
        error: Option<String>,
    }
    #[derive(Deserialize)]
    struct Welcome {
        data: AuthAccepted,
    }
    let json = utf8(payload)?;
    let malformed = |error: serde_json::Error| MessageError::from_json(&error, None);
    let Answer { data: verdict } = serde_json::from_str(json).map_err(malformed)?;
    if verdict.success {
        let welcome: Welcome = serde_json::from_str(json).map_err(malformed)?;
        return Ok(Ok(welcome.data));
    }
    let error = verdict
        .error
        .unwrap_or_else(|| "refused without a reason".to_owned());
    Ok(Err(match verdict.code {
        Some(code) => format!("{error} ({code})"),
        None => error,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_round_trip() {
        let accepted = AuthAccepted {
            device_id: "toy-1".parse().unwrap(),
            session: "s1".into(),
            heartbeat_s: 30,
            max_frame_bytes: 262_144,
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
    fn a_token_is_never_shown() {
        let request: AuthRequest<'_> =
            serde_json::from_str(r#"{"token":"s3cret","client":{"name":"toy"}}"#).unwrap();
        let shown = format!("{request:?}");
        assert!(
            shown.contains("toy") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
