//! Settings reads and writes through the control plane, compared with the same SQL statements from
//! a process without HTTP. Only the control plane authenticates the caller first.

use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use reqwest::Client;
use serde_json::{Value, json};

use switchboard_test_support::process::Process;

use super::{
    control_plane::ControlPlane,
    environment::BenchEnv,
    postgres::Postgres,
    report::Report,
    subject::{Series, Subject, find, run_rounds},
    system::Service,
    worker::Worker,
};

/// Numbers of requests in flight, one row per subject.
const IN_FLIGHT: [u32; 2] = [1, 16];

/// All operations, in the order of their rows.
pub(crate) const ALL: [Operation; 2] = [Operation::Read, Operation::Write];

/// The operation that a caller repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Read one template
    Read,
    /// Create templates
    Write,
}

impl Operation {
    /// Row name of the operation over HTTP.
    pub(crate) const fn http_subject(self) -> &'static str {
        match self {
            Self::Read => "Switchboard, setting read",
            Self::Write => "Switchboard, setting written",
        }
    }

    const fn store_subject(self) -> &'static str {
        match self {
            Self::Read => "its statements alone",
            Self::Write => "their statements alone",
        }
    }

    /// Row names of the operation, over HTTP and without it.
    pub(crate) const fn subjects(self) -> [&'static str; 2] {
        [self.http_subject(), self.store_subject()]
    }

    const fn role_argument(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Ratio of the rate over HTTP to the rate of the SQL statements alone.
    pub(crate) fn http_to_store_ratio(self, all: &[Series], in_flight: u32) -> Option<f64> {
        let ours = find(all, self.http_subject(), in_flight)?;
        let store = find(all, self.store_subject(), in_flight)?;
        Some(ours.ratio_to(store, |window| window.per_second))
    }
}

/// The content of every created template, over HTTP and without it.
pub(crate) fn template() -> Value {
    json!({
        "name": "bench",
        "locale": "en",
        "persona": {"role": "benchmark role", "description": "x".repeat(256), "greeting": ["hello"]},
    })
}

/// Measures reads and writes, each over HTTP and without it in turn.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    for operation in ALL {
        let ControlPlane {
            control,
            stores,
            api_key,
            ..
        } = ControlPlane::start(bench).await?;
        let template = create_template(&control, &api_key).await?;
        let callers = Callers {
            bench,
            operation,
            template: &template,
            postgres: &stores.postgres,
        };
        let mut subjects = [
            callers.http(control, &api_key).await?,
            callers.store().await?,
        ];
        for in_flight in IN_FLIGHT {
            let measured = run_rounds(&mut subjects, in_flight, bench.options).await?;
            report.settings.extend(measured);
        }
    }
    Ok(())
}

struct Callers<'a> {
    bench: &'a BenchEnv<'a>,
    operation: Operation,
    /// The template to read.
    template: &'a Value,
    /// The database that both callers use.
    postgres: &'a Postgres,
}

impl Callers<'_> {
    async fn http(&self, control: Service, api_key: &str) -> anyhow::Result<Subject> {
        let address = control.address.to_string();
        let arguments = [
            "settings-caller",
            "--address",
            &address,
            "--api-key",
            api_key,
        ];
        Ok(Subject {
            name: self.operation.http_subject(),
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

    async fn store(&self) -> anyhow::Result<Subject> {
        let org = self.template["org_id"]
            .as_str()
            .context("the created template has no org_id")?;
        let arguments = [
            "store-caller",
            "--database-url",
            &self.postgres.url,
            "--org",
            org,
        ];
        Ok(Subject {
            name: self.operation.store_subject(),
            caller: self.worker(&arguments).await?,
            devices: None,
            servers: vec![self.postgres()],
            counts_caller: true,
            counts_devices: false,
        })
    }

    async fn worker(&self, arguments: &[&str]) -> anyhow::Result<Worker> {
        let template = self.template["id"]
            .as_str()
            .context("the created template has no id")?;
        let operation = [
            "--operation",
            self.operation.role_argument(),
            "--template",
            template,
        ];
        self.bench.worker(&[arguments, &operation].concat()).await
    }
}

async fn create_template(control: &Service, api_key: &str) -> anyhow::Result<Value> {
    let url = format!("http://{}/v1/templates", control.address);
    let request = Client::new()
        .post(url)
        .bearer_auth(api_key)
        .json(&template());
    Ok(request.send().await?.error_for_status()?.json().await?)
}
