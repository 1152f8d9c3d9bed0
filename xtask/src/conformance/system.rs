//! The system under test: control, edge, gateway and chat as processes, with a database and a Redis
//! prefix of their own. Both are removed at the end of the run.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use reqwest::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use switchboard_test_support::{database::Database, process::Process, programs};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{ChildStdout, Command},
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

/// The id of the device that the suite calls.
pub(crate) const DEVICE: &str = "conformance";

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const TOKEN_KEYS_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);
const ANY_PORT: &str = "127.0.0.1:0";
const UNLIMITED_RATE: &str = "1000000";
/// `COUNT` of a `SCAN` step while a run removes its keys.
const SCAN_COUNT: u32 = 500;

/// The run's share of the shared servers.
pub(crate) struct Corner {
    redis_url: SecretString,
    /// Prefix of every key and channel of the run.
    redis_prefix: String,
}

/// An organisation and its API key.
pub(crate) struct Org {
    pub(crate) key: String,
}

/// The running services. Dropping it ends them and drops their database.
pub(crate) struct System {
    control: Service,
    edge: Service,
    gateway: Service,
    chat: Service,
    http: reqwest::Client,
    operator_key: String,
    folder: PathBuf,
    _database: Database,
}

/// One service.
struct Service {
    name: &'static str,
    process: Mutex<Process>,
    ready: Value,
    // Held open: the service must not receive SIGPIPE when it writes.
    _stdout: BufReader<ChildStdout>,
}

impl Corner {
    /// Reads REDIS_URL, and checks that DATABASE_URL is set too.
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        let missing: Vec<_> = ["REDIS_URL", "DATABASE_URL"]
            .into_iter()
            .filter(|name| env::var_os(name).is_none())
            .collect();
        if !missing.is_empty() {
            bail!(
                "{} not set: the system under test needs a Redis and a PostgreSQL; `./check` starts both, or name \
                 yours as redis://HOST:PORT/0 and postgres://USER@HOST:PORT/DATABASE",
                missing.join(" and ")
            );
        }
        Ok(Self {
            redis_url: env::var("REDIS_URL").context("REDIS_URL")?.into(),
            redis_prefix: format!("conformance-{}", Uuid::new_v4().simple()),
        })
    }

    /// Deletes the run's keys from Redis.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let client = redis::Client::open(self.redis_url.expose_secret())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut cursor = 0_u64;
        loop {
            let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{}*", self.redis_prefix))
                .arg("COUNT")
                .arg(SCAN_COUNT)
                .query_async(&mut connection)
                .await?;
            if !keys.is_empty() {
                let () = redis::cmd("UNLINK")
                    .arg(keys)
                    .query_async(&mut connection)
                    .await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }
}

impl System {
    /// Builds the program and starts the services; the gateway allows requests from `origin`.
    pub(crate) async fn start(
        corner: &Corner,
        folder: &Path,
        origin: &str,
    ) -> anyhow::Result<Self> {
        let program = programs::build("dev", "switchboard").await?;
        let database = Database::create(&corner.redis_prefix)?;
        migrate(&program, database.url()).await?;
        let operator_key = Uuid::new_v4().simple().to_string();
        let objects = format!("file://{}", folder.join("objects").display());
        let environment = [
            ("REDIS_URL", corner.redis_url.expose_secret()),
            ("DATABASE_URL", database.url()),
            ("SWITCHBOARD_OPERATOR_KEY", &operator_key),
            ("SWITCHBOARD_REDIS_PREFIX", &corner.redis_prefix),
            ("SWITCHBOARD_OBJECTS", &objects),
            ("SWITCHBOARD_ADMIN_LISTEN", ANY_PORT),
            ("SWITCHBOARD_HTTP_LISTEN", ANY_PORT),
            ("SWITCHBOARD_DEVICE_LISTEN", ANY_PORT),
            ("SWITCHBOARD_MCP_ALLOWED_ORIGINS", origin),
            // Rates are not under test.
            ("SWITCHBOARD_CHAT_CALLER_BURST", UNLIMITED_RATE),
            ("SWITCHBOARD_CHAT_ORG_BURST", UNLIMITED_RATE),
        ];
        let start = async |name| Service::start(&program, folder, name, &environment).await;
        let system = Self {
            control: start("control").await?,
            edge: start("edge").await?,
            gateway: start("gateway").await?,
            chat: start("chat").await?,
            http: reqwest::Client::new(),
            folder: folder.to_owned(),
            _database: database,
            operator_key,
        };
        system.trusted().await?;
        Ok(system)
    }

