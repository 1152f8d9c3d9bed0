//! The budgets of the processes are those of docs/limits.md, with these capacities, shares and
//! flags.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    thread,
};

use serde_json::Value;
use switchboard_test_support::switchboard::{Program, executable};

use crate::{cluster::TestCluster, system::start_chat};

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
const BUS_METRIC: &str = "switchboard_bus_budget_refused_total{budget=\"";
const MIB: usize = 1024 * 1024;

/// A row of a table, by the heading of its column.
type Row = BTreeMap<String, String>;

/// The rows of the table whose first columns have these headings.
fn table(document: &str, headings: &str) -> Vec<Row> {
    let mut lines = document.lines();
    let first = lines.find(|line| line.starts_with(headings));
    let headings = cells(first.unwrap_or_else(|| panic!("no table {headings}")));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let row = |line| headings.iter().cloned().zip(cells(line)).collect();
    rows.map(row).collect()
}

fn cells(line: &str) -> Vec<String> {
    let cells = line.trim().trim_matches('|').split('|');
    cells.map(|cell| cell.trim().to_owned()).collect()
}

/// What is between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The flags in a cell that a service has: `--flag` is of all, and `--flag` of the gateway of one.
fn flags<'a>(cell: &'a str, service: &str) -> Vec<&'a str> {
    let pieces: Vec<_> = cell.split('`').collect();
    let flags = pieces.windows(2).skip(1).step_by(2);
    let flags = flags.filter(|piece| {
        let only = piece[1].strip_prefix(" of the ");
        piece[0].starts_with("--") && only.is_none_or(|only| only == service)
    });
    flags.map(|piece| piece[0]).collect()
}

fn name(row: &Row) -> &str {
    code(&row["budget"]).next().unwrap()
}

/// The amount of a cell, and its unit. Text after a comma and a space is an explanation.
fn capacity(cell: &str) -> (usize, &'static str) {
    let cores = thread::available_parallelism().unwrap().get();
    let amount = cell.split(", ").next().unwrap();
    let number = |text: &str| text.replace(',', "").parse::<usize>();
    match amount {
        "half of the cores" => ((cores / 2).max(1), "slots"),
        // Without a setting there is one.
        "1 for each provider" => (1, "slots"),
        _ => match amount.strip_suffix(" MiB") {
            Some(mib) => (number(mib).unwrap() * MIB, "bytes"),
            None => (number(amount).unwrap(), "slots"),
        },
    }
}

/// Whether this is the share that a cell describes.
fn is_share(cell: &str, capacity: usize, share: usize) -> bool {
    let part = cell.split([',', ';']).next().unwrap();
    let expected = match part {
        "all" => capacity,
        "half" => capacity / 2,
        "a quarter" => capacity / 4,
        "three quarters" => capacity / 4 * 3,
        "four fifths" => capacity / 5 * 4,
        number => number.parse().unwrap(),
    };
    share == expected || cell.contains(", at least ") && (expected..=capacity).contains(&share)
}

/// The default of a flag of a subcommand, and `None` for a flag that it does not have.
fn default_of(help: &str, flag: &str) -> Option<usize> {
    let mut lines = help.lines().map(str::trim_start).skip_while(|line| {
        let first = line.split([' ', '=']).next();
        first != Some(flag)
    });
    lines.next()?;
    let others = lines.take_while(|line| !line.starts_with("--"));
    let mut defaults = others.filter_map(|line| line.split_once("[default: "));
    let (_, default) = defaults.next()?;
    default.split(']').next()?.parse().ok()
}

fn help(service: &str) -> String {
    let help = Command::new(executable())
        .args([service, "--help"])
        .output();
    String::from_utf8(help.unwrap().stdout).unwrap()
}

/// What differs between a row and the budget that a process reports.
fn differences(row: &Row, budget: &Value, (service, help): (&str, &str)) -> Vec<String> {
    let mut found = Vec::new();
    let amount = |field: &str| usize::try_from(budget[field].as_u64().unwrap()).unwrap();
    let (total, share) = (amount("capacity"), amount("share"));
    let reported = (total, budget["unit"].as_str().unwrap());
    if capacity(&row["capacity"]) != reported {
        found.push(format!("capacity {reported:?}"));
    }
    if !is_share(&row["share of one owner"], total, share) {
        found.push(format!("share {share} of {total}"));
    }
    for flag in row.values().flat_map(|cell| flags(cell, service)) {
        match default_of(help, flag) {
            // A default of 0 stands for the share in the table.
            Some(default) if [total, share, 0].contains(&default) => {}
            other => found.push(format!("default of {flag}: {other:?}")),
        }
    }
    found
}

async fn get(process: &Program, path: &str) -> String {
    let url = format!("{}{path}", process.address("admin_url"));
    reqwest::get(url).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_of_the_processes_are_those_of_the_document() {
    let document = fs::read_to_string(LIMITS).unwrap();
    let rows = table(&document, "| budget | process |");
    let of_bus = table(&document, "| budget | protects |");
    let of_bus: BTreeSet<_> = of_bus.iter().map(name).collect();
    let objects = tempfile::tempdir().unwrap();
    let objects = format!("file://{}", objects.path().display());
    // Some budgets exist only where their resource is configured.
    let settings = [
        ("SWITCHBOARD_OBJECTS", objects.as_str()),
        ("SWITCHBOARD_EMBEDDINGS_ENDPOINT", "http://127.0.0.1:9/v1"),
        ("SWITCHBOARD_EMBEDDINGS_MODEL", "none"),
        ("SWITCHBOARD_CONTROL_URL", "http://127.0.0.1:9"),
    ];
    let cluster = TestCluster::start_with(1, &settings).await;
    let chat = start_chat(
        &cluster,
        &settings.map(|(name, value)| (name, value.to_owned())),
    );
    let processes = [
        ("edge", &cluster.edges[0]),
        ("gateway", &cluster.gateway),
        ("control", &cluster.control),
        ("chat", &chat),
    ];
    let mut offences = Vec::new();
    for (service, process) in processes {
        let help = help(service);
        let report: Vec<Value> =
            serde_json::from_str(&get(process, "/debug/budgets").await).unwrap();
        let mut reported: BTreeMap<_, _> = report
            .iter()
            .map(|budget| (budget["budget"].as_str().unwrap(), budget))
            .collect();
        let is_here = |row: &&Row| row["process"].split(", ").any(|name| name == service);
        for row in rows.iter().filter(is_here) {
            let found = match reported.remove(name(row)) {
                Some(budget) => differences(row, budget, (service, &help)),
                None => vec!["it is not reported".to_owned()],
            };
            offences.extend(
                found
                    .iter()
                    .map(|found| format!("{service}: {}: {found}", name(row))),
            );
        }
        offences.extend(
            reported
                .keys()
                .map(|name| format!("{service}: {name} is in no row")),
        );
        let metrics = get(process, "/metrics").await;
        let labels = metrics
            .lines()
            .filter_map(|line| line.strip_prefix(BUS_METRIC));
        let labels: BTreeSet<_> = labels.map(|rest| rest.split('"').next().unwrap()).collect();
        if labels != of_bus {
            offences.push(format!("{service}: budgets of the bus: {labels:?}"));
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
}
