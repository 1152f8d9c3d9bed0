//! `switchboard doctor`: is everything reachable, and if not, what to do.
//! Never: a change to anything; a secret on the screen.

use std::{
    cmp::Ordering, io::ErrorKind, net::ToSocketAddrs, path::PathBuf, process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use prometheus::Registry;
use secrecy::{ExposeSecret, SecretString};
use switchboard_chat::EMBEDDED_RESPONDER;
use switchboard_completions::Providers;
use switchboard_embeddings::Endpoint;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{ObjectError, Objects, ObjectsConfig, StoreError};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    arguments::{self, DataArguments},
    data_folder::Instance,
    exit::{self, Failure},
    postgres,
    site::{Ask, Site},
};

/// How long each thing may take to answer.
const WITHIN: Duration = Duration::from_secs(3);

/// Says for each thing Switchboard needs whether it is there, and what to do if it is not.
///
/// Looks at what is given, and at the `up` on --data-dir.
///
/// Exit codes: 0 all is well, 1 something is not, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    #[command(flatten)]
    database: switchboard_store::Config,
    #[command(flatten)]
    objects: ObjectsConfig,
    #[command(flatten)]
    bus: switchboard_bus::Config,
    #[command(flatten)]
    embeddings: switchboard_embeddings::Config,
    #[command(flatten)]
    completions: switchboard_completions::Config,
    /// The HTTP API; without it that of the `up` on --data-dir
    #[arg(long, env = "SWITCHBOARD_URL", value_name = "URL")]
    url: Option<String>,
    /// Where devices dial in; without it that of the `up` on --data-dir
    #[arg(long, env = "SWITCHBOARD_DEVICE_ADDR", value_name = "HOST:PORT")]
    addr: Option<String>,
    /// An API key to try; without it that of the `up` on --data-dir
    #[arg(
        long,
        env = "SWITCHBOARD_API_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    api_key: Option<SecretString>,
    /// Where PostgreSQL's programs are, instead of on PATH and in the usual places
    #[arg(long, env = "SWITCHBOARD_POSTGRES_BIN_DIR", value_name = "FOLDER")]
    postgres_bin_dir: Option<PathBuf>,
}

/// What was found out about one thing: what is well, or what is wrong and what to do.
type Finding = Result<String, String>;

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let instance = arguments.data.instance()?;
    let mut findings: Vec<(&str, Finding)> = vec![("settings", Ok("can be read".to_owned()))];
    findings.push(("data folder", data_folder(&arguments, instance.as_ref())));
    if arguments.database.database_url.is_some() {
        findings.push(("Postgres", database(&arguments).await));
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
    report(&findings)
}

fn report(findings: &[(&str, Finding)]) -> Result<ExitCode, Failure> {
    for (name, finding) in findings {
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
        .map_err(|_| "there is none; name one with --data-dir".to_owned())?;
    let shown = path.display();
    Ok(match instance {
        Some(_) => format!("{shown} holds the data of an `up`"),
        None => format!("{shown} is unused; `switchboard up` would make it"),
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
    let store = switchboard_store::Store::from_config(&arguments.database)
        .map_err(|error| format!("{error}: correct DATABASE_URL"))?;
    let away = |error: StoreError| {
        format!(
            "{}: start Postgres, or correct DATABASE_URL",
            error.report()
        )
    };
    store.ping(WITHIN).await.map_err(away)?;
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
                "is at version {}, and this program knows {}: use a newer one",
                version.applied, version.known
            ));
        }
    }
    let security = store.row_security().await.map_err(|error| {
        let hint = "GRANT switchboard_service, switchboard_search to the account in DATABASE_URL";
        format!("{}: {hint}", error.report())
    })?;
    if security.is_above || !security.open_tables.is_empty() {
        let open = security.open_tables.join(", ");
        return Err(format!(
            "does not keep organisations apart: {} is above row security, or tables are without it ({open})",
            security.role
        ));
    }
    Ok(format!(
        "answers, at version {}; statements run as {}, bound by row security",
        version.known, security.role
    ))
}

