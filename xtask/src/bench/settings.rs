//! Settings read and written through the control plane, next to the same statements from a process without HTTP.
//! Never: a statement that one side makes and the other does not, but for who is asking.

use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use reqwest::Client;
use serde_json::{Value, json};

use super::{
    bed::Bed,
    control_plane::ControlPlane,
    ours::Service,
    postgres::Postgres,
    process::Process,
    report::Report,
    subject::{Series, Subject, find, rounds},
    worker::Worker,
};

/// Requests in flight, one row of each subject.
const IN_FLIGHT: [u32; 2] = [1, 16];

/// In the order of their rows.
pub(crate) const ALL: [Operation; 2] = [Operation::Read, Operation::Write];

/// What is done over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// One template is read
    Read,
    /// Templates are made
    Write,
}

impl Operation {
    /// Its name over HTTP in the table.
    pub(crate) const fn over_http(self) -> &'static str {
        match self {
            Self::Read => "Switchboard, setting read",
            Self::Write => "Switchboard, setting written",
        }
    }

    const fn alone(self) -> &'static str {
        match self {
            Self::Read => "its statements alone",
            Self::Write => "their statements alone",
        }
    }

    /// Its names in the table.
    pub(crate) const fn names(self) -> [&'static str; 2] {
        [self.over_http(), self.alone()]
    }

    const fn role_argument(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// How many of the statements alone are made over HTTP in the same time.
    pub(crate) fn share(self, all: &[Series], in_flight: u32) -> Option<f64> {
        let ours = find(all, self.over_http(), in_flight)?;
        let alone = find(all, self.alone(), in_flight)?;
        Some(ours.ratio_to(alone, |window| window.per_second))
    }
}

/// What a template is made of, over HTTP and without.
pub(crate) fn template() -> Value {
    json!({
        "name": "bench",
        "locale": "en",
        "persona": {"role": "a measured one", "description": "x".repeat(256), "greeting": ["hello"]},
    })
}

/// Measures reads and writes of both, in turn.
pub(crate) async fn measure(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    for what in ALL {
        let ControlPlane {
            control,
            stores,
            api_key,
        } = ControlPlane::start(bed).await?;
        let made = make_template(&control, &api_key).await?;
        let callers = Callers {
            bed,
            what,
            made: &made,
            postgres: &stores.postgres,
        };
        let mut subjects = [
            callers.over_http(control, &api_key).await?,
            callers.alone().await?,
        ];
        for in_flight in IN_FLIGHT {
            let measured = rounds(&mut subjects, in_flight, bed.options).await?;
            report.settings.extend(measured);
        }
    }
    Ok(())
}

struct Callers<'a> {
    bed: &'a Bed<'a>,
    what: Operation,
    /// The template that is read.
    made: &'a Value,
    /// That of both.
    postgres: &'a Postgres,
}

impl Callers<'_> {
    async fn over_http(&self, control: Service, api_key: &str) -> anyhow::Result<Subject> {
        let address = control.address.to_string();
        let arguments = [
            "settings-caller",
            "--address",
            &address,
            "--api-key",
            api_key,
        ];
        Ok(Subject {
            name: self.what.over_http(),
            caller: self.worker(&arguments).await?,
            devices: None,
            servers: vec![("control", control.process), self.postgres()],
            counts_caller: false,
            counts_devices: false,
        })
    }

    fn postgres(&self) -> (&'static str, Arc<Process>) {
        ("postgres", Arc::clone(&self.postgres.process))
    }

    async fn alone(&self) -> anyhow::Result<Subject> {
        let org = self.made["org_id"]
            .as_str()
            .context("a template without an organisation")?;
        let arguments = [
            "store-caller",
            "--database-url",
            &self.postgres.url,
            "--org",
            org,
        ];
        Ok(Subject {
            name: self.what.alone(),
            caller: self.worker(&arguments).await?,
            devices: None,
            servers: vec![self.postgres()],
            counts_caller: true,
            counts_devices: false,
        })
    }

    async fn worker(&self, arguments: &[&str]) -> anyhow::Result<Worker> {
        let template = self.made["id"]
            .as_str()
            .context("a template without an id")?;
        let what = [
            "--operation",
            self.what.role_argument(),
            "--template",
            template,
        ];
        self.bed.worker(&[arguments, &what].concat()).await
    }
}

async fn make_template(control: &Service, api_key: &str) -> anyhow::Result<Value> {
    let url = format!("http://{}/v1/templates", control.address);
    let request = Client::new()
        .post(url)
        .bearer_auth(api_key)
        .json(&template());
    Ok(request.send().await?.error_for_status()?.json().await?)
}
