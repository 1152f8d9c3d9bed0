//! Compatibility of metrics: names, types, labels and the values of labels with a fixed set.
//!
//! Dashboards and alerts of operators refer to them. See `tests/compatibility` for the frozen
//! values.

use std::collections::{BTreeMap, BTreeSet};

use switchboard_test_support::{data_folder::DataFolder, snapshot, switchboard::Program};

use crate::{
    collector::Collector,
    metrics::{matchers, name_at, something_happens},
    provider::Provider,
    system::{TestSystem, provider_settings},
};

/// Labels whose values come from requests, clients or the configuration.
const OPEN: [&str; 7] = [
    "route", "method", "status", "provider", "le", "version", "revision",
];

/// One line for each metric of an exposition with its type, and one for each of its labels.
fn families(text: &str) -> Vec<String> {
    let mut kinds = BTreeMap::new();
    let mut labels: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            kinds.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (name, rest) = name_at(line).unwrap();
            // A histogram has series of three names.
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| name.strip_suffix(part));
            let family = family.filter(|name| kinds.contains_key(*name));
            let values = labels
                .entry(family.unwrap_or(&name).to_owned())
                .or_default();
            for (label, value) in matchers(rest).into_iter().map(|one| (one.label, one.value)) {
                let is_open = OPEN.contains(&label.as_str());
                let value = if is_open { "*".to_owned() } else { value };
                values.entry(label).or_default().insert(value);
            }
        }
    }
    let mut lines = Vec::new();
    for (name, kind) in kinds {
        lines.push(format!("{name} {kind}"));
        for (label, values) in labels.remove(&name).into_iter().flatten() {
            let values = values.into_iter();
            lines.extend(values.map(|value| format!("{name} {{{label}={value}}}")));
        }
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_keep_their_names_and_labels() {
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
    let metrics = reqwest::get(format!("{}/metrics", system.admin))
        .await
        .unwrap();
    snapshot::check("metrics.txt", families(&metrics.text().await.unwrap()));
}
