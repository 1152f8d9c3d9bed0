//! Metrics: durations of queries, and the number of connections.

use std::{sync::LazyLock, time::Instant};

use prometheus::{
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use switchboard_runtime::{labels, metrics::Histograms};

use crate::{StoreError, database::connections::Connections};

/// From an index lookup in memory to the timeout of a query.
const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0,
];

labels! {
    /// The outcome of a query.
    pub(crate) enum Outcome {
        Ok => "ok",
        /// The database rejected the statement: a row exists, or a value is invalid. The caller
        /// handles it; it indicates no malfunction.
        Refused => "refused",
        Error => "error",
        Timeout => "timeout",
    }
}

impl Outcome {
    pub(crate) const fn from_error(error: &StoreError) -> Self {
        match error {
            StoreError::Conflict(_) | StoreError::Refused(_) => Self::Refused,
            StoreError::Unavailable(_)
            | StoreError::NotMigrated(_)
            | StoreError::NewerSchema { .. }
            | StoreError::UnsupportedPostgres { .. }
            | StoreError::MigrationBlocked { .. }
            | StoreError::Migration(_)
            | StoreError::Setting(_)
            | StoreError::MasterKey(_)
            | StoreError::Unexpected(_) => Self::Error,
        }
    }
}

/// One per process: queries are executed everywhere, and a process has one database.
static QUERIES: LazyLock<Option<Histograms<Outcome>>> = LazyLock::new(|| {
    let help = "Duration of PostgreSQL queries, including the wait for a connection, and for the \
                statement before where calls share statements";
    Histograms::new("switchboard_store_query_seconds", help, "outcome", &SECONDS).ok()
});

/// Measures one query. A query that is dropped is not counted.
pub(crate) struct QueryTimer(Instant);

pub(crate) fn start_query_timer() -> QueryTimer {
    QueryTimer(Instant::now())
}

impl QueryTimer {
    pub(crate) fn observe(self, outcome: Outcome) {
        if let Some(queries) = &*QUERIES {
            queries.observe(outcome, self.0.elapsed());
        }
    }
}

pub(crate) fn register(
    registry: &Registry,
    connections: Connections,
) -> Result<(), prometheus::Error> {
    if let Some(queries) = &*QUERIES {
        queries.register(registry)?;
    }
    let opts = Opts::new(
        "switchboard_store_connections",
        "Open connections to PostgreSQL, by state",
    );
    let gauges = IntGaugeVec::new(opts, &["state"])?;
    registry.register(Box::new(PoolCollector {
        connections,
        gauges,
    }))
}

/// Reads the pool's size when metrics are collected.
struct PoolCollector {
    connections: Connections,
    gauges: IntGaugeVec,
}

impl Collector for PoolCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (all, idle) = self.connections.pool_sizes();
        let busy = all.saturating_sub(idle);
        for (state, count) in [("idle", idle), ("busy", busy)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.gauges.with_label_values(&[state]).set(count);
        }
        self.gauges.collect()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use prometheus::TextEncoder;
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestDatabase;

    #[tokio::test]
    async fn conflict_is_counted_as_refused() {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let outcome = Outcome::Refused;
        let counted = |outcome| QUERIES.as_ref().map_or(0, |queries| queries.count(outcome));
        let before = counted(outcome);
        let twice = || async {
            let mut connection = store.system_conn().await?;
            sqlx::query("DO $$ BEGIN RAISE unique_violation; END $$")
                .execute(&mut *connection)
                .await
        };
        let error = crate::database::with_timeout(twice()).await.unwrap_err();
        assert_eq!(error.kind(), "conflict");
        assert!(counted(outcome) > before);
        for error in [
            StoreError::Unavailable(None),
            StoreError::Setting("none"),
            StoreError::Unexpected(sqlx::Error::RowNotFound),
        ] {
            assert_eq!(
                Outcome::from_error(&error),
                Outcome::Error,
                "{}",
                error.kind()
            );
        }
    }

    #[tokio::test]
    async fn queries_and_connections_are_counted() {
        let (database, registry) = (TestDatabase::create().await.unwrap(), Registry::new());
        let store = database.store();
        store.register(&registry).unwrap();
        let encode = || {
            TextEncoder::new()
                .encode_to_string(&registry.gather())
                .unwrap()
        };
        let device = "toy-1".parse().unwrap();
        let org = OrgId::from_uuid(Uuid::now_v7());
        // One per process: other tests run queries at the same time.
        let counted = |outcome| QUERIES.as_ref().map_or(0, |queries| queries.count(outcome));
        let before = counted(Outcome::Ok);
        assert!(store.device(org, &device).await.unwrap().is_none());
        assert!(counted(Outcome::Ok) > before);
        let text = encode();
        for outcome in ["ok", "refused", "error", "timeout"] {
            let line = format!("switchboard_store_query_seconds_count{{outcome=\"{outcome}\"}}");
            assert!(text.contains(&line), "{line}");
        }
        let connection = store.tenant_conn(org).await.unwrap();
        let counts = async |count: &str| {
            // A dropped connection returns to the pool a moment later.
            while !encode().contains(count) {
                tokio::task::yield_now().await;
            }
        };
        let within = std::time::Duration::from_secs(10);
        let busy = counts("switchboard_store_connections{state=\"busy\"} 1");
        tokio::time::timeout(within, busy).await.unwrap();
        drop(connection);
        let free = counts("switchboard_store_connections{state=\"busy\"} 0");
        tokio::time::timeout(within, free).await.unwrap();
        assert!(
            store.register(&registry).is_err(),
            "the metrics are registered once"
        );
    }
}
