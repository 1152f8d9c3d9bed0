//! An empty PostgreSQL database for one run, created with `psql`.

use std::{
    env,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use url::Url;

/// A database of the server in DATABASE_URL. Dropping it drops the database.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
    url: String,
}

impl Database {
    /// Creates a database with this unique name.
    ///
    /// # Errors
    /// DATABASE_URL is missing or invalid, `psql` is not installed, or the server refuses.
    pub fn create(name: &str) -> anyhow::Result<Self> {
        let server = env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
        let mut url = Url::parse(&server).context("DATABASE_URL is not a URL")?;
        url.set_path(name);
        let database = Self {
            server,
            name: name.to_owned(),
            url: url.to_string(),
        };
        database.execute(&format!("CREATE DATABASE \"{name}\""))?;
        Ok(database)
    }

    /// The URL of this database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    fn execute(&self, statement: &str) -> anyhow::Result<()> {
        let output = Command::new("psql")
            .args(["--no-psqlrc", "--quiet", "--command", statement])
            .arg(&self.server)
            .stdin(Stdio::null())
            .output()
            .context("`psql` does not start: install the PostgreSQL client")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{statement}: {}", error.trim());
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let statement = format!("DROP DATABASE IF EXISTS \"{}\" WITH (FORCE)", self.name);
        if let Err(error) = self.execute(&statement) {
            eprintln!("{error:#}");
        }
    }
}
