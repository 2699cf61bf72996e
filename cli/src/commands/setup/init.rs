//! `serializer init`: writes the files with which a deployment begins.

mod questions;

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use console::style;
use serde_json::json;
use serializer::{
    output::{self, quoted, this_command},
    say,
    starter::{Language, Starter, StarterChoices, StarterFile, StarterHandler, starter},
};
use webhook_serializer::{
    nearest,
    providers::{NAMES, webhook_senders},
};

use super::source::secret;
use crate::commands::print_json;

const HANDLER: &str = "http://127.0.0.1:8080/webhooks";
const KEY: &str = "shop";

#[derive(Debug, Args)]
#[command(after_help = "\
Writes sources.toml, a receiver for `forward` (or a function for `invoke`), a Procfile with the programs to start, and \
sample events. On a terminal, it asks for what the options leave open.\n\n\
If several providers are given, their webhooks of one order get one key, as far as they name the order: comments in \
sources.toml say where each finds it. The samples are changed to be about one order. ShipStation's name no order: with \
woocommerce and shipstation-v1, the receiver asks ShipStation for the orders, and posts an event for each.\n\n\
The secrets are for development: `serializer local` and `serializer send` work at once, and `serializer check` lists what \
to replace.\n\n\
If one of the files exists, init writes nothing, names it, and ends with exit code 1.\n\n\
Examples:\n  \
serializer init\n  \
serializer init shop --provider woocommerce --provider stripe --language python\n  \
serializer init --provider shopify --handler invoke=orders:live --language typescript\n  \
serializer init --provider github --handler log")]
pub struct Init {
    /// The folder; made if it does not exist
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// A provider, such as shopify; may be repeated
    #[arg(long = "provider", value_name = "NAME", value_parser = provider)]
    providers: Vec<String>,
    /// With several providers: the first part of the key that they share, such as the shop's name
    #[arg(long, value_name = "NAME", value_parser = key)]
    key: Option<String>,
    /// The handler: `forward` (to a receiver on this machine), `forward=URL`, `invoke=FUNCTION`, or `log`
    #[arg(long, value_name = "HANDLER", value_parser = handler)]
    handler: Option<StarterHandler>,
    /// The language of the receiver or function
    #[arg(long, value_name = "LANGUAGE", value_enum)]
    language: Option<LanguageName>,
    /// Ask nothing, and print the result as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LanguageName {
    Typescript,
    Python,
}

