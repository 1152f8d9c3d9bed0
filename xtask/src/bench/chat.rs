//! How long a word of a language model takes to the device: over two processes and Redis, and within `up`.
//! Never: a model; a stand-in writes the words.

use anyhow::Context as _;

use super::{
    bed::Bed,
    control_plane::ControlPlane,
    ours::{Service, TALKATIVE, edge},
    postgres::Postgres,
    report::Report,
    server::free_address,
    subject::{Subject, rounds},
    worker::Worker,
};

/// Turns in flight, one row of each subject.
const IN_FLIGHT: [u32; 2] = [1, 16];

/// Names as they stand in the table.
const APART: &str = "Switchboard, a model's word";
const TOGETHER: &str = "the same within `up`";

/// Measures both, in turn.
pub(crate) async fn measure(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut subjects = [apart(bed).await?, together(bed).await?];
    for in_flight in IN_FLIGHT {
        let measured = rounds(&mut subjects, in_flight, bed.options).await?;
        report.chat.extend(measured);
    }
    Ok(())
}

/// Provider → chat → Redis → edge → device.
async fn apart(bed: &Bed<'_>) -> anyhow::Result<Subject> {
    let plane = ControlPlane::start(bed).await?;
    let edge = edge(bed, &plane.stores.redis).await?;
    let model = Model::somewhere()?;
    let chat = plane.stores.serve(bed, "chat", &model.settings()).await?;
    let site = Site {
        devices: edge.address.to_string(),
        settings: plane.control.address.to_string(),
        api_key: plane.api_key.clone(),
    };
    Ok(Subject {
        name: APART,
        caller: site.caller(bed, &model).await?,
        devices: None,
        servers: [vec![("chat", chat.process)], plane.with(&edge)].concat(),
        counts_caller: false,
        counts_devices: false,
    })
}

/// Provider → `up` → device.
async fn together(bed: &Bed<'_>) -> anyhow::Result<Subject> {
    let postgres = Postgres::start(bed.folder()).await?;
    let model = Model::somewhere()?;
    let data = bed.folder().join("up");
    let data = data.to_str().context("a folder with a plain name")?;
    let arguments = ["up", "--data-dir", data];
    let arguments = [
        &arguments[..],
        &["--device-listen", "127.0.0.1:0"],
        &["--http-listen", "127.0.0.1:0"],
        &TALKATIVE,
        &model.settings(),
    ];
    let environment = [("DATABASE_URL", postgres.url.as_str())];
    let up = Service::start(bed, &arguments.concat(), &environment, "http_url").await?;
    let member = |name: &str| {
        let value = up.ready[name].as_str().map(str::to_owned);
        value.with_context(|| format!("no {name} in {}", up.ready))
    };
    let site = Site {
        devices: member("device_addr")?,
        settings: up.address.to_string(),
        api_key: member("api_key")?,
    };
    Ok(Subject {
        name: TOGETHER,
        caller: site.caller(bed, &model).await?,
        devices: None,
        servers: vec![("up", up.process), ("postgres", postgres.process)],
        counts_caller: false,
        counts_devices: false,
    })
}

/// Where the stand-in for a model listens.
struct Model {
    listen: String,
    endpoint: String,
}

impl Model {
    fn somewhere() -> anyhow::Result<Self> {
        let address = free_address()?;
        Ok(Self {
            listen: address.to_string(),
            endpoint: format!("http://{address}/v1"),
        })
    }

    fn settings(&self) -> [&str; 4] {
        [
            "--completions-endpoint",
            &self.endpoint,
            "--completions-model",
            "stand-in",
        ]
    }
}

/// Where devices dial in, and where they get their tokens.
struct Site {
    devices: String,
    settings: String,
    api_key: String,
}

impl Site {
    async fn caller(&self, bed: &Bed<'_>, model: &Model) -> anyhow::Result<Worker> {
        let token_url = format!("http://{}/v1/tokens", self.settings);
        let arguments = [
            "turn-caller",
            "--listen",
            &model.listen,
            "--address",
            &self.devices,
            "--token-url",
            &token_url,
            "--api-key",
            &self.api_key,
        ];
        bed.worker(&arguments).await
    }
}
