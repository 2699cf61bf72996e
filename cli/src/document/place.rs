//! Reads and replaces a sources document in a file, a parameter or a secret.

use std::{
    fs::{File, Permissions},
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use tempfile::NamedTempFile;
use webhook_serializer::{
    aws::{
        Account,
        stored::{DocumentVersion, Refused, Replaced, Stored},
    },
    config::SourcesOrigin,
    sources,
    time::Env,
};

#[derive(Debug)]
pub enum DocumentPlace {
    File(PathBuf),
    Stored(Stored, String),
}

#[derive(Debug, Clone)]
pub struct FoundDocument {
    pub text: String,
    held: Option<DocumentVersion>,
}

#[derive(Debug)]
pub enum DocumentWrite {
    /// The document was written. The value is the name of the new version of a parameter or secret, and `None` for a
    /// file.
    Done(Option<String>),
    /// Somebody else wrote the document first. The value is that writer's document.
    Overtaken(FoundDocument),
}

impl DocumentPlace {
    pub fn at(origin: SourcesOrigin, account: Option<&Account>) -> Result<Self> {
        let name = match &origin {
            SourcesOrigin::File(path) => return Ok(Self::File(path.clone())),
            SourcesOrigin::Parameter(name) | SourcesOrigin::Secret(name) => name.clone(),
        };
        let account = account.context("a parameter or secret needs an AWS account")?;
        let stored = account.stored(&account.http_client(), origin, &Env::system());
        Ok(Self::Stored(stored.context("the sources are in a file")?, name))
    }

    pub async fn read(&self) -> Result<Option<FoundDocument>> {
        match self {
            Self::File(path) => read(path),
            Self::Stored(stored, _) => {
                let held = stored.read().await.map_err(|refused| self.error("cannot be read", refused))?;
                Ok(held.map(FoundDocument::from))
            }
        }
    }

    /// Replaces the document that was read as `found`. Returns [`DocumentWrite::Overtaken`] if somebody else has written the
    /// document since this read.
    pub async fn write(&self, found: Option<&FoundDocument>, text: &str) -> Result<DocumentWrite> {
        let (stored, held) = match self {
            Self::File(path) => return replace(path, found, text),
            Self::Stored(stored, _) => (stored, found.and_then(|found| found.held.as_ref())),
        };
        let replaced = match held {
            Some(held) => stored.replace(held, text).await,
            None => stored.create(text).await,
        };
        match replaced.map_err(|refused| self.error("is not changed", refused))? {
            Replaced::Done(version) => Ok(DocumentWrite::Done(Some(version))),
            Replaced::Overtaken(held) => Ok(DocumentWrite::Overtaken(held.into())),
        }
    }

    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stored(..) => None,
        }
    }

    fn error(&self, what: &str, refused: Refused) -> anyhow::Error {
        anyhow::Error::new(refused).context(format!("{self} {what}"))
    }
}

impl std::fmt::Display for DocumentPlace {
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

impl FoundDocument {
    /// Returns the version with which this command overwrote this document of another writer. Returns `None` if this
    /// command did not overwrite the document.
    pub(super) fn replaced_by(&self) -> Option<String> {
        self.held.as_ref().filter(|held| held.is_replaced).map(|held| held.version.clone())
    }
}

impl From<DocumentVersion> for FoundDocument {
    fn from(held: DocumentVersion) -> Self {
        Self { text: held.text.clone(), held: Some(held) }
    }
}

fn read(path: &Path) -> Result<Option<FoundDocument>> {
    match path.try_exists() {
        Ok(false) => Ok(None),
        _ => read_text(path).map(|text| Some(FoundDocument { text, held: None })),
    }
}

/// Reads a sources document. An error names the file's encoding if that is the problem.
pub fn read_text(path: &Path) -> Result<String> {
    let read = std::fs::read(path).map_err(|error| error.to_string()).and_then(sources::text);
    read.map_err(|reason| anyhow!("{} cannot be read: {reason}", path.display()))
}

/// The mode of new files. The files contain secrets, so only their owner may read them.
const OWNER_ONLY: u32 = 0o600;

/// Replaces a file atomically if its content is still `found`, or creates it if `found` is `None`. A lock excludes
/// other calls that replace the file. The lock does not exclude an editor that saves between the check and the rename.
fn replace(path: &Path, found: Option<&FoundDocument>, text: &str) -> Result<DocumentWrite> {
    let cannot = || format!("{} cannot be written", path.display());
    // Follows a link, so that the link itself is not replaced.
    let target = if found.is_some() { path.canonicalize().with_context(cannot)? } else { path.to_owned() };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(found) = found else {
        return match written_beside(folder, text, OWNER_ONLY).with_context(cannot)?.persist_noclobber(&target) {
            Ok(_) => Ok(DocumentWrite::Done(None)),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                Ok(DocumentWrite::Overtaken(read(path)?.with_context(cannot)?))
            }
            Err(error) => Err(error.error).with_context(cannot),
        };
    };
    let held = lock(&target).with_context(cannot)?;
    let now = read(&target)?.with_context(|| format!("{} is gone", path.display()))?;
    if now.text != found.text {
        return Ok(DocumentWrite::Overtaken(now));
    }
    let mode = held.metadata().map(|metadata| metadata.permissions().mode()).unwrap_or(OWNER_ONLY);
    let file = written_beside(folder, text, mode).with_context(cannot)?;
    file.persist(&target).map_err(|error| error.error).with_context(cannot)?;
    Ok(DocumentWrite::Done(None))
}

/// Writes a temporary file in `folder`. Waits until the text is on the disk, because a full disk may be reported only
/// then.
fn written_beside(folder: &Path, text: &str, mode: u32) -> std::io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Locks the file at `path`. If the file is replaced before it is locked, the new file is locked instead.
fn lock(path: &Path) -> std::io::Result<File> {
    loop {
        let file = File::open(path)?;
        file.lock()?;
        let held = file.metadata()?;
        let named = std::fs::metadata(path)?;
        if (held.dev(), held.ino()) == (named.dev(), named.ino()) {
            return Ok(file);
        }
    }
}
