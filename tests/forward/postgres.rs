//! A temporary Postgres server.

use std::{fs, path::Path};

use tokio::process::Child;

use crate::server::{self, ServerFolder};

/// A running server, reached through a socket in its temporary folder.
pub struct Postgres {
    folder: ServerFolder,
    _process: Child,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Postgres is not installed.
    pub async fn start() -> Result<Self, String> {
        let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let debian = debian.map(|version| version.path().join("bin"));
        let programs = server::programs(&["initdb", "postgres", "psql"], debian);
        let folder = ServerFolder::new(programs.ok_or("Postgres is not installed; run .ci/receiver")?);
        let data = folder.path().join("data");
        let initdb = ["--no-sync", "--auth=trust", "--username=receiver", "-D"];
        server::succeeds(folder.command("initdb").args(initdb).arg(&data)).await;
        let mut server = folder.command("postgres");
        server.arg("-D").arg(&data).args(["-F", "-h", "", "-k"]).arg(folder.path());
        let process = folder.spawn(&mut server);
        let postgres = Self { folder, _process: process };
        while postgres.psql("SELECT 1").await.is_err() {
            tokio::task::yield_now().await;
        }
        Ok(postgres)
    }

    pub fn url(&self) -> String {
        format!("postgres://receiver@/postgres?host={}", self.folder().display())
    }

    /// Returns the folder of the server's socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a statement. Columns are separated by `|`.
    pub async fn psql(&self, statement: &str) -> Result<String, String> {
        let mut psql = self.folder.command("psql");
        psql.args(["-XAtq", "-U", "receiver", "-d", "postgres", "-c", statement, "-h"]).arg(self.folder());
        server::printed(&mut psql).await
    }
}
