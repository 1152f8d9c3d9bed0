//! `switchboard doctor`: checks whether dependencies are reachable. It changes nothing and prints
//! no secrets.

use std::{
    cmp::Ordering, io::ErrorKind, net::ToSocketAddrs, path::PathBuf, process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use prometheus::Registry;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{json, value::to_raw_value};
use switchboard_chat::RULE_RESPONDER;
use switchboard_completions::Providers;
use switchboard_embeddings::Endpoint;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_speech::Speech;
use switchboard_store::{MasterKeyConfig, ObjectError, Objects, ObjectsConfig, Store, StoreError};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    arguments::{self, DataArguments},
    data_folder::Instance,
    exit::{self, Failure},
    http_client::{HttpClient, HttpRequest},
    postgres,
};

/// Timeout of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks the dependencies of Switchboard and suggests fixes.
///
/// Checks the given settings and the `up` running on --data-dir. It is a failure if nothing is given
/// and nothing runs.
///
/// Exit codes: 0 all checks passed, 1 a check failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print a JSON list of {"check","ok","detail"}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    database: switchboard_store::Config,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    objects: ObjectsConfig,
    #[command(flatten)]
    bus: switchboard_bus::Config,
    #[command(flatten)]
    embeddings: switchboard_embeddings::Config,
    #[command(flatten)]
    completions: switchboard_completions::Config,
    #[command(flatten)]
    speech: switchboard_speech::Config,
    /// URL of the HTTP API. Default: that of the `up` running on --data-dir
    #[arg(long, env, value_name = "URL")]
    url: Option<String>,
    /// Address of the device port. Default: that of the `up` running on --data-dir
    #[arg(long, env, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// API key to check. Default: that of the `up` running on --data-dir
    #[arg(long, env, hide_env_values = true, value_name = "KEY")]
    api_key: Option<SecretString>,
    /// Folder of PostgreSQL's programs. Default: PATH and the usual install locations
    #[arg(long, env, value_name = "FOLDER")]
    postgres_bin_dir: Option<PathBuf>,
}

/// Result of a check: a description, or the problem and its fix.
type Finding = Result<String, String>;

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let instance = arguments.data.instance()?;
    let mut findings: Vec<(&str, Finding)> = vec![("settings", Ok("valid".to_owned()))];
    findings.push(("data folder", data_folder(&arguments, instance.as_ref())));
    if arguments.database.database_url.is_some() {
        findings.push(("Postgres", database(&arguments).await));
        findings.push(("keys in Postgres", stored_keys(&arguments).await));
    } else {
        findings.push(("PostgreSQL programs", binaries(&arguments)));
    }
    if arguments.objects.objects.is_some() {
        findings.push(("objects", objects(&arguments.objects).await));
    }
    if arguments.bus.redis_url.is_some() {
        findings.push(("Redis", redis(&arguments).await));
    }
    findings.push(("embeddings", embeddings(&arguments).await));
    findings.push(("conversations", conversations(&arguments)));
    findings.push(("speech", speech(&arguments)));
    let instance = instance.as_ref();
    let given = |own: &Option<String>, running: Option<&String>| own.clone().or(running.cloned());
    if let Some(url) = given(&arguments.url, instance.and_then(|i| i.http_url.as_ref())) {
        let key = arguments
            .api_key
            .clone()
            .or(instance.map(|i| i.api_key.as_str().into()));
        findings.push(("HTTP API", api(&url, key).await));
    }
    if let Some(url) = instance.and_then(|i| i.admin_url.as_ref()) {
        findings.push(("admin port", admin(url).await));
    }
    if let Some(addr) = given(
        &arguments.addr,
        instance.and_then(|i| i.device_addr.as_ref()),
    ) {
        findings.push(("device port", device_port(&addr).await));
    }
    if instance.is_none() && !arguments.names_an_installation() {
        let nothing = "nothing runs on this data folder, and no other installation is named: start \
                       `switchboard up`, or name one with --data-dir or --url";
        findings.push(("installation", Err(nothing.to_owned())));
    }
    report(&findings, arguments.json)
}

