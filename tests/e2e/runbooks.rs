//! Alerts lead to pages that the gateway serves.

use std::path::Path;

use crate::cluster::TestCluster;

/// The gateway of the compose setup, whose rules these are.
const COMPOSE: &str = "http://127.0.0.1:8080";

#[tokio::test]
async fn address_of_each_alert_leads_to_its_page() {
    let cluster = TestCluster::start(0).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/rules");
    let mut alerts = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let rules = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for rule in rules.split("- alert: ").skip(1) {
            let alert = rule.lines().next().unwrap();
            let mut lines = rule.lines().map(str::trim);
            let url = lines.find_map(|line| line.strip_prefix("runbook_url: "));
            let path = url.and_then(|url| url.strip_prefix(COMPOSE)).unwrap();
            let page = cluster.http.get(cluster.url(path)).send().await.unwrap();
            assert_eq!(page.status(), 200, "{alert}: {path}");
            let text = page.text().await.unwrap();
            assert!(
                text.contains(&format!("`{alert}`")),
                "{path} is not about {alert}"
            );
            alerts += 1;
        }
    }
    assert!(alerts > 30, "{alerts} alerts");
}
