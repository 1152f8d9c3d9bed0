//! The memory limits of the compose file and of the chart cover the budgets, caches and buffers of
//! each process.

use std::{collections::HashMap, fs, path::Path};

use serde::Deserialize;
use switchboard_test_support::{data_folder::DataFolder, switchboard::Program};

use crate::{cluster::TestCluster, system::start_chat};

const MIB: u64 = 1024 * 1024;
/// The part of a memory limit that budgets in bytes, caches and buffers may use, in percent. The rest
/// is for connections, small messages and the process itself.
const BUDGETS_PERCENT: u64 = 70;
/// Memory of a child process of control, one for each slot of `ingestion_jobs`.
const INGESTION_BYTES: u64 = 1024 * MIB;

#[derive(Deserialize)]
struct Compose {
    services: HashMap<String, ComposeService>,
}

#[derive(Deserialize)]
struct ComposeService {
    mem_limit: String,
}

#[derive(Deserialize)]
struct Chart {
    resources: Resources,
}

#[derive(Deserialize)]
struct Resources {
    limits: Limits,
}

#[derive(Deserialize)]
struct Limits {
    memory: String,
}

/// A budget in the response of `/debug/budgets`.
#[derive(Deserialize)]
struct BudgetReport {
    budget: String,
    unit: String,
    capacity: u64,
}

#[tokio::test]
async fn memory_limits_cover_budgets_and_caches() {
    let objects = tempfile::tempdir().unwrap();
    let objects = format!("file://{}", objects.path().display());
    let cluster = TestCluster::start_with(1, &[("SWITCHBOARD_OBJECTS", &objects)]).await;
    let chat = start_chat(&cluster, &[]);
    let processes = [
        ("edge", "edge-1", &cluster.edges[0]),
        ("gateway", "gateway-1", &cluster.gateway),
        ("chat", "chat", &chat),
        ("control", "control", &cluster.control),
    ];
    let compose: Compose = read_yaml("docker-compose.yml");
    for (process, service, program) in processes {
        let needed = needed_bytes(program).await;
        assert!(process != "control" || needed > INGESTION_BYTES);
        let limits = [
            (
                "compose",
                size_in_bytes(&compose.services[service].mem_limit),
            ),
            ("the chart", chart_limit_bytes(process)),
        ];
        for (place, limit) in limits {
            assert!(
                needed <= limit,
                "{process} needs {} MiB, {place} allows {}",
                needed / MIB,
                limit / MIB,
            );
        }
    }
}

/// The memory limit of a process in the chart.
pub fn chart_limit_bytes(process: &str) -> u64 {
    let chart: HashMap<String, serde_json::Value> = read_yaml("helm/switchboard/values.yaml");
    let values = Chart::deserialize(&chart[process]).unwrap();
    size_in_bytes(&values.resources.limits.memory)
}

async fn budgets(program: &Program) -> Vec<BudgetReport> {
    let url = format!("{}/debug/budgets", program.address("admin_url"));
    let report = reqwest::get(url).await.unwrap();
    report.json().await.unwrap()
}

#[tokio::test]
async fn flags_set_the_capacities_of_budgets() {
    let folder = DataFolder::new();
    let flags = [
        ("http_heads", "--http-heads-bytes=100001"),
        ("http_bodies", "--http-bodies-bytes=100002"),
        ("http_responses", "--http-responses-bytes=100003"),
        ("call_params", "--call-params-bytes=100004"),
        ("mcp_pictures", "--mcp-pictures-bytes=100005"),
        ("conversation_jobs", "--chat-conversation-jobs=106"),
    ];
    let up = Program::start(&folder.up_arguments(&flags.map(|(_, flag)| flag)), &[]);
    let report = budgets(&up).await;
    for (name, flag) in flags {
        let budget = report.iter().find(|report| report.budget == name);
        let capacity = budget.unwrap().capacity.to_string();
        assert!(
            flag.ends_with(&format!("={capacity}")),
            "{flag}: {capacity}"
        );
    }
}

/// The memory that a process with default settings needs when its budgets are exhausted, and its
/// caches and buffers full.
async fn needed_bytes(program: &Program) -> u64 {
    let report = budgets(program).await;
    let in_bytes = report.iter().filter(|budget| budget.unit == "bytes");
    let bytes: u64 = in_bytes.map(|budget| budget.capacity).sum();
    assert!(bytes > 0, "each process has budgets in bytes");
    let reserved = reserved_bytes(program).await;
    let mut jobs = report
        .iter()
        .filter(|budget| budget.budget == "ingestion_jobs");
    let children = jobs.next().map_or(0, |jobs| jobs.capacity);
    (bytes + reserved) * 100 / BUDGETS_PERCENT + children * INGESTION_BYTES
}

/// What the caches and buffers of a process take when they are full.
async fn reserved_bytes(program: &Program) -> u64 {
    let url = format!("{}/metrics", program.address("admin_url"));
    let metrics = reqwest::get(url).await.unwrap().text().await.unwrap();
    let reserved = metrics
        .lines()
        .filter(|line| line.starts_with("switchboard_memory_reserved_bytes{"));
    let bytes = reserved.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    bytes.sum()
}

fn read_yaml<T: for<'de> Deserialize<'de>>(path: &str) -> T {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(path)).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A size as compose (`512M`) or Kubernetes (`512Mi`) writes it: both mean powers of two here.
fn size_in_bytes(text: &str) -> u64 {
    let text = text.strip_suffix('i').unwrap_or(text);
    let unit = match text.chars().last() {
        Some('M') => MIB,
        Some('G') => 1024 * MIB,
        _ => panic!("unknown unit in {text}"),
    };
    let number: u64 = text[..text.len() - 1].parse().unwrap();
    number * unit
}
