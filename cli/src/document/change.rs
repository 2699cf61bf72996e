//! Writes a changed sources document, unless somebody else has changed it since it was read.

use anyhow::{Context, Result, bail, ensure};
use webhook_serializer::{config::WorkerConfig, sources::Sources};

use super::{DocumentPlace, DocumentText, DocumentWrite, FoundDocument, difference};

#[derive(Debug)]
pub struct DocumentChange {
    pub text: String,
    pub sources: Sources,
    /// The document's changed lines, without secrets.
    pub lines: Vec<String>,
}

#[derive(Debug)]
pub enum ChangeOutcome {
    /// The change was written. The second value is the name of the new version of a parameter or secret, and `None` for
    /// a file.
    Done(DocumentChange, Option<String>),
    Declined,
}

/// The largest number of attempts to write the document while other writers change it.
const ATTEMPTS: u32 = 5;

/// Edits the document at `place`, and writes it once `agree` has accepted the difference. If somebody else writes a
/// newer version in the meantime, edits that version instead, and asks `agree` again if the difference is no longer the
/// same.
///
/// # Errors
///
/// The document is unchanged, unless the error says otherwise.
pub async fn apply(
    place: &DocumentPlace,
    worker_timeout: u64,
    edit: impl Fn(&mut DocumentText) -> Result<()>,
    agree: impl Fn(&DocumentChange) -> Result<bool>,
) -> Result<ChangeOutcome> {
    let mut found = place.read().await?;
    let changed = edited(place, &mut found, worker_timeout, edit, agree).await;
    match changed {
        Ok(ChangeOutcome::Done(..)) => changed,
        Ok(ChangeOutcome::Declined) => match restore(place, found.as_ref()).await {
            Some(Err(note)) => bail!(note),
            Some(Ok(_)) | None => Ok(ChangeOutcome::Declined),
        },
        Err(error) => match restore(place, found.as_ref()).await {
            Some(Ok(note) | Err(note)) => Err(error.context(note)),
            None => Err(error),
        },
    }
}

/// Edits and writes the document. Whenever another writer was faster, sets `found` to that writer's document.
async fn edited(
    place: &DocumentPlace,
    found: &mut Option<FoundDocument>,
    worker_timeout: u64,
    edit: impl Fn(&mut DocumentText) -> Result<()>,
    agree: impl Fn(&DocumentChange) -> Result<bool>,
) -> Result<ChangeOutcome> {
    let mut agreed: Option<Vec<String>> = None;
    for _ in 0..ATTEMPTS {
        let change = make(place, found.as_ref(), worker_timeout, &edit)?;
        // An unchanged difference needs no second confirmation.
        if agreed.as_ref() != Some(&change.lines) {
            if !agree(&change)? {
                return Ok(ChangeOutcome::Declined);
            }
            agreed = Some(change.lines.clone());
        }
        match place.write(found.as_ref(), &change.text).await? {
            DocumentWrite::Done(version) => return Ok(ChangeOutcome::Done(change, version)),
            DocumentWrite::Overtaken(theirs) => {
                // A third writer has replaced this command's text, and with it the overwritten one.
                let overwrote = found.as_ref().and_then(FoundDocument::replaced_by);
                ensure!(overwrote.is_none() || theirs.replaced_by().is_some(), "{place} keeps changing");
                *found = Some(theirs);
            }
        }
    }
    bail!(
        "nothing was written: somebody else keeps changing {place}. Wait until they have finished, then run this again"
    )
}

/// Writes another writer's document again, if this command has overwritten that document. Returns a sentence that says
/// whether the document is restored, or `None` if this command has overwritten nothing.
async fn restore(place: &DocumentPlace, found: Option<&FoundDocument>) -> Option<Result<String, String>> {
    let theirs = found?;
    let version = theirs.replaced_by()?;
    Some(match place.write(Some(theirs), &theirs.text).await {
        Ok(DocumentWrite::Done(_)) => {
            Ok(format!("somebody else wrote {place} at the same time; their version is restored"))
        }
        Ok(DocumentWrite::Overtaken(_)) | Err(_) => Err(format!(
            "somebody else wrote {place} at the same time, and version {version} has replaced theirs: compare the two \
             versions"
        )),
    })
}

