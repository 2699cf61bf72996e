//! Where a document stands: a file, a parameter, a secret.

use std::{
    fs::{File, Permissions},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use webhook_serializer::{
    aws::{
        Account,
        stored::{Held, Refused, Replaced, Stored},
    },
    config::SourcesOrigin,
    time::Env,
};

/// Where it stands.
#[derive(Debug)]
pub enum Place {
    /// In a file.
    File(PathBuf),
    /// In a parameter or a secret, which has this name.
    Stored(Stored, String),
}

/// What stands there.
#[derive(Debug, Clone)]
pub struct Found {
    /// The document.
    pub text: String,
    held: Option<Held>,
}

/// What became of a document that was written.
#[derive(Debug)]
pub enum Written {
    /// It is in place; in a parameter or a secret as this version.
    Done(Option<String>),
    /// Somebody else wrote meanwhile; this is what is to be changed instead.
    Overtaken(Found),
}

impl Place {
    /// The place at `origin`.
    pub fn at(origin: SourcesOrigin, account: Option<&Account>) -> Result<Self> {
        let name = match &origin {
            SourcesOrigin::File(path) => return Ok(Self::File(path.clone())),
            SourcesOrigin::Parameter(name) | SourcesOrigin::Secret(name) => name.clone(),
        };
        let account = account.context("whose parameter is it?")?;
        let stored = account.stored(&account.http_client(), origin, &Env::system());
        Ok(Self::Stored(stored.context("it is a file")?, name))
    }

    /// Reads it; `None`: there is none yet.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub async fn read(&self) -> Result<Option<Found>> {
        match self {
            Self::File(path) => read(path),
            Self::Stored(stored, _) => {
                let held = stored.read().await.map_err(|refused| self.said("cannot be read", refused))?;
                Ok(held.map(Found::from))
            }
        }
    }

    /// Writes `text` where `found` was read, if that is still what stands there.
    ///
    /// # Errors
    ///
    /// It cannot be written; what stood there stands there still.
    pub async fn write(&self, found: Option<&Found>, text: &str) -> Result<Written> {
        let (stored, held) = match self {
            Self::File(path) => return replace(path, found, text),
            Self::Stored(stored, _) => (stored, found.and_then(|found| found.held.as_ref())),
        };
        let replaced = match held {
            Some(held) => stored.replace(held, text).await,
            None => stored.create(text).await,
        };
        match replaced.map_err(|refused| self.said("is not changed", refused))? {
            Replaced::Done(version) => Ok(Written::Done(Some(version))),
            Replaced::Overtaken(held) => Ok(Written::Overtaken(held.into())),
        }
    }

    /// The file, for command lines that take one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stored(..) => None,
        }
    }

    fn said(&self, what: &str, refused: Refused) -> anyhow::Error {
        anyhow!("{self} {what}: {refused}")
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stored(_, name) if name.starts_with("arn:") && name.contains(":secretsmanager:") => {
                write!(f, "the secret {name}")
            }
            Self::Stored(_, name) => write!(f, "the parameter {name}"),
        }
    }
}

impl Found {
    /// The version that has replaced it already, where one has.
    pub(super) fn replaced_by(&self) -> Option<String> {
        self.held.as_ref().filter(|held| held.is_replaced).map(|held| held.version.clone())
    }
}

impl From<Held> for Found {
    fn from(held: Held) -> Self {
        Self { text: held.text.clone(), held: Some(held) }
    }
}

fn read(path: &Path) -> Result<Option<Found>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Found { text, held: None })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

/// Only its owner reads a file that this makes: there are secrets in it.
const OWN: u32 = 0o600;

/// Whole or not at all, and only in the place of what was read. Two of these
/// wait for each other; an editor that saves between the look and the rename
/// does not.
fn replace(path: &Path, found: Option<&Found>, text: &str) -> Result<Written> {
    let cannot = || format!("{} cannot be written", path.display());
    // Behind a link, the file itself.
    let target = if found.is_some() { path.canonicalize().with_context(cannot)? } else { path.to_owned() };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(found) = found else {
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(cannot)?;
        file.write_all(text.as_bytes()).with_context(cannot)?;
        return match file.persist_noclobber(&target) {
            Ok(_) => Ok(Written::Done(None)),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                Ok(Written::Overtaken(read(path)?.with_context(cannot)?))
            }
            Err(error) => Err(error.error).with_context(cannot),
        };
    };
    let held = hold(&target).with_context(cannot)?;
    let now = read(&target)?.with_context(|| format!("{} is gone", path.display()))?;
    if now.text != found.text {
        return Ok(Written::Overtaken(now));
    }
    let mode = held.metadata().map(|metadata| metadata.permissions().mode()).unwrap_or(OWN);
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)?;
    file.as_file().set_permissions(Permissions::from_mode(mode)).with_context(cannot)?;
    file.as_file().sync_all().with_context(cannot)?;
    file.persist(&target).map_err(|error| error.error).with_context(cannot)?;
    Ok(Written::Done(None))
}

/// Locks the file that has the name now, and not one that had it.
fn hold(path: &Path) -> std::io::Result<File> {
    loop {
        let file = File::open(path)?;
        file.lock()?;
        let (held, named) = (file.metadata()?, std::fs::metadata(path)?);
        if (held.dev(), held.ino()) == (named.dev(), named.ino()) {
            return Ok(file);
        }
    }
}
