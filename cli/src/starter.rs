//! The files with which a deployment begins: a sources document, a receiver, sample events, and the programs to run.

mod document;
mod programs;
mod relay;
mod samples;

use std::collections::BTreeMap;

use anyhow::Result;
use webhook_serializer::{providers, sources::Sources};

pub(crate) use document::REPLACE;

#[derive(Debug, Clone)]
pub struct StarterChoices {
    /// Names of [`providers::NAMES`], each once. Each one's source has the provider's name.
    pub providers: Vec<String>,
    /// The first part of the key that several providers share: `shop` of `shop/order/7`.
    pub key: String,
    pub handler: StarterHandler,
    pub language: Language,
    /// The secret with which `forward` signs.
    pub secret: String,
    /// The text that starts this command in a shell.
    pub command: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StarterHandler {
    Log,
    Forward { url: String },
    Invoke { function: String, qualifier: Option<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    TypeScript,
    Python,
}

#[derive(Debug)]
pub struct Starter {
    pub files: Vec<StarterFile>,
    /// The orders' keys of each source's sample events.
    pub keys: BTreeMap<String, Vec<String>>,
    pub sources: Sources,
    /// The shell lines of the Procfile, each with its process's name.
    pub processes: Vec<(&'static str, String)>,
    /// The shell line that installs what the receiver needs.
    pub install: Option<&'static str>,
}

#[derive(Debug)]
pub struct StarterFile {
    /// The path in the folder, with `/` between its parts.
    pub path: String,
    pub text: String,
    /// Set if only the file's owner may read it.
    pub has_secrets: bool,
}

impl StarterFile {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), has_secrets: false }
    }

    fn with_secrets(self) -> Self {
        Self { has_secrets: true, ..self }
    }
}

/// Returns the files for these choices.
///
/// # Errors
///
/// Returns an error if the sources document would be refused, such as for a URL that `forward` cannot use.
pub fn starter(choices: &StarterChoices) -> Result<Starter> {
    let bare = document::text(choices, &BTreeMap::new());
    let events = samples::events(choices, &Sources::parse(&bare)?)?;
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in &events {
        let of_source = keys.entry(event.source.clone()).or_default();
        if !of_source.contains(&event.key) {
            of_source.push(event.key.clone());
        }
    }
    let text = document::text(choices, &keys);
    let sources = Sources::parse(&text)?;
    let mut files = vec![StarterFile::new("sources.toml", text).with_secrets()];
    files.extend(programs::files(choices));
    if relay::is_used(choices) {
        files.extend(relay::files(choices, samples::order_id(&events, choices)));
    }
    let processes = programs::processes(choices);
    let lines: String = processes.iter().map(|(name, line)| format!("{name}: {line}\n")).collect();
    files.push(StarterFile::new("Procfile", lines).with_secrets());
    files.extend(events.into_iter().map(|event| StarterFile::new(event.path, event.text)));
    Ok(Starter { files, keys, sources, processes, install: programs::install(choices) })
}

/// Returns whether a source of the provider needs `local --development-keys` to accept its samples.
fn publishes_its_key(provider: &str) -> bool {
    providers::by_name(provider).is_some_and(|provider| provider.published().is_some())
}
