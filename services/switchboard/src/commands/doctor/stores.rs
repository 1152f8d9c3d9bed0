//! Checks of PostgreSQL, the object store and Redis.

use std::{cmp::Ordering, io::ErrorKind};

use prometheus::Registry;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{ObjectError, Objects, ObjectsConfig, Store, StoreError};

use super::{
    Arguments, CHECK_TIMEOUT,
    finding::{Check, Finding, Problem},
    target::Target,
};
use crate::arguments;

/// The setting of PostgreSQL.
const DATABASE: &str = "DATABASE_URL (--database-url)";
/// The setting of Redis.
const REDIS: &str = "REDIS_URL (--redis-url)";
/// The setting of the object store.
const OBJECTS: &str = "SWITCHBOARD_OBJECTS (--objects)";
/// The variables of which one gives access to a bucket.
const CREDENTIALS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Opens the store without connecting.
pub(super) fn open_store(arguments: &Arguments) -> Result<Store, Problem> {
    Store::from_config(&arguments.database).map_err(|error| Problem::set(error, DATABASE))
}

/// Connects, compares the version of the schema, and reads the row security.
pub(super) async fn database(arguments: &Arguments) -> Finding {
    let how = "connected, and read the versions of the server and the schema, and the row security";
    Check::Postgres.line(how, check_database(arguments).await)
}

