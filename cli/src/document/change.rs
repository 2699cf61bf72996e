//! A change to a document, from its reading to the moment that it is in place.

use anyhow::{Context, Result, bail};
use webhook_serializer::{config::WorkerConfig, sources::Sources};

use super::{Found, Place, Text, Written, difference};

/// A change that is ready to be written.
#[derive(Debug)]
pub struct Change {
    /// The document with it.
    pub text: String,
    /// The sources of that.
    pub sources: Sources,
    /// The lines that differ, without secrets.
    pub lines: Vec<String>,
}

/// What became of it.
#[derive(Debug)]
pub enum Changed {
    /// It is in place; in a parameter or a secret as this version.
    Done(Change, Option<String>),
    /// Whoever was asked declined.
    Declined,
}

/// How often somebody else may write in between.
const TRIES: u32 = 5;

/// Changes the document at `place` by `edit`, once `agree` has seen what that
/// does. What somebody else writes meanwhile is read, and changed instead.
///
/// # Errors
///
/// It could not be read or written; the functions would refuse it, before or
/// after; `edit` does not apply to it. Nothing was written then, unless the
/// error says so.
pub async fn apply(
    place: &Place,
    worker_timeout: u64,
    edit: impl Fn(&mut Text) -> Result<()>,
    agree: impl Fn(&Change) -> Result<bool>,
) -> Result<Changed> {
    let mut found = place.read().await?;
    let mut replaced: Option<String> = None;
    let mut agreed: Option<Vec<String>> = None;
    for _ in 0..TRIES {
        let change = make(place, found.as_ref(), worker_timeout, &edit);
        let change = match (change, &replaced) {
            (Ok(change), _) => change,
            (Err(error), None) => return Err(error),
            (Err(error), Some(version)) => {
                return Err(error.context(format!(
                    "somebody else wrote {place} at the same moment, and version {version} has replaced theirs, the \
                     one before it. Put that back, then run this again"
                )));
            }
        };
        // Whoever agreed to these lines is not asked again for what others wrote beside them.
        if agreed.as_ref() != Some(&change.lines) {
            if !agree(&change)? {
                return Ok(Changed::Declined);
            }
            agreed = Some(change.lines.clone());
        }
        match place.write(found.as_ref(), &change.text).await? {
            Written::Done(version) => return Ok(Changed::Done(change, version)),
            Written::Overtaken(theirs) => {
                replaced = theirs.replaced_by();
                found = Some(theirs);
            }
        }
    }
    bail!("{place} is written by somebody else again and again; look what that is, then run this again")
}

fn make(
    place: &Place,
    found: Option<&Found>,
    worker_timeout: u64,
    edit: impl Fn(&mut Text) -> Result<()>,
) -> Result<Change> {
    if let Some(found) = found {
        accepted(place, found)?;
    }
    let before = Text::parse(found.map_or("", |found| &found.text))?;
    let mut after = before.clone();
    edit(&mut after)?;
    let text = after.to_string();
    let refused = || format!("with that, {place} would be refused; nothing was written");
    let sources = Sources::parse(&text).with_context(refused)?;
    fits(&sources, worker_timeout).with_context(refused)?;
    Ok(Change { lines: difference(&before, &after), text, sources })
}

/// The sources of a document that is to be changed.
///
/// # Errors
///
/// It is refused as it stands.
pub fn accepted(place: &Place, found: &Found) -> Result<Sources> {
    Sources::parse(&found.text).with_context(|| format!("{place} is refused as it stands; correct that first"))
}

/// Whether a worker that is deployed with so many seconds takes `sources`.
///
/// # Errors
///
/// It does not.
pub fn fits(sources: &Sources, worker_timeout: u64) -> Result<()> {
    let (function, hidden) = (worker_timeout.to_string(), (worker_timeout * 3 / 2).to_string());
    let deployed = [
        ("FUNCTION_TIMEOUT_SECONDS", function.as_str()),
        ("VISIBILITY_TIMEOUT_SECONDS", hidden.as_str()),
        ("LEASE_SECONDS", "1"),
    ];
    WorkerConfig::read(&deployed.as_slice(), sources)
        .map(drop)
        .with_context(|| format!("a worker of {worker_timeout} s"))
}
