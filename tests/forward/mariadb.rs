//! A temporary MariaDB server.

use std::path::PathBuf;

use tokio::process::Child;

use crate::server::{self, ServerFolder};

/// A running server with the database `shop`, reached through a socket in its temporary folder.
pub struct MariaDb {
    folder: ServerFolder,
    socket: PathBuf,
    _process: Child,
}

impl MariaDb {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// MariaDB is not installed.
    pub async fn start() -> Result<Self, String> {
        let programs = ["mariadbd", "mariadb-install-db", "mariadb"];
        let found = programs.map(|program| server::programs(&[program], ["/usr/sbin".into()]));
        let [Some(servers), Some(_), Some(_)] = found else {
            return Err("MariaDB is not installed; run .ci/receiver".to_owned());
        };
        let folder = ServerFolder::new(servers);
        let data = format!("--datadir={}", folder.path().join("data").display());
        let socket = folder.path().join("socket");
        let install = ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
        server::succeeds(folder.command("mariadb-install-db").args(install)).await;
        let mut server = folder.command("mariadbd");
        server.args(["--no-defaults", &data, "--skip-networking", "--pid-file=pid", "--socket"]).arg(&socket);
        let process = folder.spawn(&mut server);
        let database = Self { folder, socket, _process: process };
        while database.sql("CREATE DATABASE IF NOT EXISTS shop").await.is_err() {
            tokio::task::yield_now().await;
        }
        Ok(database)
    }

    /// Returns PDO's data source name.
    pub fn dsn(&self) -> String {
        format!("mysql:unix_socket={};dbname=shop;charset=utf8mb4", self.socket.display())
    }

    /// Runs a statement. Columns are separated by tabs.
    pub async fn sql(&self, statement: &str) -> Result<String, String> {
        let mut client = self.folder.command("mariadb");
        let database = if statement.starts_with("CREATE DATABASE") { "" } else { "shop" };
        client
            .args(["--no-defaults", "-u", "root", "-N", "-B", "-e", statement, "-D", database, "-S"])
            .arg(&self.socket);
        server::printed(&mut client).await
    }
}