async fn check_database(arguments: &Arguments) -> Result<String, Problem> {
    let store = open_store(arguments)?;
    let away = |error: StoreError| {
        let what = format!("{}; Postgres must run there", error.report());
        Problem::set(what, DATABASE)
    };
    store.ping(CHECK_TIMEOUT).await.map_err(away)?;
    let server = store
        .postgres_version()
        .await
        .map_err(|error| match error {
            StoreError::UnsupportedPostgres { .. } => Problem::set(error.to_string(), DATABASE),
            error => away(error),
        })?;
    let version = store.schema_version().await.map_err(away)?;
    match version.applied.cmp(&version.known) {
        Ordering::Equal => {}
        Ordering::Less => {
            let what = format!("is at version {} of {}", version.applied, version.known);
            return Err(Problem::run(what, "switchboard migrate"));
        }
        Ordering::Greater => {
            let what = format!(
                "is at version {}, newer than the {} of this program: use a newer program",
                version.applied, version.known
            );
            return Err(Problem::set(what, DATABASE));
        }
    }
    let security = store.row_security().await.map_err(|error| {
        let what = format!("{}; the account lacks roles", error.report());
        let grant = "GRANT switchboard_service, switchboard_search TO ACCOUNT";
        Problem::run(what, format!("psql \"$DATABASE_URL\" -c '{grant}'"))
    })?;
    if security.bypasses_policies || !security.open_tables.is_empty() {
        let open = security.open_tables.join(", ");
        let what = format!(
            "does not isolate organisations: {} bypasses row security, or tables lack it ({open}); \
             use an account of its own",
            security.role
        );
        return Err(Problem::set(what, DATABASE));
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

/// Checks the master key, if one is given: control and gateways have it, other processes do not.
pub(super) async fn stored_keys(arguments: &Arguments) -> Finding {
    let check = Check::StoredKeys;
    let setting = "SWITCHBOARD_MASTER_KEY_FILE (--master-key-file)";
    let Some(master_keys) = arguments.master_key.keys() else {
        return check.skipped("read the settings", "no master key is given here");
    };
    let result = async {
        let store = open_store(arguments)?.with_master_keys(master_keys.clone());
        match store.check_keys().await {
            Ok(()) => Ok(format!(
                "readable with {master_keys}; --key-set-public-key {}",
                master_keys.key_set_public_keys().join(",")
            )),
            Err(StoreError::MasterKey(error)) => Err(Problem::set(error, setting)),
            Err(error) => Err(Problem::set(error.report(), DATABASE)),
        }
    };
    check.line("decrypted the keys with the master key", result.await)
}

/// Lists the bucket, or looks at the folder. `None` if neither is configured.
pub(super) async fn objects(config: &ObjectsConfig, target: &Target) -> Option<Finding> {
    let check = Check::Objects;
    if config.objects.is_none() {
        let reason = target.unreadable_settings(false)?;
        return Some(check.skipped("read the settings", reason));
    }
    let has_variable = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if config.folder().is_none()
        && target.inherits("objects")
        && !CREDENTIALS.into_iter().any(has_variable)
    {
        let reason = "the `up` has --objects, and credentials are not stored: set its AWS_… variables \
                      here";
        return Some(check.skipped("read the settings and the environment", reason));
    }
    Some(check_objects(config).await)
}

async fn check_objects(config: &ObjectsConfig) -> Finding {
    let check = Check::Objects;
    if let Some(folder) = config.folder() {
        let shown = folder.display();
        let result = match folder.metadata() {
            Ok(found) if found.is_dir() => Ok(format!("{shown} is a folder")),
            Ok(_) => Err(Problem::set(format!("{shown} is not a folder"), OBJECTS)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(format!(
                "{shown} does not exist yet; it is created on first use"
            )),
            Err(error) => Err(Problem::set(format!("{shown}: {error}"), OBJECTS)),
        };
        return check.line("read the metadata of the folder", result);
    }
    check.line("listed the bucket", probe_bucket(config).await)
}

async fn probe_bucket(config: &ObjectsConfig) -> Result<String, Problem> {
    let place = Objects::from_config(config).map_err(|error| Problem::set(error, OBJECTS))?;
    let probed = match &place {
        Some(objects) => objects.probe().await,
        None => Ok(()),
    };
    let Err(error) = probed else {
        return Ok("the bucket is reachable and accessible".to_owned());
    };
    let (hint, settings) = match &error {
        ObjectError::NoBucket(_) => ("create the bucket", OBJECTS),
        ObjectError::Denied(_) => (
            "allow s3:ListBucket",
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        _ => (
            "the object store must run there",
            "AWS_ENDPOINT_URL and AWS_REGION",
        ),
    };
    Err(Problem::set(
        format!("{}; {hint}", error.report()),
        settings,
    ))
}

/// Sends a message to this node's own inbox; compares the token keys if a key is pinned.
pub(super) async fn redis(arguments: &Arguments) -> Finding {
    let shutdown = Shutdown::new();
    let how = "connected, and sent a message to an inbox of its own";
    let result = check_redis(arguments, &shutdown).await;
    shutdown.stop();
    shutdown.finished(CHECK_TIMEOUT).await;
    Check::Redis.line(how, result)
}

async fn check_redis(arguments: &Arguments, shutdown: &Shutdown) -> Result<String, Problem> {
    let bus = arguments::bus_config(&arguments.bus, "doctor")
        .and_then(|bus| arguments::start_bus(bus, &Registry::new(), shutdown))
        .map_err(|_| Problem::set("REDIS_URL is not a Redis URL", REDIS))?;
    // A node is ready once a message it published has arrived in its own inbox.
    bus.wait_ready(CHECK_TIMEOUT).await.map_err(|error| {
        let detail = bus.health().detail;
        Problem::set(format!("{error} ({detail}); Redis must run there"), REDIS)
    })?;
    if arguments.bus.key_set_public_key.is_empty() {
        return Ok("reachable; messages are delivered".to_owned());
    }
    let received = bus.wait_for_keys(CHECK_TIMEOUT).await;
    if let Some(reason) = bus.key_set_refusal() {
        let what = arguments::describe_refusal(reason);
        return Err(Problem::set(what, "--key-set-public-key"));
    }
    received.map_err(|_| Problem::run("no token keys are published", "switchboard control"))?;
    Ok("reachable; messages are delivered, and the token keys are signed".to_owned())
}
