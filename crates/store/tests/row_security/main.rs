//! The database keeps organisations apart by itself: a statement that asks for everything gets what is its speaker's.
//! Never: a table that is not looked at; they come from the database's own catalogue.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail like tests"
)]

mod rows;

use rows::{OWN, PUBLIC, STRANGERS};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use switchboard_store::testing::TestDatabase;

/// Tables that hold nothing of an organisation's, and why statements may have them whole.
const EXCEPT: [(&str, &str); 1] = [(
    "_sqlx_migrations",
    "which migrations ran; only whoever migrates may look at it",
)];
/// Tables of which everybody sees every row: they hold nothing of an organisation's.
const EVERYBODYS: [&str; 1] = ["embedding_models"];
/// Tables of which no organisation sees a row.
const INSTALLATIONS: [&str; 5] = [
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

async fn speak(connection: &mut PgConnection, speaker: &str) {
    let said = format!("SET ROLE switchboard_service; SET switchboard.speaker = '{speaker}'");
    run(connection, &said).await;
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

/// Whether the server refuses this as not permitted.
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
    all.retain(|table| EXCEPT.iter().all(|(name, _)| name != table));
    all.retain(|table| !EVERYBODYS.contains(&table.as_str()));
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
async fn furnished() -> (TestDatabase, PgConnection) {
    let database = TestDatabase::create().await.unwrap();
    let mut connection = connect(&database).await;
    run(&mut connection, &rows::all()).await;
    match database.store().set_embedding_model("a model", 2).await {
        Ok(_) => run(&mut connection, &rows::embedded()).await,
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
async fn every_table_is_secured_against_its_owner_as_well() {
    let (database, mut connection) = furnished().await;
    let open = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') \
                AND relnamespace = 'public'::regnamespace \
                AND NOT (relrowsecurity AND relforcerowsecurity) ORDER BY relname";
    let open = column(&mut connection, open).await;
    let except: Vec<_> = EXCEPT.iter().map(|(table, _)| *table).collect();
    assert_eq!(open, except, "see migrations/0013_row_security.sql");
    let security = database.store().row_security().await.unwrap();
    assert_eq!(security.role, "switchboard_service");
    assert!(!security.is_above && security.open_tables.is_empty());
    run(
        &mut connection,
        "ALTER TABLE npcs NO FORCE ROW LEVEL SECURITY",
    )
    .await;
    let security = database.store().row_security().await.unwrap();
    assert_eq!(security.open_tables, ["npcs"]);
}

#[tokio::test]
async fn the_roles_own_nothing_and_are_above_nothing() {
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
    speak(&mut connection, "").await;
    let migrations = "SELECT version::text FROM _sqlx_migrations";
    assert!(try_column(&mut connection, migrations).await.is_err());
}

#[tokio::test]
async fn i4_a_statement_that_asks_for_all_rows_sees_its_speakers() {
    let (_database, mut connection) = furnished().await;
    for table in tables(&mut connection).await {
        let all = format!("SELECT t::text FROM {table} t");
        run(&mut connection, "RESET ROLE").await;
        let there = column(&mut connection, &all).await;
        let of = |rows: &[String], mark| rows.iter().filter(|row| row.contains(mark)).count();
        assert!(of(&there, STRANGERS) > 0, "rows.rs has none for {table}");

        speak(&mut connection, rows::OWN_ORG).await;
        let seen = column(&mut connection, &all).await;
        assert_eq!(of(&seen, STRANGERS), 0, "{table} as another organisation");
        assert_eq!(of(&seen, OWN), of(&there, OWN), "{table} as its own");
        let own = INSTALLATIONS.contains(&table.as_str()) || of(&seen, OWN) > 0;
        assert!(own, "rows.rs has none for {table}");
        let public = !matches!(table.as_str(), "idempotent_requests" | "audit_log");
        let expected = if public { of(&there, PUBLIC) } else { 0 };
        assert_eq!(of(&seen, PUBLIC), expected, "public rows of {table}");

        speak(&mut connection, "installation").await;
        let seen = column(&mut connection, &all).await;
        assert_eq!(of(&seen, STRANGERS) + of(&seen, OWN), 0, "{table}");
        assert_eq!(of(&seen, PUBLIC), of(&there, PUBLIC), "{table}");

        speak(&mut connection, "everyone").await;
        assert_eq!(column(&mut connection, &all).await.len(), there.len());
        speak(&mut connection, "").await;
        assert!(column(&mut connection, &all).await.is_empty(), "{table}");
        run(&mut connection, "RESET switchboard.speaker").await;
        assert!(column(&mut connection, &all).await.is_empty(), "{table}");
    }
}

#[tokio::test]
async fn i4_a_statement_that_changes_all_rows_changes_its_speakers() {
    let (_database, mut connection) = furnished().await;
    for table in tables(&mut connection).await {
        let columns = writable(&mut connection, &table).await;
        let name = columns.last().unwrap();
        for (speaker, foreign) in [
            (rows::OWN_ORG, [STRANGERS, PUBLIC]),
            ("installation", [STRANGERS, OWN]),
            ("", [STRANGERS, PUBLIC]),
        ] {
            // Without the checks of references, which would stop some of it for another reason.
            run(
                &mut connection,
                "RESET ROLE; BEGIN; SET LOCAL session_replication_role = replica",
            )
            .await;
            speak(&mut connection, speaker).await;
            for mark in foreign {
                // Public rows are seen: to change one is an error. Others are not there.
                let change = format!(
                    "UPDATE {table} t SET {name} = {name} WHERE t::text LIKE '%{mark}%' RETURNING t::text"
                );
                run(&mut connection, "SAVEPOINT before").await;
                match try_column(&mut connection, &change).await {
                    Ok(changed) => {
                        assert!(changed.is_empty(), "{table} as {speaker:?}: {changed:?}")
                    }
                    Err(error) => assert!(mark == PUBLIC, "{table}: {error}"),
                }
                run(&mut connection, "ROLLBACK TO before").await;
            }
            let remove = format!("DELETE FROM {table} t RETURNING t::text");
            for row in column(&mut connection, &remove).await {
                assert!(
                    !foreign.iter().any(|mark| row.contains(mark)),
                    "{table} as {speaker:?}: {row}"
                );
            }
            run(&mut connection, "ROLLBACK").await;
        }
    }
}

#[tokio::test]
async fn i4_nobody_makes_a_row_of_anothers() {
    let (_database, mut connection) = furnished().await;
    for table in tables(&mut connection).await {
        let columns = writable(&mut connection, &table).await.join(", ");
        for mark in [STRANGERS, PUBLIC] {
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
                for speaker in [rows::OWN_ORG, ""] {
                    speak(&mut connection, speaker).await;
                    let forbidden = is_forbidden(&mut connection, &make).await;
                    assert!(forbidden, "{table} as {speaker:?}: a row with {mark}");
                }
                speak(&mut connection, "everyone").await;
                run(&mut connection, &make).await;
            }
            run(&mut connection, "ROLLBACK").await;
        }
    }
}

#[tokio::test]
async fn a_public_row_is_held_and_not_taken() {
    let (_database, mut connection) = furnished().await;
    run(&mut connection, "BEGIN").await;
    speak(&mut connection, rows::OWN_ORG).await;
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
async fn searching_reads_books_and_nothing_else() {
    let (_database, mut connection) = furnished().await;
    let all = tables(&mut connection).await;
    let introduction = format!(
        "BEGIN; SET ROLE switchboard_search; SET switchboard.speaker = '{}'",
        rows::OWN_ORG
    );
    run(&mut connection, &introduction).await;
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
    assert!(!books.iter().any(|book| book.contains(STRANGERS)));
    // What indexes on words are for: no policy stands before them.
    let plan = "EXPLAIN SELECT number FROM skills_book_chunks WHERE terms @@ 'word'::tsquery";
    run(&mut connection, "SET LOCAL enable_seqscan = off").await;
    let plan = column(&mut connection, plan).await.join("\n");
    assert!(plan.contains("skills_book_chunks_by_terms"), "{plan}");
}
