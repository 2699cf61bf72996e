//! The data folder of a local run: locked against a second process, and watched for removed and replaced files.

use std::{
    fs::{File, OpenOptions, TryLockError},
    future::pending,
    io::{ErrorKind, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use webhook_serializer::time::Env;

const LOCK: &str = "in-use";
const TABLES: &str = "tables.sqlite";
const QUEUE: &str = "queue.sqlite";

/// The interval at which the files are looked for.
const WATCH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Folder {
    directory: PathBuf,
    lock: File,
}

impl Folder {
    /// Creates the folder if needed, and locks it until the value is dropped. Two processes cannot use the same folder:
    /// the error names the process that uses it.
    pub(super) fn lock(directory: &Path) -> Result<Self> {
        let shown = directory.display();
        let cannot = || format!("the data folder {shown} cannot be written to");
        std::fs::create_dir_all(directory).with_context(cannot)?;
        let file = directory.join(LOCK);
        let mut lock =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {
                lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).with_context(cannot)?;
            }
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                // The process number in the file only helps to find the other process.
                let _ = lock.read_to_string(&mut process);
                return Err(anyhow!(
                    "the data folder {shown} is in use by another `serializer local`, process {process}: stop that \
                     process or choose another folder"
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("{} cannot be locked", file.display()));
            }
        }
        let folder = Self { directory: directory.to_owned(), lock };
        let length = |file: PathBuf| std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        // The tables are made first, so a run that was killed at its first start leaves no queue alone.
        ensure!(
            length(folder.queue()) == 0 || length(folder.tables()) > 0,
            "the data folder {shown} has a queue, but its tables are gone or empty: put {TABLES} back, or remove the folder to \
             begin anew"
        );
        Ok(folder)
    }

    pub(super) fn tables(&self) -> PathBuf {
        self.directory.join(TABLES)
    }

    pub(super) fn queue(&self) -> PathBuf {
        self.directory.join(QUEUE)
    }

    /// Waits until a file of the folder is removed, replaced or emptied. SQLite goes on writing into a removed file, so
    /// nothing else would tell.
    async fn removed(&self) -> String {
        let lock = self.lock.metadata().map(|metadata| metadata.ino()).ok();
        // An open database has a log of writes.
        let log = |database: &str| format!("{database}-wal");
        let files = [LOCK.to_owned(), TABLES.to_owned(), log(TABLES), QUEUE.to_owned(), log(QUEUE)];
        let mut seen = [lock, None, None, None, None];
        loop {
            for (file, seen) in files.iter().zip(&mut seen) {
                let now = match std::fs::metadata(self.directory.join(file)) {
                    // A checkpoint may empty a log.
                    Ok(now) => (now.len() > 0 || file.ends_with("-wal")).then(|| now.ino()),
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    Err(_) => continue,
                };
                if seen.is_some() && now != *seen {
                    return format!(
                        "files of the data folder {} were removed, moved or replaced: what `local` writes now would \
                         be lost, so it ends",
                        self.directory.display()
                    );
                }
                *seen = now;
            }
            Env::system().sleep(WATCH).await;
        }
    }
}

/// Waits until a file of the folder is removed, and returns what to say. Never returns without a folder.
pub(super) async fn removed(folder: Option<&Folder>) -> String {
    match folder {
        Some(folder) => folder.removed().await,
        None => pending().await,
    }
}
