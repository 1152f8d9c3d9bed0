//! `switchboard talk --voice`: a spoken conversation at this machine, which connects as a device of
//! the NPC.

use std::{process::ExitCode, sync::Arc};

use http::{HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::json;
use switchboard_protocol::id::{DeviceId, NpcId};

use super::Arguments;
use crate::{
    api::{Api, ApiRequest},
    commands::device,
    device::{Device, Listening, Services, Tokens, Voice},
    exit::{Failure, print_stderr},
};

/// Characters of the host's name in the id of the device, which has at most 64.
const MAX_HOST_CHARS: usize = 22;

/// The members of an NPC that its devices need.
#[derive(Deserialize)]
struct Npc {
    device_ids: Vec<DeviceId>,
    version: i64,
    effective_version: Option<i64>,
}

/// Talks until Ctrl-C, or until the recorder ends.
pub(super) async fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let voice = Voice::of_machine(arguments.listen)?;
    let api = arguments.api.connect()?;
    let npc = arguments.npc(&api).await?;
    let id = device_id(npc)?;
    bind(&api, npc, &id).await?;
    let scratch = arguments.api.data.path()?.join("scratch");
    let device = Device {
        address: arguments.port.address(&arguments.api)?,
        tokens: Tokens::renewed(api, &id),
        services: Arc::new(Services::demo(scratch)),
        text: None,
        picture: Vec::new(),
        voice: Some(voice),
    };
    print_stderr(match arguments.listen {
        Listening::Manual => "Enter ends the message",
        Listening::Auto | Listening::Realtime => "Ctrl-C ends the conversation",
    });
    device::serve(device).await
}

/// The id of this machine as a device of the NPC: a device has one NPC at most.
fn device_id(npc: NpcId) -> Result<DeviceId, Failure> {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    let host = host.chars().filter(char::is_ascii_alphanumeric);
    let host: String = host.take(MAX_HOST_CHARS).collect();
    let id = format!("talk-{host}-{npc}");
    id.parse().map_err(Failure::general)
}

/// Makes the device one of the NPC's, so that this NPC answers it.
async fn bind(api: &Api, npc: NpcId, device: &DeviceId) -> Result<(), Failure> {
    let path = format!("/v1/npcs/{npc}");
    let Npc {
        mut device_ids,
        version,
        effective_version,
    } = api.get(&path).await.map_err(Failure::general)?;
    if device_ids.contains(device) {
        return Ok(());
    }
    device_ids.push(device.clone());
    let template = effective_version.map_or_else(String::new, |version| format!("-{version}"));
    let version = HeaderValue::try_from(format!("\"{version}{template}\""));
    let version = version.map_err(Failure::general)?;
    let sent = ApiRequest {
        method: Method::PATCH,
        path: &path,
        headers: [(header::IF_MATCH, version)].into_iter().collect(),
        body: json!({ "device_ids": device_ids }).to_string().into_bytes(),
    };
    api.bytes(sent).await.map_err(Failure::general)?;
    print_stderr(&format!("{device} is now a device of {npc}"));
    Ok(())
}
