//! Row-level security: a statement on all rows affects those of its scope only. The tables are read
//! from the system catalogue, so a new one is included automatically.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod rows;

use rows::{OTHER, OWN, PUBLIC};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use switchboard_store::testing::TestDatabase;

/// Tables without tenant data, and why they need no policy.
const UNPROTECTED: [(&str, &str); 1] = [(
    "_sqlx_migrations",
    "applied migrations; read by the migrator only",
)];
/// Tables without tenant data that every scope can read.
const SHARED: [&str; 1] = ["embedding_models"];
/// Tables that no organisation can read.
const INSTALLATION_ONLY: [&str; 5] = [
    "signing_keys",
    "sealing_keys",
    "voice_removals",
    "embedding_queue",
    "usage_batches",
];

async fn connect(database: &TestDatabase) -> PgConnection {
    let url = secrecy::ExposeSecret::expose_secret(database.url());
    PgConnection::connect(url).await.unwrap()
}

async fn run(connection: &mut PgConnection, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await;
    if let Err(error) = done {
        panic!("{sql}: {error}");
    }
}

async fn set_scope(connection: &mut PgConnection, scope: &str) {
    let sql = format!("SET ROLE switchboard_service; SET switchboard.speaker = '{scope}'");
    run(connection, &sql).await;
}

/// The first column of all rows.
async fn column(connection: &mut PgConnection, sql: &str) -> Vec<String> {
    match try_column(connection, sql).await {
        Ok(rows) => rows,
        Err(error) => panic!("{sql}: {error}"),
    }
}

async fn try_column(connection: &mut PgConnection, sql: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
        .fetch_all(connection)
        .await
}

/// Whether the server rejects the statement for missing permission.
async fn is_forbidden(connection: &mut PgConnection, sql: &str) -> bool {
    run(connection, "SAVEPOINT before").await;
    let done = connection.execute(AssertSqlSafe(sql.to_owned())).await;
    run(connection, "ROLLBACK TO before").await;
    match done {
        Ok(_) => false,
        Err(error) => {
            let code = error.as_database_error().and_then(|answer| answer.code());
            assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error}");
            true
        }
    }
}

async fn tables(connection: &mut PgConnection) -> Vec<String> {
    let all = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') \
               AND relnamespace = 'public'::regnamespace ORDER BY relname";
    let mut all = column(connection, all).await;
    all.retain(|table| UNPROTECTED.iter().all(|(name, _)| name != table));
    all.retain(|table| !SHARED.contains(&table.as_str()));
    all
}

/// Columns that can be written.
async fn writable(connection: &mut PgConnection, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 \
         AND NOT attisdropped AND attgenerated = '' AND attidentity = '' ORDER BY attnum"
    );
    column(connection, &sql).await
}

/// A database with rows of two organisations and of the installation in every table.
async fn populated_database() -> (TestDatabase, PgConnection) {
    let database = TestDatabase::create().await.unwrap();
    let mut connection = connect(&database).await;
    run(&mut connection, &rows::all()).await;
    match database.store().set_embedding_model("a model", 2).await {
        Ok(_) => run(&mut connection, &rows::with_embeddings()).await,
        Err(missing) => {
            let accepted = std::env::var_os("SWITCHBOARD_TESTS_WITHOUT_PGVECTOR").is_some();
            assert!(
                accepted,
                "{missing}; or leave it out with SWITCHBOARD_TESTS_WITHOUT_PGVECTOR=1"
            );
        }
    }
    (database, connection)
}

#[tokio::test]
async fn every_table_forces_row_security() {
    let (database, mut connection) = populated_database().await;
    let open = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') \
                AND relnamespace = 'public'::regnamespace \
                AND NOT (relrowsecurity AND relforcerowsecurity) ORDER BY relname";
    let open = column(&mut connection, open).await;
    let except: Vec<_> = UNPROTECTED.iter().map(|(table, _)| *table).collect();
    assert_eq!(open, except, "see migrations/0013_row_security.sql");
    let security = database.store().row_security().await.unwrap();
    assert_eq!(security.role, "switchboard_service");
    assert!(!security.bypasses_policies && security.open_tables.is_empty());
    run(
        &mut connection,
        "ALTER TABLE npcs NO FORCE ROW LEVEL SECURITY",
    )
    .await;
    let security = database.store().row_security().await.unwrap();
    assert_eq!(security.open_tables, ["npcs"]);
}