async fn objects(config: &ObjectsConfig) -> Finding {
    if let Some(folder) = config.folder() {
        let shown = folder.display();
        return match folder.metadata() {
            Ok(found) if found.is_dir() => Ok(format!("{shown} is a folder")),
            Ok(_) => Err(format!("{shown} is no folder: correct SWITCHBOARD_OBJECTS")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(format!("{shown} is not there yet; it will be made"))
            }
            Err(error) => Err(format!("{shown}: {error}: correct its permissions")),
        };
    }
    let place = Objects::from_config(config).map_err(|error| error.to_string())?;
    let probed = match &place {
        Some(objects) => objects.probe().await,
        None => Ok(()),
    };
    let remedy = match &probed {
        Ok(()) => return Ok("the bucket answers and lets us in".to_owned()),
        Err(ObjectError::NoBucket(_)) => "make the bucket, or correct SWITCHBOARD_OBJECTS",
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
            .map_err(|_| "correct REDIS_URL, which is no Redis URL".to_owned())?;
        // A node is ready when what it published has come back to its own inbox.
        bus.ready(WITHIN).await.map_err(|error| {
            format!(
                "{error} ({}): start Redis, or correct REDIS_URL",
                bus.health().detail
            )
        })?;
        Ok("answers, and messages come back".to_owned())
    };
    let finding = checked.await;
    shutdown.stop();
    shutdown.finished(WITHIN).await;
    finding
}

/// Says who answers. No model is asked anything: that would cost.
fn conversations(arguments: &Arguments) -> Finding {
    match Providers::from_config(&arguments.completions) {
        Ok(Some(providers)) => {
            let names: Vec<_> = providers.names().collect();
            Ok(format!("language models answer: {}", names.join(", ")))
        }
        Ok(None) => Ok(format!("no provider: {EMBEDDED_RESPONDER}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Without them searches go on, by words alone.
async fn embeddings(arguments: &Arguments) -> Finding {
    let Some(endpoint) = Endpoint::from_config(&arguments.embeddings) else {
        return Ok("not set: searches go by words alone".to_owned());
    };
    if arguments.database.database_url.is_some() {
        let store = switchboard_store::Store::from_config(&arguments.database)
            .map_err(|error| format!("{error}: correct DATABASE_URL"))?;
        let extension = store.vector_extension().await;
        extension.map_err(|error| format!("{error}; until then searches go by words alone"))?;
    }
    let vectors = endpoint.embed(&["a"], WITHIN).await.map_err(|error| {
        format!("{error}: correct SWITCHBOARD_EMBEDDINGS_ENDPOINT, _MODEL or _KEY; until then searches go by words alone")
    })?;
    let dimensions = vectors.first().map_or(0, Vec::len);
    Ok(format!(
        "{} answers with {dimensions} dimensions",
        endpoint.model()
    ))
}

/// Asks for the devices, which any good key may see, so that URL and key are tried together.
async fn api(url: &str, key: Option<SecretString>) -> Finding {
    let mut headers = HeaderMap::new();
    if let Some(key) = &key {
        let bearer = format!("Bearer {}", key.expose_secret());
        let bearer =
            HeaderValue::from_str(&bearer).map_err(|_| "the API key is none".to_owned())?;
        headers.insert(header::AUTHORIZATION, bearer);
    }
    let (status, _) = get(url, "/v1/devices", headers).await?;
    match (status.as_u16(), key.is_some()) {
        (200..=299, _) => Ok(format!("{url} answers and takes the API key")),
        (401, true) => Err(format!(
            "{url} refuses the API key: correct SWITCHBOARD_API_KEY"
        )),
        (401, false) => Ok(format!("{url} answers; no API key to try")),
        (status, _) => Err(format!(
            "{url} answers {status}: see /readyz on its admin port and its log"
        )),
    }
}

async fn admin(url: &str) -> Finding {
    let (status, text) = get(url, "/readyz", HeaderMap::new()).await?;
    if status.is_success() {
        return Ok(format!("{url} says ready"));
    }
    let text = String::from_utf8_lossy(&text);
    Err(format!("{url} says not ready: {text}"))
}

async fn get(url: &str, path: &str, headers: HeaderMap) -> Result<(StatusCode, Bytes), String> {
    let site = Site::new(url, None).map_err(|error| format!("{error:#}: correct --url"))?;
    let ask = Ask {
        method: Method::GET,
        path,
        headers,
        body: Vec::new(),
        within: WITHIN,
    };
    site.ask(ask).await.map_err(|error| {
        format!("{url} cannot be reached ({error:#}): start `switchboard up` or `gateway`, or correct --url")
    })
}

async fn device_port(addr: &str) -> Finding {
    let known = addr
        .to_socket_addrs()
        .map_err(|error| format!("{addr} is no HOST:PORT: {error}"))?;
    let known: Vec<_> = known.collect();
    let connected = timeout(WITHIN, TcpStream::connect(known.as_slice())).await;
    match connected {
        Ok(Ok(_)) => Ok(format!("{addr} accepts connections")),
        Ok(Err(error)) => Err(format!(
            "{addr}: {error}; start `switchboard up` or `edge`, or correct --addr"
        )),
        Err(_) => Err(format!(
            "{addr} does not answer; a firewall may be in between"
        )),
    }
}
