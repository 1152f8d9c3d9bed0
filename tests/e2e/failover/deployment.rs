//! Three edges, and two of each other service, over a Redis with sentinels and a PostgreSQL with a
//! synchronous standby.

use std::{collections::HashMap, time::Duration};

use reqwest::StatusCode;
use switchboard_test_support::{
    eventually::eventually, postgres_pair::PostgresPair, sentinels::SentinelSetup,
    switchboard::Program,
};

use super::load::{Client, Load};
use crate::{
    cluster::{ANY_PORT, OPERATOR_KEY, Org, create_org, echo_services, issue_token},
    device::{Device, Ledger},
};

/// When the sentinels consider a silent master down, as docs/operations.md recommends.
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// How long processes may take to start, and to receive the token keys.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const EDGES: usize = 3;

pub struct Deployment {
    pub redis: SentinelSetup,
    pub postgres: PostgresPair,
    edges: Vec<Program>,
    pub gateways: Vec<Program>,
    pub controls: Vec<Program>,
    _chats: Vec<Program>,
    org: Org,
    http: reqwest::Client,
    /// The calls that each device executed.
    executed: Vec<Ledger>,
    devices: Vec<tokio::task::JoinSet<usize>>,
}

impl Deployment {
    pub async fn start() -> Self {
        let postgres = tokio::task::spawn_blocking(PostgresPair::start);
        let redis = SentinelSetup::start(DOWN_AFTER).await;
        let postgres = postgres.await.unwrap();
        let environment = [
            ("REDIS_URL", redis.url()),
            ("DATABASE_URL", postgres.url()),
            ("SWITCHBOARD_OPERATOR_KEY", OPERATOR_KEY.to_owned()),
            ("SWITCHBOARD_ADMIN_LISTEN", ANY_PORT.to_owned()),
            ("SWITCHBOARD_DEVICE_LISTEN", ANY_PORT.to_owned()),
            ("SWITCHBOARD_LOG", "info".to_owned()),
        ];
        let mut migrate = Program::launch(&["migrate"], &environment);
        assert_eq!(migrate.exit_code(START_TIMEOUT).await, Some(0));
        let launch = |count: usize, arguments: &[&str]| -> Vec<Program> {
            let programs = (0..count).map(|_| Program::launch(arguments, &environment));
            programs.collect()
        };
        let http = |service| launch(2, &[service, "--http-listen", ANY_PORT]);
        let all = [
            http("control"),
            http("gateway"),
            http("chat"),
            launch(EDGES, &["edge"]),
        ];
        let [controls, gateways, chats, edges] =
            all.map(|programs| programs.into_iter().map(Program::until_ready).collect());
        let controls: Vec<Program> = controls;
        let http = reqwest::Client::new();
        let org = create_org(&http, &controls[0].address("http_url"), "first").await;
        let deployment = Self {
            redis,
            postgres,
            edges,
            gateways,
            controls,
            _chats: chats,
            org,
            http,
            executed: Vec::new(),
            devices: Vec::new(),
        };
        deployment.await_ready().await;
        deployment
    }

    async fn await_ready(&self) {
        for program in self.edges.iter().chain(&self.gateways) {
            let url = format!("{}/readyz", program.address("admin_url"));
            let status = async || self.http.get(&url).send().await.unwrap().status();
            eventually(START_TIMEOUT, status, |status| *status == StatusCode::OK).await;
        }
    }

    /// A client with the API key.
    pub fn client(&self, program: &Program) -> Client {
        Client {
            http: self.http.clone(),
            url: program.address("http_url"),
            credential: self.org.key.clone(),
        }
    }

    async fn token(&self, subject: &str, scope: &str) -> String {
        let control = self.controls[0].address("http_url");
        let token = issue_token(&self.http, &control, &self.org, subject, &[scope]).await;
        token["access_token"].as_str().unwrap().to_owned()
    }

    async fn device(&self, edge: usize, id: &str) -> Device {
        let token = self.token(&format!("device:{id}"), "device").await;
        Device::connect(&self.edges[edge].address("device_addr"), &token).await
    }

    /// Connects devices to every edge, and starts the load on both nodes of each service.
    pub async fn load(&mut self) -> Load {
        let mut load = Load::default();
        let mut toys = Vec::new();
        for edge in 0..EDGES {
            let id = format!("toy-{edge}");
            let mut device = self.device(edge, &id).await;
            device.register(&echo_services()).await;
            self.executed.push(device.executed.clone());
            self.devices.push(device.serve());
            toys.push(id);
        }
        let token = self.token("client:app", "call").await;
        for (n, gateway) in self.gateways.iter().enumerate() {
            load.call(self.client(gateway), toys.clone());
            let credential = token.clone();
            let client = Client {
                credential,
                ..self.client(gateway)
            };
            load.call(client, toys.clone());
            load.queue(self.client(gateway), toys[n].clone());
        }
        for control in &self.controls {
            load.write(self.client(control));
        }
        for edge in [0, 1] {
            let device = self.device(edge, &format!("talker-{edge}")).await;
            load.talk(device).await;
        }
        load
    }

    /// How often devices have executed a call with each text.
    pub fn executed(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for device in &self.executed {
            for params in device.params() {
                let text = params["text"].as_str().unwrap().to_owned();
                *counts.entry(text).or_default() += 1;
            }
        }
        counts
    }
}