#[tokio::test]
async fn roles_own_nothing_and_bypass_nothing() {
    let database = TestDatabase::create().await.unwrap();
    let mut connection = connect(&database).await;
    let roles = "('switchboard_service', 'switchboard_search')";
    let above = format!(
        "SELECT rolname::text FROM pg_roles WHERE rolname IN {roles} AND \
         (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolcanlogin)"
    );
    assert!(column(&mut connection, &above).await.is_empty());
    let owned = format!(
        "SELECT relname::text FROM pg_class JOIN pg_roles r ON r.oid = relowner WHERE rolname IN {roles}"
    );
    assert!(column(&mut connection, &owned).await.is_empty());
    let members = format!(
        "SELECT m.roleid::regrole::text FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member WHERE rolname IN {roles}"
    );
    assert!(column(&mut connection, &members).await.is_empty());
    set_scope(&mut connection, "").await;
    let migrations = "SELECT version::text FROM _sqlx_migrations";
    assert!(try_column(&mut connection, migrations).await.is_err());
}

#[tokio::test]
async fn i4_select_returns_rows_in_scope_only() {
    let (_database, mut connection) = populated_database().await;
    for table in tables(&mut connection).await {
        let all = format!("SELECT t::text FROM {table} t");
        run(&mut connection, "RESET ROLE").await;
        let existing = column(&mut connection, &all).await;
        let count = |rows: &[String], mark| rows.iter().filter(|row| row.contains(mark)).count();
        assert!(count(&existing, OTHER) > 0, "rows.rs has none for {table}");

        set_scope(&mut connection, rows::OWN_ORG).await;
        let seen = column(&mut connection, &all).await;
        assert_eq!(count(&seen, OTHER), 0, "{table} as another organisation");
        assert_eq!(
            count(&seen, OWN),
            count(&existing, OWN),
            "{table} as its own"
        );
        let own = INSTALLATION_ONLY.contains(&table.as_str()) || count(&seen, OWN) > 0;
        assert!(own, "rows.rs has none for {table}");
        let public = !matches!(table.as_str(), "idempotent_requests" | "audit_log");
        let expected = if public { count(&existing, PUBLIC) } else { 0 };
        assert_eq!(count(&seen, PUBLIC), expected, "public rows of {table}");

        set_scope(&mut connection, "installation").await;
        let seen = column(&mut connection, &all).await;
        assert_eq!(count(&seen, OTHER) + count(&seen, OWN), 0, "{table}");
        assert_eq!(count(&seen, PUBLIC), count(&existing, PUBLIC), "{table}");

        set_scope(&mut connection, "everyone").await;
        assert_eq!(column(&mut connection, &all).await.len(), existing.len());
        set_scope(&mut connection, "").await;
        assert!(column(&mut connection, &all).await.is_empty(), "{table}");
        run(&mut connection, "RESET switchboard.speaker").await;
        assert!(column(&mut connection, &all).await.is_empty(), "{table}");
    }
}

#[tokio::test]
async fn i4_update_and_delete_affect_rows_in_scope_only() {
    let (_database, mut connection) = populated_database().await;
    for table in tables(&mut connection).await {
        let columns = writable(&mut connection, &table).await;
        let name = columns.last().unwrap();
        for (scope, foreign) in [
            (rows::OWN_ORG, [OTHER, PUBLIC]),
            ("installation", [OTHER, OWN]),
            ("", [OTHER, PUBLIC]),
        ] {
            // Foreign key checks are disabled, because they would reject some of these statements.
            run(
                &mut connection,
                "RESET ROLE; BEGIN; SET LOCAL session_replication_role = replica",
            )
            .await;
            set_scope(&mut connection, scope).await;
            for mark in foreign {
                // Public rows are visible, so changing them is an error. Other foreign rows are
                // invisible.
                let change = format!(
                    "UPDATE {table} t SET {name} = {name} WHERE t::text LIKE '%{mark}%' RETURNING t::text"
                );
                run(&mut connection, "SAVEPOINT before").await;
                match try_column(&mut connection, &change).await {
                    Ok(changed) => {
                        assert!(changed.is_empty(), "{table} as {scope:?}: {changed:?}")
                    }
                    Err(error) => assert!(mark == PUBLIC, "{table}: {error}"),
                }
                run(&mut connection, "ROLLBACK TO before").await;
            }
            let remove = format!("DELETE FROM {table} t RETURNING t::text");
            for row in column(&mut connection, &remove).await {
                assert!(
                    !foreign.iter().any(|mark| row.contains(mark)),
                    "{table} as {scope:?}: {row}"
                );
            }
            run(&mut connection, "ROLLBACK").await;
        }
    }
}

