//! Checks of what runs: the HTTP API, the admin port, the device port, and the webhooks of the
//! organisation.

use std::{collections::BTreeMap, net::ToSocketAddrs};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use switchboard_control::{WebhookConfig, WebhookContacts};
use tokio::{net::TcpStream, time::timeout};

use super::{
    CHECK_TIMEOUT,
    finding::{Check, Finding, Problem, Verdict},
    target::Target,
};
use crate::http_client::{HttpClient, HttpRequest};

/// The response of `/readyz`.
#[derive(Deserialize)]
struct Readiness {
    draining: bool,
    dependencies: BTreeMap<String, Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    ready: bool,
    required: bool,
    detail: Option<String>,
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

    async fn check_api(&self, url: &str) -> Verdict {
        let (status, _) = match self.get(url, "/v1/devices", "--url").await {
            Ok(response) => response,
            Err(problem) => return Verdict::Failed(problem),
        };
        match (status.as_u16(), self.key.is_some()) {
            (200..=299, _) => Verdict::Passed(format!("{url} accepts the API key")),
            (401, true) => Verdict::Failed(self.rejected_key(format!("{url} rejects the API key"))),
            (401, false) => Verdict::NotChecked(format!("{url} responds, and no API key is given")),
            (403, _) => Verdict::Passed(format!(
                "{url} accepts the API key, which may not list devices"
            )),
            (404, _) => Verdict::Failed(Problem::set(
                format!("there is no Switchboard with devices at {url}"),
                "SWITCHBOARD_URL (--url)",
            )),
            (status, _) => Verdict::Failed(self.cause_of(format!("{url} returns {status}")).await),
        }
    }

    /// A failing server, with the remedy of what it is not ready for.
    async fn cause_of(&self, what: String) -> Problem {
        let Some(admin) = self.admin_url.as_deref() else {
            let what = format!("{what}; the admin port of the process names the cause");
            return Problem::run(what, "curl http://HOST:9600/readyz");
        };
        match self.check_readiness(admin).await {
            Err(problem) => Problem::new(what, problem.into_remedy()),
            Ok(_) => Problem::new(what, "its log names the cause".to_owned()),
        }
    }

    /// Reads the readiness.
    pub(super) async fn admin_port(&self) -> Finding {
        let check = Check::AdminPort;
        let Some(url) = &self.admin_url else {
            return check.skipped(
                "read the data folder",
                "only the data folder of an `up` names the admin port: use --data-dir",
            );
        };
        check.line(format!("GET {url}/readyz"), self.check_readiness(url).await)
    }

    async fn check_readiness(&self, url: &str) -> Result<String, Problem> {
        let (status, report) = self.get(url, "/readyz", "--data-dir").await?;
        let report: Readiness = serde_json::from_slice(&report).map_err(|error| {
            let what = format!("{url} does not return the readiness of Switchboard ({error})");
            Problem::set(what, "--data-dir")
        })?;
        let missing = |is_required: bool| {
            let dependencies = report.dependencies.iter();
            dependencies.filter(move |(_, one)| !one.ready && one.required == is_required)
        };
        let describe = |(name, one): (&String, &Dependency)| match &one.detail {
            Some(detail) => format!("{name} ({detail})"),
            None => name.clone(),
        };
        if status.is_success() {
            let optional: Vec<_> = missing(false).map(describe).collect();
            return Ok(match optional.as_slice() {
                [] => format!("{url} reports ready"),
                optional => format!("{url} reports ready, without {}", optional.join(", ")),
            });
        }
        if report.draining {
            return Err(Problem::run(format!("{url} is stopping"), &self.start));
        }
        let what: Vec<_> = missing(true).map(describe).collect();
        let remedies: Vec<_> = missing(true)
            .map(|(name, _)| self.remedy_of(name))
            .collect();
        Err(Problem::new(
            format!("not ready: {}", what.join(", ")),
            remedies.join(", and "),
        ))
    }

    /// What makes a dependency ready, by its name in `/readyz`.
    fn remedy_of(&self, dependency: &str) -> String {
        match dependency {
            "postgres" if !self.has_private_database() => {
                "start PostgreSQL there, or correct DATABASE_URL (--database-url)".to_owned()
            }
            "redis" => "start Redis there, or correct REDIS_URL (--redis-url)".to_owned(),
            "objects" => "correct SWITCHBOARD_OBJECTS (--objects)".to_owned(),
            "trust" if !self.has_private_database() => "run `switchboard control`".to_owned(),
            "key_set" => "correct --key-set-public-key".to_owned(),
            _ => format!("stop it and run `{}`; its log names the cause", self.start),
        }
    }

    /// Connects to the device port.
    pub(super) async fn device_port(&self) -> Finding {
        let Some(addr) = &self.device_addr else {
            return Check::DevicePort.skipped(
                "read the settings and the data folder",
                "its address is not known: use --addr",
            );
        };
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
                Err(if self.is_elsewhere() {
                    Problem::set(what, setting)
                } else {
                    Problem::run_or_set(what, &self.start, setting)
                })
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
        let unchecked = |reason: &str| check.skipped(&list, reason);
        if self.key.is_none() {
            return unchecked("no API key is given here");
        }
        if let Some(reason) = self.unreadable_settings(false) {
            return check.skipped("read the settings", reason);
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
        let client = HttpClient::new(url, self.tls_ca.as_deref())
            .map_err(|error| Problem::set(format!("{error:#}"), setting))?;
        let request = HttpRequest {
            method: Method::GET,
            path,
            headers,
            body: Vec::new(),
            timeout: CHECK_TIMEOUT,
        };
        client
            .fetch(request)
            .await
            .map_err(|error| self.unreachable(format!("{url} is unreachable ({error:#})"), setting))
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
