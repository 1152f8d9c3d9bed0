//! The metric names and label values that dashboards and alerts use exist in the processes. The
//! names are read from those files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::TaskId;
use switchboard_test_support::{data_folder::DataFolder, switchboard::Program};

use crate::{
    cluster::TestCluster,
    collector::Collector,
    provider::Provider,
    system::{ChatFixture, TestSystem, provider_settings},
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const TASK: TaskId = TaskId(*b"task0001");
/// Labels whose values are set by Prometheus, its targets, clients or operators.
const ELSEWHERE: [&str; 8] = [
    "namespace",
    "instance",
    "job",
    "le",
    "route",
    "method",
    "status",
    "provider",
];

/// A series: its labels.
type Labels = BTreeMap<String, String>;

/// The exposed series, by metric name.
#[derive(Default)]
struct Shown(BTreeMap<String, Vec<(Labels, f64)>>);

/// A selector: a metric name and its label matchers.
type Wanted = (String, Vec<Matcher>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) value: String,
    is_pattern: bool,
}

impl Shown {
    async fn at(admin_ports: &[String]) -> Self {
        let mut shown = Self::default();
        for admin in admin_ports {
            let answer = reqwest::get(format!("{admin}/metrics")).await.unwrap();
            let text = answer.text().await.unwrap();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, rest) = name_at(series).unwrap();
                let labels = matchers(rest);
                let labels = labels.into_iter().map(|one| (one.label, one.value));
                let series = (labels.collect(), value.parse().unwrap());
                shown.0.entry(name).or_default().push(series);
            }
        }
        shown
    }

    fn sum(&self, name: &str, label: &str, value: &str) -> f64 {
        let series = self.0.get(name).into_iter().flatten();
        let those = series.filter(|(labels, _)| labels.get(label).is_some_and(|is| is == value));
        those.map(|(_, value)| value).sum()
    }

    /// The matchers without a series.
    fn lacks(&self, (name, wanted): &Wanted) -> Option<String> {
        let Some(series) = self.0.get(name) else {
            return Some(format!("{name} is shown by nobody"));
        };
        let ours = wanted.iter().filter(|wanted| {
            !ELSEWHERE.contains(&wanted.label.as_str()) && !wanted.value.contains('$')
        });
        let mut pieces = ours.flat_map(|wanted| {
            let values: Vec<&str> = if wanted.is_pattern {
                wanted.value.split('|').collect()
            } else {
                vec![wanted.value.as_str()]
            };
            values
                .into_iter()
                .map(|value| (wanted.label.as_str(), value))
        });
        let lacking = pieces.find(|(label, value)| {
            !series.iter().any(|(labels, _)| {
                let is = labels.get(*label).map_or("", String::as_str);
                match value.strip_suffix(".*") {
                    Some(beginning) => is.starts_with(beginning),
                    None => is == *value,
                }
            })
        });
        lacking.map(|(label, value)| format!("{name} has no series with {label}=\"{value}\""))
    }

    #[track_caller]
    fn must_have(&self, wanted: &BTreeSet<Wanted>) {
        let lacking: BTreeSet<_> = wanted.iter().filter_map(|one| self.lacks(one)).collect();
        assert!(lacking.is_empty(), "{lacking:#?}");
    }
}

/// The metric name at the start of the text, and the rest.
pub(crate) fn name_at(text: &str) -> Option<(String, &str)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty()).then(|| (name.to_owned(), rest))
}

/// The content of the braces at the start of the text.
pub(crate) fn matchers(text: &str) -> Vec<Matcher> {
    let mut found = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return found;
    };
    while let Some((label, behind)) = name_at(rest.trim_start_matches([',', ' '])) {
        let Some((operator, quoted)) = behind.split_once('"') else {
            break;
        };
        let Some((value, behind)) = quoted.split_once('"') else {
            break;
        };
        found.push(Matcher {
            label,
            value: value.to_owned(),
            is_pattern: operator.contains('~'),
        });
        rest = behind;
    }
    found
}

/// All selectors of Switchboard metrics in a text.
fn asked_in(text: &str) -> BTreeSet<Wanted> {
    let places = text.match_indices("switchboard_").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|letter| !letter.is_ascii_alphanumeric() && !"_-/".contains(letter))
    });
    let named = places.filter_map(|(at, _)| name_at(&text[at..]));
    named.map(|(name, rest)| (name, matchers(rest))).collect()
}

fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|one| texts(one, out)),
        Value::Object(members) => members.values().for_each(|one| texts(one, out)),
        _ => {}
    }
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|is| is == ending))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "nothing in {}", folder.display());
    found
}