#[tokio::test]
async fn i4_insert_for_another_owner_is_rejected() {
    let (_database, mut connection) = populated_database().await;
    for table in tables(&mut connection).await {
        let columns = writable(&mut connection, &table).await.join(", ");
        for mark in [OTHER, PUBLIC] {
            run(
                &mut connection,
                "RESET ROLE; BEGIN; SET LOCAL session_replication_role = replica",
            )
            .await;
            let apart = format!(
                "CREATE TEMP TABLE apart ON COMMIT DROP AS SELECT * FROM {table} t WHERE t::text LIKE '%{mark}%'; \
                 DELETE FROM {table} t WHERE t::text LIKE '%{mark}%'; GRANT SELECT ON apart TO switchboard_service"
            );
            run(&mut connection, &apart).await;
            let make = format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM apart");
            let some = column(&mut connection, "SELECT 'one' FROM apart LIMIT 1").await;
            if !some.is_empty() {
                for scope in [rows::OWN_ORG, ""] {
                    set_scope(&mut connection, scope).await;
                    let forbidden = is_forbidden(&mut connection, &make).await;
                    assert!(forbidden, "{table} as {scope:?}: a row with {mark}");
                }
                set_scope(&mut connection, "everyone").await;
                run(&mut connection, &make).await;
            }
            run(&mut connection, "ROLLBACK").await;
        }
    }
}

#[tokio::test]
async fn public_row_can_be_locked_but_not_changed() {
    let (_database, mut connection) = populated_database().await;
    run(&mut connection, "BEGIN").await;
    set_scope(&mut connection, rows::OWN_ORG).await;
    for table in ["templates", "pictures", "skills_books", "voices"] {
        let hold = format!("SELECT t::text FROM {table} t WHERE org_id IS NULL FOR KEY SHARE");
        assert_eq!(column(&mut connection, &hold).await.len(), 1, "{table}");
        let take = format!(
            "UPDATE {table} SET org_id = '{}' WHERE org_id IS NULL",
            rows::OWN_ORG
        );
        assert!(is_forbidden(&mut connection, &take).await, "{table}");
    }
}

#[tokio::test]
async fn search_role_reads_books_only() {
    let (_database, mut connection) = populated_database().await;
    let all = tables(&mut connection).await;
    let settings = format!(
        "BEGIN; SET ROLE switchboard_search; SET switchboard.speaker = '{}'",
        rows::OWN_ORG
    );
    run(&mut connection, &settings).await;
    for table in all {
        let reads = format!("SELECT count(*) FROM {table}");
        let expected = !matches!(table.as_str(), "skills_books" | "skills_book_chunks");
        assert_eq!(
            is_forbidden(&mut connection, &reads).await,
            expected,
            "{table}"
        );
    }
    let books = column(&mut connection, "SELECT t::text FROM skills_books t").await;
    assert!(!books.iter().any(|book| book.contains(OTHER)));
    // The text index is used, because no policy precedes it.
    let plan = "EXPLAIN SELECT number FROM skills_book_chunks WHERE terms @@ 'word'::tsquery";
    run(&mut connection, "SET LOCAL enable_seqscan = off").await;
    let plan = column(&mut connection, plan).await.join("\n");
    assert!(plan.contains("skills_book_chunks_by_terms"), "{plan}");
}
