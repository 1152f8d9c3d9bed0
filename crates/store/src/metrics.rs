//! How long databases take to answer, and how many connections there are.
//! Never: a label that says what was asked; there are too many questions.

use std::{sync::LazyLock, time::Instant};

use prometheus::{
    IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use switchboard_runtime::{labels, metrics::Histograms};

use crate::{StoreError, connections::Connections};

/// From an index that is in memory to the limit of an answer.
const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0,
];

labels! {
    /// What came of a question.
    pub(crate) enum Outcome {
        Ok => "ok",
        /// The database answered that it cannot be so: something of this name is there, a value does not fit. Whoever
        /// asked has their answer, and nobody has to look.
        Refused => "refused",
        Error => "error",
        Timeout => "timeout",
    }
}

impl Outcome {
    pub(crate) const fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Conflict(_) | StoreError::Refused(_) => Self::Refused,
            StoreError::Unavailable(_)
            | StoreError::NotMigrated(_)
            | StoreError::FromTheFuture { .. }
            | StoreError::Migration(_)
            | StoreError::Setting(_)
            | StoreError::Unexpected(_) => Self::Error,
        }
    }
}

/// One for the process: questions are asked from everywhere, and a process has one database.
static QUERIES: LazyLock<Option<Histograms<Outcome>>> = LazyLock::new(|| {
    let help = "Time of one piece of work with PostgreSQL, the wait for a connection included";
    Histograms::new("switchboard_store_query_seconds", help, "outcome", &SECONDS).ok()
});

/// A question under way. One whose asker leaves is not counted.
pub(crate) struct Asked(Instant);

/// A question is asked.
pub(crate) fn begin() -> Asked {
    Asked(Instant::now())
}

impl Asked {
    pub(crate) fn end(self, outcome: Outcome) {
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
        "Connections to PostgreSQL, by whether somebody uses them",
    );
    let counted = IntGaugeVec::new(opts, &["state"])?;
    registry.register(Box::new(Counted {
        connections,
        counted,
    }))
}

/// Counted when somebody asks.
struct Counted {
    connections: Connections,
    counted: IntGaugeVec,
}

impl Collector for Counted {
    fn desc(&self) -> Vec<&Desc> {
        self.counted.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (all, idle) = self.connections.numbers();
        let busy = all.saturating_sub(idle);
        for (state, count) in [("idle", idle), ("busy", busy)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.counted.with_label_values(&[state]).set(count);
        }
        self.counted.collect()
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
    async fn a_name_that_is_taken_is_no_failure_of_the_database() {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let refused = Outcome::Refused;
        let counted = |outcome| QUERIES.as_ref().map_or(0, |queries| queries.count(outcome));
        let before = counted(refused);
        let twice = || async {
            let mut connection = store.throughout().await?;
            sqlx::query("DO $$ BEGIN RAISE unique_violation; END $$")
                .execute(&mut *connection)
                .await
        };
        let error = crate::database::bounded(twice()).await.unwrap_err();
        assert_eq!(error.kind(), "conflict");
        assert!(counted(refused) > before);
        for error in [
            StoreError::Unavailable(None),
            StoreError::Setting("none"),
            StoreError::Unexpected(sqlx::Error::RowNotFound),
        ] {
            assert_eq!(Outcome::of(&error), Outcome::Error, "{}", error.kind());
        }
    }

    #[tokio::test]
    async fn questions_and_connections_are_counted() {
        let (database, registry) = (TestDatabase::create().await.unwrap(), Registry::new());
        let store = database.store();
        store.register(&registry).unwrap();
        let shown = || {
            TextEncoder::new()
                .encode_to_string(&registry.gather())
                .unwrap()
        };
        let device = "toy-1".parse().unwrap();
        let org = OrgId::from_uuid(Uuid::now_v7());
        // One for the process: other tests ask at the same time.
        let counted = |outcome| QUERIES.as_ref().map_or(0, |queries| queries.count(outcome));
        let before = counted(Outcome::Ok);
        assert!(store.device(org, &device).await.unwrap().is_none());
        assert!(counted(Outcome::Ok) > before);
        let lines = shown();
        for outcome in ["ok", "refused", "error", "timeout"] {
            let line = format!("switchboard_store_query_seconds_count{{outcome=\"{outcome}\"}}");
            assert!(lines.contains(&line), "{line}");
        }
        let held = store.within(org).await.unwrap();
        let counts = async |count: &str| {
            // One that was let go of is given back a moment later.
            while !shown().contains(count) {
                tokio::task::yield_now().await;
            }
        };
        let within = std::time::Duration::from_secs(10);
        let busy = counts("switchboard_store_connections{state=\"busy\"} 1");
        tokio::time::timeout(within, busy).await.unwrap();
        drop(held);
        let free = counts("switchboard_store_connections{state=\"busy\"} 0");
        tokio::time::timeout(within, free).await.unwrap();
        assert!(store.register(&registry).is_err(), "they are there once");
    }
}
