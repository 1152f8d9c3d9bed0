//! The master key: set on a running system, rotated, and missing; the token keys that nodes need.

use std::time::Duration;

use reqwest::StatusCode;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use switchboard_store::{MasterKeys, Store};
use switchboard_test_support::{
    eventually::eventually,
    redis_server::RedisServer,
    switchboard::{Program, executable},
};

use crate::cluster::TestCluster;

const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const TIMEOUT: Duration = Duration::from_secs(10);

fn generated() -> String {
    MasterKeys::generate().expose_secret().to_owned()
}

/// Whether these master keys are sufficient to read the keys in the database.
async fn are_sufficient(cluster: &TestCluster, keys: &str) -> bool {
    let keys = MasterKeys::parse(keys).unwrap();
    let store = Store::open(cluster.database.url()).unwrap();
    store.with_master_keys(keys).check_keys().await.is_ok()
}

/// Replaces a service with one that has these master keys.
async fn replace(cluster: &mut TestCluster, service: &str, keys: &str) {
    let mut environment = cluster.environment();
    environment.push(("SWITCHBOARD_MASTER_KEY", keys.to_owned()));
    let arguments = [service, "--http-listen", "127.0.0.1:0"];
    let program = match service {
        "control" => &mut cluster.control,
        _ => &mut cluster.gateway,
    };
    program.terminate();
    assert_eq!(program.exit_code(EXIT_TIMEOUT).await, Some(0));
    *program = Program::start(&arguments, &environment);
}

/// The status of a request with this token.
async fn status(cluster: &TestCluster, token: &str) -> StatusCode {
    let request = cluster.http.get(cluster.url("/v1/devices"));
    request.bearer_auth(token).send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn master_key_is_set_rotated_and_required() {
    let mut cluster = TestCluster::start(0).await;
    let org = cluster.org.clone();
    let new_token = async |cluster: &TestCluster| {
        let token = cluster.token(&org, "client:app", &["read"]).await;
        token["access_token"].as_str().unwrap().to_owned()
    };
    let old = new_token(&cluster).await;
    assert!(
        are_sufficient(&cluster, "none").await,
        "stored in the clear"
    );
    let warning = "stored in the clear";
    assert!(cluster.control.logged().contains(warning));

    let (first, second) = (generated(), generated());
    replace(&mut cluster, "gateway", &first).await;
    replace(&mut cluster, "control", &first).await;
    let encrypted = async || !are_sufficient(&cluster, "none").await;
    eventually(TIMEOUT, encrypted, |encrypted| *encrypted).await;
    assert!(!cluster.control.logged().contains(warning));
    assert!(!cluster.control.logged().contains(&first));
    assert_eq!(status(&cluster, &old).await, StatusCode::OK);
    let token = new_token(&cluster).await;
    assert_eq!(status(&cluster, &token).await, StatusCode::OK);

    // A process without the master key ends.
    let id = MasterKeys::parse(&first).unwrap();
    let id = id.current_id().unwrap();
    for (service, keys) in [
        ("control", Some(&second)),
        ("control", None),
        ("gateway", None),
    ] {
        let mut environment = cluster.environment();
        environment.push(("SWITCHBOARD_HTTP_LISTEN", "127.0.0.1:0".to_owned()));
        environment.extend(keys.map(|keys| ("SWITCHBOARD_MASTER_KEY", keys.clone())));
        let mut refused = Program::launch(&[service], &environment);
        assert_eq!(refused.exit_code(EXIT_TIMEOUT).await, Some(1), "{service}");
        let log = refused.logged();
        let expect = format!("is encrypted with the master key {id}");
        assert!(log.contains(&expect), "{log}");
        assert!(log.contains("SWITCHBOARD_MASTER_KEY"), "{log}");
    }
    assert!(
        are_sufficient(&cluster, &first).await,
        "nothing was changed"
    );

    // A rotation: all processes can read the next key, then it encrypts, then the former one goes.
    replace(&mut cluster, "gateway", &format!("{first},{second}")).await;
    replace(&mut cluster, "control", &format!("{second},{first}")).await;
    let rotated = async || are_sufficient(&cluster, &second).await;
    eventually(TIMEOUT, rotated, |rotated| *rotated).await;
    assert!(!are_sufficient(&cluster, &first).await);
    replace(&mut cluster, "control", &second).await;
    for token in [old, token, new_token(&cluster).await] {
        assert_eq!(status(&cluster, &token).await, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_nodes_adopt_signed_keys_and_doctor_checks_them() {
    let key = generated();
    let public = MasterKeys::parse(&key).unwrap().key_set_public_keys();
    let settings = [
        ("SWITCHBOARD_MASTER_KEY", key.as_str()),
        ("SWITCHBOARD_KEY_SET_PUBLIC_KEY", public[0].as_str()),
    ];
    let cluster = TestCluster::start_with(1, &settings).await;
    assert!(cluster.control.logged().contains(&public[0]));
    let token = cluster.token(&cluster.org, "client:app", &["read"]).await;
    let token = token["access_token"].as_str().unwrap();
    assert_eq!(status(&cluster, token).await, StatusCode::OK);
    let _device = cluster.device(0, "toy-1").await;

    let doctor = |pinned: &str| {
        let mut command = std::process::Command::new(executable());
        command.arg("doctor").envs(cluster.environment());
        command.env("SWITCHBOARD_KEY_SET_PUBLIC_KEY", pinned);
        let folder = tempfile::tempdir().unwrap();
        command.arg("--data-dir").arg(folder.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let other = MasterKeys::parse(&generated())
        .unwrap()
        .key_set_public_keys();
    let (good, bad) = tokio::task::block_in_place(|| (doctor(&public[0]), doctor(&other[0])));
    assert!(good.contains("the token keys are signed"), "{good}");
    assert!(
        bad.contains("FAIL  Redis: the published token keys are refused"),
        "{bad}"
    );

    // A node that pins another key is not ready, and says why.
    let mut environment = cluster.environment();
    environment.push(("SWITCHBOARD_KEY_SET_PUBLIC_KEY", other[0].clone()));
    let edge = Program::start(&["edge"], &environment);
    let ready = async || {
        let url = format!("{}/readyz", edge.address("admin_url"));
        let answer = cluster.http.get(url).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let (status, report) =
        eventually(TIMEOUT, ready, |(_, report)| report.contains("refused")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{report}");
    assert!(report.contains("--key-set-public-key"), "{report}");
}

/// At a Redis to which control has published nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_token_keys_are_not_ready() {
    let cluster = TestCluster::start(0).await;
    let empty = RedisServer::start();
    let mut environment = cluster.environment();
    environment.push(("REDIS_URL", empty.url()));
    environment.push(("SWITCHBOARD_HTTP_LISTEN", "127.0.0.1:0".to_owned()));
    for service in ["gateway", "edge"] {
        let program = Program::start(&[service], &environment);
        let url = format!("{}/readyz", program.address("admin_url"));
        let report = async || {
            let answer = cluster.http.get(&url).send().await.unwrap();
            (answer.status(), answer.json::<Value>().await.unwrap())
        };
        let is_connected =
            |(_, report): &(_, Value)| report["dependencies"]["redis"]["ready"] == true;
        let (status, report) = eventually(TIMEOUT, report, is_connected).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{report}");
        assert_eq!(report["dependencies"]["trust"]["ready"], false, "{report}");
    }
}
