//! `switchboard devices approve` and `unapprove`: what models may call of a device.

use clap_complete::ArgValueCandidates;
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchboard_tools::text::escape;

use crate::{
    api::{Api, ApiArguments, ApiRequest},
    exit::{Failure, print_stderr},
    prompt::confirm,
    query::percent_encode,
    resources::{complete_ids, table::DEVICES},
};

/// Approves a service of a device: models may call it as it is now.
///
/// On a terminal it prints what a model sees and what has changed since the last approval, and asks.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  switchboard devices approve toy-1 wave\n  switchboard devices approve toy-1 wave --all-devices --yes"
)]
pub(crate) struct Approve {
    /// Id of the device
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&DEVICES)))]
    id: String,
    /// Name of the service
    #[arg(value_name = "SERVICE")]
    service: String,
    /// Approve it for all devices of the organisation that declare the same
    #[arg(long)]
    all_devices: bool,
    /// Do not ask for confirmation; only a terminal is asked
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// Revokes the approval of a service of a device.
///
/// An approval for all devices that declare the same is revoked for all of them. `switchboard org approvals` lists those
/// of services that no device declares any more.
///
/// Exit codes: 0 done, 1 refused or not reachable, 64 invalid settings.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  switchboard devices unapprove toy-1 wave\n  switchboard devices unapprove toy-1 wave --yes"
)]
pub(crate) struct Unapprove {
    /// Id of the device
    #[arg(value_name = "ID", add = ArgValueCandidates::new(|| complete_ids(&DEVICES)))]
    id: String,
    /// Name of the service
    #[arg(value_name = "SERVICE")]
    service: String,
    /// Do not ask for confirmation; only a terminal is asked
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    api: ApiArguments,
}

/// The approvals of a device, as far as they are shown.
#[derive(Deserialize)]
struct Approvals {
    items: Vec<ServiceApproval>,
}

#[derive(Deserialize)]
struct ServiceApproval {
    service: String,
    state: String,
    digest: String,
    /// What was approved, with the id of the approval.
    approved: Option<Map<String, Value>>,
    #[serde(flatten)]
    declared: Map<String, Value>,
}

/// The members of a definition that an approval covers.
const MEMBERS: [&str; 4] = ["description", "parameters", "output", "annotations"];

impl Approve {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let api = self.api.connect()?;
        let item = ServiceApproval::find(&api, &self.id, &self.service).await?;
        if !self.yes {
            print_stderr(&item.description());
        }
        let devices = match self.all_devices {
            true => "all devices that declare the same",
            false => "this device",
        };
        let question = format!("Approve {} for {devices}?", escape(&self.service));
        confirm(&question, self.yes)?;
        let applies_to = match self.all_devices {
            true => "organisation",
            false => "device",
        };
        let body = json!({"digest": item.digest, "applies_to": applies_to});
        let (device, service) = (percent_encode(&self.id), percent_encode(&self.service));
        let path = format!("/v1/devices/{device}/services/{service}/approval");
        send(&api, Method::PUT, &path, body.to_string()).await
    }
}

impl Unapprove {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let api = self.api.connect()?;
        let item = ServiceApproval::find(&api, &self.id, &self.service).await?;
        let service = escape(&self.service);
        let approved = item.approved.as_ref();
        let member = |name: &str| approved.and_then(|approved| approved.get(name)?.as_str());
        let Some(id) = member("id") else {
            let detail = format!(
                "the service {service} of the device {} is not approved",
                self.id
            );
            return Err(Failure::general(detail));
        };
        let question = match member("applies_to") {
            Some("organisation") => {
                format!("Revoke the approval of {service} for all devices that declare the same?")
            }
            _ => format!("Revoke the approval of {service} for this device?"),
        };
        confirm(&question, self.yes)?;
        let path = format!("/v1/approvals/{}", percent_encode(id));
        send(&api, Method::DELETE, &path, String::new()).await
    }
}

impl ServiceApproval {
    /// A service that a device declares.
    async fn find(api: &Api, device: &str, service: &str) -> Result<Self, Failure> {
        let path = format!("/v1/devices/{}/approvals", percent_encode(device));
        let known: Approvals = api.get(&path).await.map_err(Failure::general)?;
        let mut items = known.items.into_iter();
        let wanted = items.find(|item| item.service == service);
        wanted.ok_or_else(|| {
            let service = escape(service);
            Failure::general(format!("the device {device} declares no service {service}"))
        })
    }

    /// What a model sees, with what was approved before where it differs. The text is a device's.
    fn description(&self) -> String {
        let mut text = format!("{} ({})", escape(&self.service), self.state);
        let approved = self.approved.as_ref();
        for name in MEMBERS {
            let shown = |members: &Map<String, Value>| members.get(name).map(Value::to_string);
            let (now, before) = (shown(&self.declared), approved.map(shown));
            let line = |sign: &str, value: &str| format!("\n{sign} {name}: {}", escape(value));
            match before {
                Some(before) if before != now => {
                    text.extend(before.map(|before| line("-", &before)));
                    text.extend(now.map(|now| line("+", &now)));
                }
                _ => text.extend(now.map(|now| line(" ", &now))),
            }
        }
        text
    }
}

async fn send(api: &Api, method: Method, path: &str, body: String) -> Result<(), Failure> {
    let sent = ApiRequest {
        method,
        path,
        headers: HeaderMap::new(),
        body: body.into_bytes(),
    };
    api.bytes(sent).await.map_err(Failure::general)?;
    Ok(())
}