/// All selectors of the rules and dashboards.
fn asked_for() -> BTreeSet<Wanted> {
    let deploy = Path::new(DEPLOY);
    let mut wanted = BTreeSet::new();
    for file in files(&deploy.join("prometheus/rules"), "yml") {
        wanted.extend(asked_in(&fs::read_to_string(file).unwrap()));
    }
    for file in files(&deploy.join("grafana/dashboards"), "json") {
        let dashboard = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let mut said = Vec::new();
        texts(&dashboard, &mut said);
        said.iter().for_each(|text| wanted.extend(asked_in(text)));
    }
    let names: BTreeSet<_> = wanted.iter().map(|(name, _)| name).collect();
    assert!(names.len() > 40, "only {names:?}");
    wanted
}

/// The selectors with the values of the service label as these processes expose them.
fn asked_of_services(put: impl Fn(Matcher) -> Option<Matcher>) -> BTreeSet<Wanted> {
    let of_one = |matcher: Matcher| match matcher.label.as_str() {
        "service" => put(matcher),
        _ => Some(matcher),
    };
    let all = asked_for().into_iter();
    all.map(|(name, matchers)| (name, matchers.into_iter().filter_map(of_one).collect()))
        .collect()
}

/// Makes a call, a turn with a model, and a request without a credential.
pub(crate) async fn something_happens(system: &TestSystem, provider: &mut Provider, calls: &str) {
    let mut device = system.device(0, "toy-1").await;
    device.send_text(TASK, "Who are you?").await;
    provider.next_request().await.reply("A toy.").await;
    assert_eq!(device.receive_answer(TASK).await, "A toy.");
    let echo = json!({"echo": {"description": "Echo", "parameters": {"type": "object"}}});
    device.register(&echo.to_string()).await;
    let _serving = device.serve();
    let url = format!("{calls}/v1/devices/toy-1/calls");
    let body = json!({"service": "echo", "params": {}});
    let call = || system.http.post(&url).json(&body);
    let answer = call().bearer_auth(&system.key).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let refused = call().send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    system.turns_ended("answered", 1).await;
}

fn happened(shown: &Shown) -> bool {
    shown.sum("switchboard_gateway_calls_total", "outcome", "succeeded") >= 1.0
        && shown.sum(
            "switchboard_http_auth_failures_total",
            "kind",
            "missing_credentials",
        ) >= 1.0
        && shown.sum(
            "switchboard_completions_request_seconds_count",
            "outcome",
            "complete",
        ) >= 1.0
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_dashboards_and_alerts_exist() {
    let collector = Collector::start().await;
    let traced = [("SWITCHBOARD_OTLP_ENDPOINT", collector.url.as_str())];
    let cluster = TestCluster::start_with(1, &traced).await;
    let mut fixture = ChatFixture::with_cluster(cluster, Provider::start().await, &traced);
    let gateway = fixture.cluster.gateway.address("http_url");
    something_happens(&fixture.system, &mut fixture.provider, &gateway).await;
    // The chat service receives no other requests.
    let talk = format!("{}/v1/npcs/none/chat", fixture.system.talk);
    fixture.system.http.post(talk).send().await.unwrap();
    let programs = fixture.cluster.programs().chain([&fixture.chat]);
    let admin: Vec<_> = programs.map(|one| one.address("admin_url")).collect();
    let shown = Shown::at(&admin).await;
    // The process that runs all services is not among them.
    shown.must_have(&asked_of_services(|service| {
        let apart = service.value.trim_end_matches("|up").to_owned();
        Some(Matcher {
            value: apart,
            ..service
        })
    }));
    assert!(happened(&shown));
    let commands = "switchboard_bus_command_seconds_count";
    for command in ["publish", "claim", "lookup", "stream"] {
        assert!(shown.sum(commands, "command", command) >= 1.0, "{command}");
    }
    // Counted once a minute, first before any device is connected.
    let devices = &shown.0["switchboard_bus_directory_devices"];
    assert_eq!(devices.len(), admin.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_single_process_match_dashboards() {
    let (collector, folder) = (Collector::start().await, DataFolder::new());
    let mut provider = Provider::start().await;
    let mut settings = provider_settings(&provider).to_vec();
    settings.push(("SWITCHBOARD_OTLP_ENDPOINT", collector.url.clone()));
    let up = Program::start(&folder.up_arguments(&[]), &settings);
    let system = TestSystem {
        http: reqwest::Client::new(),
        key: up.address("api_key"),
        settings: up.address("http_url"),
        talk: up.address("http_url"),
        admin: up.address("admin_url"),
        devices: vec![up.address("device_addr")],
    };
    let calls = up.address("http_url");
    something_happens(&system, &mut provider, &calls).await;
    let admin = [up.address("admin_url")];
    let shown = Shown::at(&admin).await;
    // All services are one process here.
    shown.must_have(&asked_of_services(|_| None));
    assert!(happened(&shown));
    assert_eq!(shown.0["switchboard_bus_up"], [(Labels::new(), 1.0)]);
    for name in ["process_resident_memory_bytes", "process_open_fds"] {
        assert!(shown.0[name][0].1 > 0.0, "{name}");
    }
}