    /// The folder for logs and findings.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn control_url(&self) -> &str {
        self.control.address("http_url")
    }

    pub(crate) fn gateway_url(&self) -> &str {
        self.gateway.address("http_url")
    }

    pub(crate) fn chat_url(&self) -> &str {
        self.chat.address("http_url")
    }

    /// The operator key of the installation.
    pub(crate) fn operator_key(&self) -> &str {
        &self.operator_key
    }

    pub(crate) fn device_address(&self) -> &str {
        self.edge.address("device_addr")
    }

    pub(crate) fn gateway_address(&self) -> anyhow::Result<SocketAddr> {
        let url = self.gateway.address("http_url");
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        address
            .parse()
            .with_context(|| format!("the gateway's address: {url}"))
    }

    /// Creates an organisation with a key of all scopes.
    pub(crate) async fn org(&self) -> anyhow::Result<Org> {
        let answer = self
            .create("/v1/orgs", &self.operator_key, &json!({"name": DEVICE}))
            .await?;
        let key = answer["api_key"]
            .as_str()
            .context("an organisation without an API key")?;
        Ok(Org {
            key: key.to_owned(),
        })
    }

    /// The access token of the device.
    pub(crate) async fn device_token(&self, org: &Org) -> anyhow::Result<String> {
        self.token(org, &format!("device:{DEVICE}"), &["device"])
            .await
    }

    /// Issues an access token of the organisation.
    pub(crate) async fn token(
        &self,
        org: &Org,
        subject: &str,
        scopes: &[&str],
    ) -> anyhow::Result<String> {
        let wish = json!({"subject": subject, "scopes": scopes, "ttl_s": 3600});
        let answer = self.create("/v1/tokens", &org.key, &wish).await?;
        let token = answer["access_token"].as_str();
        Ok(token.context("an answer without a token")?.to_owned())
    }

    /// Creates an NPC of the organisation for conversations.
    pub(crate) async fn npc(&self, org: &Org) -> anyhow::Result<String> {
        let settings = json!({"overrides": {"name": DEVICE}});
        let answer = self.create("/v1/npcs", &org.key, &settings).await?;
        Ok(answer["id"]
            .as_str()
            .context("an NPC without an id")?
            .to_owned())
    }

    async fn create(&self, path: &str, key: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.control_url());
        let request = self.http.post(url).bearer_auth(key).json(body);
        let answer = request.send().await?.error_for_status()?;
        Ok(answer.json().await?)
    }

    /// Waits until the first token is accepted: token keys reach the nodes in the background.
    async fn trusted(&self) -> anyhow::Result<()> {
        let until = Instant::now() + TOKEN_KEYS_TIMEOUT;
        for service in [&self.edge, &self.gateway, &self.chat] {
            let url = format!("{}/readyz", service.address("admin_url"));
            while self.http.get(&url).send().await?.status() != StatusCode::OK {
                if Instant::now() > until {
                    bail!("{} is not ready:\n{}", service.name, service.log_tail());
                }
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Returns when a service ends unexpectedly.
    pub(crate) async fn ended(&self) -> anyhow::Result<()> {
        loop {
            sleep(LIVENESS_INTERVAL).await;
            for service in [&self.control, &self.edge, &self.gateway, &self.chat] {
                let alive = service.process.lock().assert_alive();
                alive.with_context(|| service.name)?;
            }
        }
    }
}

/// Brings an empty database up to date.
async fn migrate(program: &Path, url: &str) -> anyhow::Result<()> {
    let output = Command::new(program)
        .arg("migrate")
        .env("DATABASE_URL", url)
        .kill_on_drop(true)
        .output()
        .await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "switchboard migrate failed: {error}"
    );
    Ok(())
}

impl Service {
    /// Starts `switchboard NAME` and waits for its ready line.
    async fn start(
        program: &Path,
        folder: &Path,
        name: &'static str,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        // No setting of the shell reaches the service.
        command.env_clear().envs(environment.iter().copied());
        command.arg(name).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::start(folder, name, &mut command)?;
        let stdout = process.child.stdout.take();
        let mut stdout = BufReader::new(stdout.context("a service without stdout")?);
        let mut line = String::new();
        let read = timeout(READY_TIMEOUT, stdout.read_line(&mut line)).await;
        if !matches!(read, Ok(Ok(1..))) {
            bail!("{name} printed no ready line:\n{}", process.log_tail());
        }
        Ok(Self {
            name,
            process: process.into(),
            ready: serde_json::from_str(&line)?,
            _stdout: stdout,
        })
    }

    /// An address of the ready line; empty if the line has none.
    fn address(&self, member: &str) -> &str {
        self.ready[member].as_str().unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        self.process.lock().log_tail()
    }
}
