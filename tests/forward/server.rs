//! Temporary folders and programs of database servers.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
};

use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The id of the user `nobody` on most systems. Database servers refuse to run as root.
const NOBODY: u32 = 65_534;

/// A server's temporary folder, in which its programs run without root's rights.
pub struct ServerFolder {
    programs: PathBuf,
    directory: TempDir,
    is_root: bool,
}

impl ServerFolder {
    pub fn new(programs: PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let is_root = fs::metadata(directory.path()).unwrap().uid() == 0;
        if is_root {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Self { programs, directory, is_root }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the command of a program, in the server's programs or on `PATH`.
    ///
    /// Its temporary files are in this folder. MariaDB deletes those of other servers when it starts.
    pub fn command(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = Command::new(if path.is_file() { path } else { name.into() });
        command.current_dir(self.path()).env("TMPDIR", self.path()).kill_on_drop(true);
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts the server, whose output goes to a file.
    pub fn spawn(&self, server: &mut Command) -> Child {
        let log = fs::File::create(self.path().join("log")).unwrap();
        server.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }
}

pub async fn succeeds(command: &mut Command) {
    let made = command.output().await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Returns what a command prints, or its error.
pub async fn printed(command: &mut Command) -> Result<String, String> {
    let answered = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if answered.status.success() { Ok(text(&answered.stdout)) } else { Err(text(&answered.stderr)) }
}

/// Finds the folder with all of these programs: on `PATH`, or one of `more`.
pub fn programs(names: &[&str], more: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(more).find(|folder| names.iter().all(|name| folder.join(name).is_file()))
}