fn make(
    place: &DocumentPlace,
    found: Option<&FoundDocument>,
    worker_timeout: u64,
    edit: impl Fn(&mut DocumentText) -> Result<()>,
) -> Result<DocumentChange> {
    if let Some(found) = found {
        accepted(place, found)?;
    }
    let before = DocumentText::parse(found.map_or("", |found| &found.text))?;
    let mut after = before.clone();
    edit(&mut after)?;
    let text = after.to_string();
    let refused = || format!("with this change, {place} would be refused; nothing was written");
    let sources = Sources::parse(&text).with_context(refused)?;
    fits(&sources, worker_timeout).with_context(refused)?;
    Ok(DocumentChange { lines: difference(&before, &after), text, sources })
}

pub fn accepted(place: &DocumentPlace, found: &FoundDocument) -> Result<Sources> {
    Sources::parse(&found.text).with_context(|| format!("{place} is invalid; correct that first"))
}

/// Checks `sources` by the rules of a worker whose timeout is `worker_timeout`, in seconds.
pub fn fits(sources: &Sources, worker_timeout: u64) -> Result<()> {
    let function = worker_timeout.to_string();
    let hidden = (worker_timeout * 3 / 2).to_string();
    let deployed = [
        ("FUNCTION_TIMEOUT_SECONDS", function.as_str()),
        ("VISIBILITY_TIMEOUT_SECONDS", hidden.as_str()),
        ("LEASE_SECONDS", "1"),
    ];
    WorkerConfig::read(&deployed.as_slice(), sources)
        .map(drop)
        .with_context(|| format!("with a worker timeout of {worker_timeout} s"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn add(place: &DocumentPlace, name: &str) -> Result<ChangeOutcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let fields = [("provider".to_owned(), json!("shopify")), ("handler".to_owned(), json!("orders"))];
        let edit = |text: &mut DocumentText| text.insert(name, &fields);
        // Every thread writes the same file.
        loop {
            let changed = runtime.block_on(apply(place, 60, edit, |_| Ok(true)));
            match changed {
                Err(error) if error.to_string().contains("keeps changing") => {}
                changed => return changed,
            }
        }
    }

    #[test]
    fn concurrent_additions_lose_no_source() {
        const EACH: usize = 10;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sources.toml");
        std::thread::scope(|scope| {
            for person in 0..6 {
                let file = &file;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let place = DocumentPlace::File(file.clone());
                        assert!(matches!(add(&place, &format!("s{person}-{number}")), Ok(ChangeOutcome::Done(..))));
                    }
                });
            }
        });
        let sources = Sources::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(sources.iter().count(), 6 * EACH);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn changed_file_keeps_mode_and_symlink() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sources.toml");
        let link = folder.path().join("link");
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        add(&DocumentPlace::File(file.clone()), "first").unwrap();
        assert_eq!(mode(&file), 0o600);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        add(&DocumentPlace::File(link.clone()), "second").unwrap();
        assert!(link.is_symlink() && mode(&file) == 0o640);
        assert!(std::fs::read_to_string(&file).unwrap().contains("[sources.second]"));
    }

    #[test]
    fn refused_or_declined_change_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = DocumentPlace::File(folder.path().join("sources.toml"));
        add(&place, "first").unwrap();
        let before = std::fs::read_to_string(place.file().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let no_handler = |text: &mut DocumentText| text.insert("second", &[("provider".to_owned(), json!("shopify"))]);
        let slow = |text: &mut DocumentText| {
            let fields = [("provider", "shopify"), ("handler", "h"), ("handler_timeout", "58s")];
            text.insert("second", &fields.map(|(name, value)| (name.to_owned(), json!(value))))
        };
        let refused = |error: anyhow::Error| format!("{error:#}");
        let without = refused(runtime.block_on(apply(&place, 60, no_handler, |_| Ok(true))).unwrap_err());
        assert!(
            without.contains("would be refused; nothing was written: ") && without.contains("handler"),
            "{without}"
        );
        let late = refused(runtime.block_on(apply(&place, 60, slow, |_| Ok(true))).unwrap_err());
        assert!(late.contains("a worker timeout of 60 s") && late.contains("less than 56 s"), "{late}");
        let declined = runtime.block_on(apply(&place, 120, slow, |_| Ok(false)));
        assert!(matches!(declined, Ok(ChangeOutcome::Declined)));
        assert_eq!(std::fs::read_to_string(place.file().unwrap()).unwrap(), before);
    }
}