impl Init {
    pub fn run(self) -> Result<ExitCode> {
        let choices = self.choices()?;
        let starter = starter(&choices)?;
        let paths = || starter.files.iter().map(|file| file.path.as_str());
        let existing: Vec<&str> = paths().filter(|path| exists(&self.folder.join(path))).collect();
        if !existing.is_empty() {
            self.refuse(&existing);
            return Ok(ExitCode::FAILURE);
        }
        for file in &starter.files {
            write_new(&self.folder.join(&file.path), file)?;
        }
        let next = self.next_commands(&starter, &choices.command);
        if self.json {
            print_json(&json!({
                "folder": self.folder, "written": paths().collect::<Vec<_>>(), "existing": [], "keys": starter.keys,
                "processes": starter.processes.iter().map(|(_, line)| line).collect::<Vec<_>>(), "next": next,
            }));
        } else {
            report(&starter, &next);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn refuse(&self, existing: &[&str]) {
        if self.json {
            print_json(&json!({ "folder": self.folder, "written": [], "existing": existing }));
        }
        output::complain(format_args!(
            "nothing was written, because these files exist in {}: {}. Move them away, or give another folder",
            self.folder.display(),
            existing.join(", ")
        ));
    }

    fn choices(&self) -> Result<StarterChoices> {
        let can_ask = !self.json && questions::can_ask();
        let has_no_language = self.language.is_none() && self.handler != Some(StarterHandler::Log);
        let wanted = [
            (self.providers.is_empty(), "--provider NAME (for several, repeat it)"),
            (has_no_language, "--language typescript or --language python (or --handler log)"),
        ];
        let missing: Vec<&str> =
            wanted.into_iter().filter_map(|(is_missing, option)| is_missing.then_some(option)).collect();
        ensure!(
            can_ask || missing.is_empty(),
            "there is no terminal to ask on: add {}. The providers are {}",
            missing.join(", and "),
            questions::names()
        );
        let mut providers = self.providers.clone();
        if providers.is_empty() {
            providers = questions::providers()?;
        }
        let mut seen = BTreeSet::new();
        providers.retain(|name| seen.insert(name.clone()));
        let key = match &self.key {
            Some(key) => key.clone(),
            None if providers.len() > 1 && can_ask => questions::answer("Key that their orders share", KEY, key)?,
            None => KEY.to_owned(),
        };
        let handler = match &self.handler {
            Some(handler) => handler.clone(),
            None if can_ask => questions::answer("Handler: forward, invoke=FUNCTION or log", "forward", handler)?,
            None => handler("forward").map_err(anyhow::Error::msg)?,
        };
        let language = match self.language {
            Some(language) => language,
            None if handler == StarterHandler::Log => LanguageName::Typescript,
            None => questions::answer("Language: typescript or python", "typescript", |text| {
                LanguageName::from_str(text, true).map_err(|_| "type typescript or python".to_owned())
            })?,
        };
        let language = match language {
            LanguageName::Typescript => Language::TypeScript,
            LanguageName::Python => Language::Python,
        };
        Ok(StarterChoices { providers, key, handler, language, secret: secret::random(), command: command() })
    }

    fn next_commands(&self, starter: &Starter, command: &str) -> Vec<String> {
        let enter = (self.folder != Path::new(".")).then(|| format!("cd {}", quoted(&self.folder.to_string_lossy())));
        let commands = [
            format!("{command} check sources.toml"),
            format!("{command} send --sources sources.toml events/*.json"),
            format!("{command} list --local"),
        ];
        enter.into_iter().chain(starter.install.map(str::to_owned)).chain(commands).collect()
    }
}

fn report(starter: &Starter, next: &[String]) {
    for file in &starter.files {
        say!("{} {}", style("written").green(), file.path);
    }
    say!("\nKeys of the samples:\n");
    let width = starter.keys.keys().map(String::len).max().unwrap_or_default();
    for (source, keys) in &starter.keys {
        say!("  {source:<width$}  {}", keys.join(", "));
    }
    let (before, after) = next.split_at(next.len() - 2);
    say!("\nNext:\n");
    before.iter().for_each(|line| say!("  {line}"));
    say!("\nThen start the programs of the Procfile, each in a terminal of its own (or all with foreman or honcho):\n");
    starter.processes.iter().for_each(|(_, line)| say!("  {line}"));
    if starter.processes.iter().any(|(_, line)| line.contains(" node ")) {
        say!("\nTypeScript needs Node 22.6 or newer.");
    }
    say!("\nThen, in another terminal:\n");
    after.iter().for_each(|line| say!("  {line}"));
}

/// Returns whether something is at the path, even a link to nothing.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Creates the file and its folder. Returns an error if the file exists.
fn write_new(path: &Path, file: &StarterFile) -> Result<()> {
    let cannot = || format!("{} cannot be written", path.display());
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(cannot)?;
    let mode = if file.has_secrets { 0o600 } else { 0o666 };
    let mut created = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).with_context(cannot)?;
    created.write_all(file.text.as_bytes()).with_context(cannot)
}

/// Returns the text that starts this command in any folder: its name if the PATH has it, else its path.
fn command() -> String {
    let name = this_command();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A package's launcher gives several words, such as `npx webhook-serializer-cli`.
    let program = name.split(' ').next().unwrap_or_default();
    if !program.contains('/') && std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return name;
    }
    std::env::current_exe().map_or(name, |program| quoted(&program.to_string_lossy()))
}

fn provider(text: &str) -> Result<String, String> {
    if webhook_senders().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    if NAMES.contains(&text) {
        return Err(format!("the events of {text} come by a queue; docs/queues.md has such a source"));
    }
    let near: Vec<String> = nearest::ranked(text, webhook_senders()).iter().map(|name| format!("`{name}`")).collect();
    match near.as_slice() {
        [] => Err(format!("there is no such provider; the providers are {}", questions::names())),
        near => Err(format!("there is no such provider; did you mean {}?", near.join(" or "))),
    }
}

fn key(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_valid = !text.is_empty() && text.len() <= 64 && text.bytes().all(is_plain);
    is_valid.then(|| text.to_owned()).ok_or_else(|| "use up to 64 letters, digits, `-`, `_` and `.`".to_owned())
}

fn handler(text: &str) -> Result<StarterHandler, String> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    match (name, value) {
        ("log", None) => Ok(StarterHandler::Log),
        ("forward", url) => Ok(StarterHandler::Forward { url: url.unwrap_or(HANDLER).to_owned() }),
        ("invoke", Some(function)) if !function.is_empty() => {
            let fields = super::source::invoke(function);
            let field = |name: &str| fields[name].as_str().map(str::to_owned);
            let function = field("function").unwrap_or_default();
            Ok(StarterHandler::Invoke { function, qualifier: field("qualifier") })
        }
        ("invoke", _) => Err("name the function, such as invoke=orders:live".to_owned()),
        _ => Err(format!(
            "use forward, forward=URL, invoke=FUNCTION or log{}",
            nearest::hint(name, ["forward", "invoke", "log"])
        )),
    }
}