impl Arguments {
    /// Whether the settings name something that runs.
    fn names_an_installation(&self) -> bool {
        let addresses = [&self.url, &self.addr];
        addresses.into_iter().any(Option::is_some)
            || self.database.database_url.is_some()
            || self.bus.redis_url.is_some()
    }
}

fn report(findings: &[(&str, Finding)], as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let list: Vec<_> = findings
            .iter()
            .map(|(name, finding)| {
                let detail = finding.as_ref().unwrap_or_else(|remedy| remedy);
                json!({"check": name, "ok": finding.is_ok(), "detail": detail})
            })
            .collect();
        exit::print_json(&to_raw_value(&list).context("the findings are no JSON")?)?;
    }
    for (name, finding) in findings.iter().filter(|_| !as_json) {
        match finding {
            Ok(detail) => exit::print(&format!("ok    {name}: {detail}"))?,
            Err(remedy) => exit::print(&format!("FAIL  {name}: {remedy}"))?,
        }
    }
    let wrong = findings
        .iter()
        .filter(|(_, finding)| finding.is_err())
        .count();
    Ok(if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn data_folder(arguments: &Arguments, instance: Option<&Instance>) -> Finding {
    let path = arguments
        .data
        .path()
        .map_err(|_| "there is none; set one with --data-dir".to_owned())?;
    let shown = path.display();
    Ok(match instance {
        Some(_) => format!("{shown} contains the data of an `up`"),
        None => format!("{shown} does not exist; `switchboard up` creates it"),
    })
}

fn binaries(arguments: &Arguments) -> Finding {
    let found = postgres::find(arguments.postgres_bin_dir.as_deref());
    let newest = found
        .first()
        .ok_or_else(|| postgres::PostgresError::NotFound.to_string())?;
    Ok(format!(
        "version {} at {}",
        newest.major,
        newest.postgres.display()
    ))
}

async fn database(arguments: &Arguments) -> Finding {
    let store = open_store(arguments)?;
    let away = |error: StoreError| {
        format!(
            "{}: start Postgres, or correct DATABASE_URL",
            error.report()
        )
    };
    store.ping(CHECK_TIMEOUT).await.map_err(away)?;
    let server = store
        .postgres_version()
        .await
        .map_err(|error| match error {
            StoreError::UnsupportedPostgres { .. } => error.to_string(),
            error => away(error),
        })?;
    let version = store.schema_version().await.map_err(away)?;
    match version.applied.cmp(&version.known) {
        Ordering::Equal => {}
        Ordering::Less => {
            return Err(format!(
                "is at version {} of {}: run `switchboard migrate`",
                version.applied, version.known
            ));
        }
        Ordering::Greater => {
            return Err(format!(
                "is at version {}, newer than the {} of this program: use a newer program",
                version.applied, version.known
            ));
        }
    }
    let security = store.row_security().await.map_err(|error| {
        let hint = "GRANT switchboard_service, switchboard_search to the account in DATABASE_URL";
        format!("{}: {hint}", error.report())
    })?;
    if security.bypasses_policies || !security.open_tables.is_empty() {
        let open = security.open_tables.join(", ");
        return Err(format!(
            "does not isolate organisations: {} bypasses row security, or tables lack it ({open})",
            security.role
        ));
    }
    let note = server.warning().map(|warning| format!("; {warning}"));
    Ok(format!(
        "PostgreSQL {}, at version {}; statements run as {} with row security{}",
        server.major,
        version.known,
        security.role,
        note.unwrap_or_default()
    ))
}

fn open_store(arguments: &Arguments) -> Result<Store, String> {
    Store::from_config(&arguments.database)
        .map_err(|error| format!("{error}: correct DATABASE_URL"))
}

/// Checks the master key, if one is given: control and gateways have it, other processes do not.
async fn stored_keys(arguments: &Arguments) -> Finding {
    let Some(master_keys) = arguments.master_key.keys() else {
        return Ok("not checked: no master key is given here".to_owned());
    };
    let store = open_store(arguments)?.with_master_keys(master_keys.clone());
    match store.check_keys().await {
        Ok(()) => Ok(format!(
            "readable with {master_keys}; --key-set-public-key {}",
            master_keys.key_set_public_keys().join(",")
        )),
        Err(StoreError::MasterKey(error)) => Err(error.to_string()),
        Err(error) => Err(error.report()),
    }
}

async fn objects(config: &ObjectsConfig) -> Finding {
    if let Some(folder) = config.folder() {
        let shown = folder.display();
        return match folder.metadata() {
            Ok(found) if found.is_dir() => Ok(format!("{shown} is a folder")),
            Ok(_) => Err(format!(
                "{shown} is not a folder: correct SWITCHBOARD_OBJECTS"
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(format!(
                "{shown} does not exist yet; it is created on first use"
            )),
            Err(error) => Err(format!("{shown}: {error}: correct its permissions")),
        };
    }
    let place = Objects::from_config(config).map_err(|error| error.to_string())?;
    let probed = match &place {
        Some(objects) => objects.probe().await,
        None => Ok(()),
    };
    let remedy = match &probed {
        Ok(()) => return Ok("the bucket is reachable and accessible".to_owned()),
        Err(ObjectError::NoBucket(_)) => "create the bucket, or correct SWITCHBOARD_OBJECTS",
        Err(ObjectError::Denied(_)) => {
            "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or allow s3:ListBucket"
        }
        Err(_) => "correct AWS_ENDPOINT_URL and AWS_REGION, or start it",
    };
    let found = probed.err().map(|error| error.report()).unwrap_or_default();
    Err(format!("{found}: {remedy}"))
}

async fn redis(arguments: &Arguments) -> Finding {
    let shutdown = Shutdown::new();
    let checked = async {
        let bus = arguments::bus_config(&arguments.bus, "doctor")
            .and_then(|bus| arguments::start_bus(bus, &Registry::new(), &shutdown))
            .map_err(|_| "REDIS_URL is not a Redis URL: correct it".to_owned())?;
        // A node is ready once a message it published has arrived in its own inbox.
        bus.wait_ready(CHECK_TIMEOUT).await.map_err(|error| {
            format!(
                "{error} ({}): start Redis, or correct REDIS_URL",
                bus.health().detail
            )
        })?;
        if arguments.bus.key_set_public_key.is_empty() {
            return Ok("reachable; messages are delivered".to_owned());
        }
        let received = bus.wait_for_keys(CHECK_TIMEOUT).await;
        if let Some(reason) = bus.key_set_refusal() {
            return Err(arguments::describe_refusal(reason));
        }
        received
            .map_err(|_| "no token keys are published: start `switchboard control`".to_owned())?;
        Ok("reachable; messages are delivered, and the token keys are signed".to_owned())
    };
    let finding = checked.await;
    shutdown.stop();
    shutdown.finished(CHECK_TIMEOUT).await;
    finding
}

/// Reports the configured language models without sending a request, which would cost money.
fn conversations(arguments: &Arguments) -> Finding {
    match Providers::from_config(&arguments.completions) {
        Ok(Some(providers)) => {
            let names: Vec<_> = providers.names().collect();
            Ok(format!("language models: {}", names.join(", ")))
        }
        Ok(None) => Ok(format!("no provider: {RULE_RESPONDER}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Reports the configured speech providers without sending a request, which may cost money.
fn speech(arguments: &Arguments) -> Finding {
    let speech = Speech::from_config(&arguments.speech, &Registry::new());
    let speech = speech.map_err(|error| error.to_string())?;
    let names = |names: Vec<&str>| names.join(", ");
    let heard = speech.recognizers.as_ref().map_or_else(
        || {
            "no provider recognises speech: what users say to a device is not understood; set --stt-kind and --stt-endpoint"
                .to_owned()
        },
        |recognizers| format!("recognition: {}", names(recognizers.names().collect())),
    );
    let spoken = speech.synthesizers.as_ref().map_or_else(
        || "none speaks: answers arrive as text; install espeak-ng, or set --tts-kind and --tts-endpoint".to_owned(),
        |synthesizers| format!("synthesis: {}", names(synthesizers.names().collect())),
    );
    Ok(format!("{heard}; {spoken}"))
}

/// Without embeddings, search matches words only.
async fn embeddings(arguments: &Arguments) -> Finding {
    let Some(endpoint) = Endpoint::from_config(&arguments.embeddings) else {
        return Ok("not configured: search matches words only".to_owned());
    };
    if arguments.database.database_url.is_some() {
        let store = open_store(arguments)?;
        let extension = store.vector_extension().await;
        extension.map_err(|error| format!("{error}; until then search matches words only"))?;
    }
    let vectors = endpoint.embed(&["a"], CHECK_TIMEOUT).await.map_err(|error| {
        format!("{error}: correct SWITCHBOARD_EMBEDDINGS_ENDPOINT, _MODEL or _KEY; until then search matches words only")
    })?;
    let dimensions = vectors.first().map_or(0, Vec::len);
    Ok(format!(
        "{} returns {dimensions} dimensions",
        endpoint.model()
    ))
}

/// Lists the devices, which any valid key may do, to check URL and key together.
async fn api(url: &str, key: Option<SecretString>) -> Finding {
    let mut headers = HeaderMap::new();
    if let Some(key) = &key {
        let bearer = format!("Bearer {}", key.expose_secret());
        let bearer = HeaderValue::from_str(&bearer)
            .map_err(|_| "the API key contains invalid characters".to_owned())?;
        headers.insert(header::AUTHORIZATION, bearer);
    }
    let (status, _) = get(url, "/v1/devices", headers).await?;
    match (status.as_u16(), key.is_some()) {
        (200..=299, _) => Ok(format!("{url} accepts the API key")),
        (401, true) => Err(format!(
            "{url} rejects the API key: correct SWITCHBOARD_API_KEY"
        )),
        (401, false) => Ok(format!("{url} is reachable; no API key to check")),
        (status, _) => Err(format!(
            "{url} returns {status}: see /readyz on its admin port and its log"
        )),
    }
}

async fn admin(url: &str) -> Finding {
    let (status, text) = get(url, "/readyz", HeaderMap::new()).await?;
    if status.is_success() {
        return Ok(format!("{url} reports ready"));
    }
    let text = String::from_utf8_lossy(&text);
    Err(format!("{url} reports not ready: {text}"))
}

async fn get(url: &str, path: &str, headers: HeaderMap) -> Result<(StatusCode, Bytes), String> {
    let client = HttpClient::new(url, None).map_err(|error| format!("{error:#}: correct --url"))?;
    let request = HttpRequest {
        method: Method::GET,
        path,
        headers,
        body: Vec::new(),
        timeout: CHECK_TIMEOUT,
    };
    client.fetch(request).await.map_err(|error| {
        format!("{url} is unreachable ({error:#}): start `switchboard up` or `gateway`, or correct --url")
    })
}

async fn device_port(addr: &str) -> Finding {
    let known = addr
        .to_socket_addrs()
        .map_err(|error| format!("{addr} is not HOST:PORT: {error}"))?;
    let known: Vec<_> = known.collect();
    let connected = timeout(CHECK_TIMEOUT, TcpStream::connect(known.as_slice())).await;
    match connected {
        Ok(Ok(_)) => Ok(format!("{addr} accepts connections")),
        Ok(Err(error)) => Err(format!(
            "{addr}: {error}; start `switchboard up` or `edge`, or correct --addr"
        )),
        Err(_) => Err(format!("{addr} does not respond; a firewall may block it")),
    }
}
