//! Checks of what runs: the HTTP API, the admin port, the device port, and the webhooks of the
//! organisation.

use std::net::ToSocketAddrs;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use switchboard_control::{WebhookConfig, WebhookContacts};
use tokio::{net::TcpStream, time::timeout};

use super::{
    CHECK_TIMEOUT,
    finding::{Check, Finding, Problem},
};
use crate::http_client::{HttpClient, HttpRequest};

/// What is checked, and how it is started.
pub(super) struct Target {
    pub(super) url: Option<String>,
    pub(super) key: Option<SecretString>,
    pub(super) admin_url: Option<String>,
    pub(super) device_addr: Option<String>,
    /// The command that starts it on this machine.
    pub(super) start: String,
}

/// A page of webhooks, as far as it is used here.
#[derive(Deserialize)]
struct Webhooks {
    webhooks: Vec<Webhook>,
}

#[derive(Deserialize)]
struct Webhook {
    id: String,
    url: String,
    enabled: bool,
}

impl Target {
    /// Lists the devices, which any valid key may do, to check URL and key together.
    pub(super) async fn api(&self, url: &str) -> Finding {
        let how = format!("GET {url}/v1/devices");
        Check::Api.line(how, self.check_api(url).await)
    }

    async fn check_api(&self, url: &str) -> Result<String, Problem> {
        let (status, _) = self.get(url, "/v1/devices", "--url").await?;
        match (status.as_u16(), self.key.is_some()) {
            (200..=299, _) => Ok(format!("{url} accepts the API key")),
            (401, true) => Err(Problem::set(
                format!("{url} rejects the API key"),
                "SWITCHBOARD_API_KEY (--api-key)",
            )),
            (401, false) => Ok(format!("{url} is reachable; no API key to check")),
            (404, _) => Err(Problem::set(
                format!("there is no Switchboard with devices at {url}"),
                "SWITCHBOARD_URL (--url)",
            )),
            (status, _) => {
                let admin = self.admin_url.as_deref().unwrap_or("http://HOST:9600");
                let what = format!("{url} returns {status}; its admin port names the cause");
                Err(Problem::run(what, format!("curl {admin}/readyz")))
            }
        }
    }

    /// Reads the readiness.
    pub(super) async fn admin_port(&self, url: &str) -> Finding {
        let how = format!("GET {url}/readyz");
        let result = match self.get(url, "/readyz", "--data-dir").await {
            Ok((status, _)) if status.is_success() => Ok(format!("{url} reports ready")),
            Ok((_, report)) => Err(Problem::set(
                format!("not ready: {}", String::from_utf8_lossy(&report)),
                "the settings of what is not ready",
            )),
            Err(problem) => Err(problem),
        };
        Check::AdminPort.line(how, result)
    }

    /// Connects to the device port.
    pub(super) async fn device_port(&self, addr: &str) -> Finding {
        let how = format!("TCP connection to {addr}");
        Check::DevicePort.line(how, self.check_device_port(addr).await)
    }

    async fn check_device_port(&self, addr: &str) -> Result<String, Problem> {
        let setting = "SWITCHBOARD_ADDR (--addr)";
        let known = addr
            .to_socket_addrs()
            .map_err(|error| Problem::set(format!("{addr} is not HOST:PORT: {error}"), setting))?;
        let known: Vec<_> = known.collect();
        let connected = timeout(CHECK_TIMEOUT, TcpStream::connect(known.as_slice())).await;
        match connected {
            Ok(Ok(_)) => Ok(format!("{addr} accepts connections")),
            Ok(Err(error)) => {
                let what = format!("{addr}: {error}");
                Err(Problem::run_or_set(what, &self.start, setting))
            }
            Err(_) => Err(Problem::set(
                format!("{addr} does not respond; a firewall may block it"),
                setting,
            )),
        }
    }

    /// Connects to the enabled webhooks of the organisation as deliveries do.
    pub(super) async fn webhooks(&self, url: &str, config: &WebhookConfig) -> Finding {
        let check = Check::Webhooks;
        let list = format!("GET {url}/v1/webhooks");
        let unchecked = |reason: &str| check.line(&list, Ok(format!("not checked: {reason}")));
        if self.key.is_none() {
            return unchecked("no API key is given here");
        }
        // The line about the API reports what else is wrong with it.
        let Ok((status, page)) = self.get(url, "/v1/webhooks?limit=200", "--url").await else {
            return unchecked("the API is unreachable");
        };
        let webhooks = match status.as_u16() {
            200 => serde_json::from_slice::<Webhooks>(&page).ok(),
            403 => return unchecked("the API key may not list them"),
            404 => return unchecked("they are listed at the address of `switchboard control`"),
            _ => None,
        };
        let Some(Webhooks { webhooks }) = webhooks else {
            return unchecked("the API does not list them");
        };
        let how = format!("{list}, and connected to each webhook, with TLS, as deliveries do");
        check.line(how, contact(&webhooks, config).await)
    }

    async fn get(
        &self,
        url: &str,
        path: &str,
        setting: &str,
    ) -> Result<(StatusCode, Bytes), Problem> {
        let mut headers = HeaderMap::new();
        if let Some(key) = self.key.as_ref().filter(|_| path.starts_with("/v1/")) {
            let bearer = format!("Bearer {}", key.expose_secret());
            let bearer = HeaderValue::from_str(&bearer).map_err(|_| {
                let setting = "SWITCHBOARD_API_KEY (--api-key)";
                Problem::set("the API key contains invalid characters", setting)
            })?;
            headers.insert(header::AUTHORIZATION, bearer);
        }
        let client = HttpClient::new(url, None)
            .map_err(|error| Problem::set(format!("{error:#}"), setting))?;
        let request = HttpRequest {
            method: Method::GET,
            path,
            headers,
            body: Vec::new(),
            timeout: CHECK_TIMEOUT,
        };
        client.fetch(request).await.map_err(|error| {
            let what = format!("{url} is unreachable ({error:#})");
            Problem::run_or_set(what, &self.start, setting)
        })
    }
}

async fn contact(webhooks: &[Webhook], config: &WebhookConfig) -> Result<String, Problem> {
    let contacts = WebhookContacts::new(config);
    let (mut reached, mut failed) = (0, Vec::new());
    let mut settings = None;
    let enabled = webhooks.iter().filter(|webhook| webhook.enabled);
    for Webhook { id, url, .. } in enabled.clone() {
        match contacts.contact(url, CHECK_TIMEOUT).await {
            Ok(()) => reached += 1,
            Err((reason, setting)) => {
                failed.push(format!("{id} ({url}): {reason}"));
                settings = settings.or(setting);
            }
        }
    }
    if failed.is_empty() {
        let disabled = webhooks.len() - enabled.count();
        return Ok(format!("{reached} reachable, {disabled} disabled"));
    }
    let what = failed.join(", ");
    // The settings of control: here they may be other ones.
    let settings = match settings {
        Some(setting) => format!("{setting}, here and of `switchboard control`, or the URL"),
        None => "the URL of the webhook".to_owned(),
    };
    Err(Problem::set(what, settings))
}
