//! A temporary Postgres server.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The id of the user `nobody` on most systems. Postgres refuses to run as root.
const NOBODY: u32 = 65_534;

/// A running server, reached through a socket in its temporary directory.
pub struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    _process: Child,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Postgres is not installed.
    pub async fn start() -> Result<Self, String> {
        let programs = programs().ok_or("Postgres is not installed; run .ci/receiver")?;
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let is_root = fs::metadata(directory.path()).unwrap().uid() == 0;
        if is_root {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command.current_dir(directory.path()).kill_on_drop(true);
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            command
        };
        let initdb = ["--no-sync", "--auth=trust", "--username=receiver", "-D"];
        let made = program("initdb").args(initdb).arg(&data).output().await.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut server = program("postgres");
        server.arg("-D").arg(&data).args(["-F", "-h", "", "-k"]).arg(directory.path());
        let process = server.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let postgres = Self { programs, directory, _process: process };
        while postgres.psql("SELECT 1").await.is_err() {
            tokio::task::yield_now().await;
        }
        Ok(postgres)
    }

    pub fn url(&self) -> String {
        format!("postgres://receiver@/postgres?host={}", self.directory.path().display())
    }

    /// Runs a statement. Columns are separated by `|`.
    pub async fn psql(&self, statement: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-XAtq", "-U", "receiver", "-d", "postgres", "-c", statement, "-h"]).arg(self.directory.path());
        let answered = psql.output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if answered.status.success() { Ok(text(&answered.stdout)) } else { Err(text(&answered.stderr)) }
    }
}

/// Finds the directory with the server's programs: on `PATH`, or where Debian has them.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin"));
    std::env::split_paths(&path).chain(debian).find(|directory| is_whole(directory))
}

fn is_whole(directory: &Path) -> bool {
    ["initdb", "postgres", "psql"].iter().all(|name| directory.join(name).is_file())
}
