//! `serializer source`: adds, lists, changes, tries and removes sources.

mod add;
mod list;
mod pause;
mod remove;
mod rotate;
pub mod secret;
mod test;
pub mod whereabouts;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use console::style;
use serde_json::{Value, json};
use serializer::{
    document::{
        self, ChangeOutcome, DocumentChange, DocumentPlace, DocumentText,
        advice::{self, Advice, Weight},
    },
    output, say,
};
use webhook_serializer::{
    providers::{Secret, is_placeholder_id},
    sources::{CredentialField, Intake, REFRESH, STALE, Source},
};

pub use add::invoke;

use crate::commands::{confirm::ask, print_json};

#[derive(Debug, Args)]
pub struct SourceArguments {
    #[command(subcommand)]
    action: SourceCommand,
}

#[derive(Debug, Subcommand)]
enum SourceCommand {
    /// Add a source; its secret is read from standard input
    Add(add::Add),
    /// List the sources: provider, entity, handler, secrets, warnings
    List(list::SourceListArguments),
    /// Add a new secret beside the old one; --finish removes the old one
    Rotate(rotate::Rotate),
    /// Accept a source's webhooks and handle none until it is resumed
    Pause(pause::Pause),
    /// End a source's pause: workers handle its waiting deliveries
    Resume(pause::ResumeArguments),
    /// Remove a source
    Remove(remove::Remove),
    /// Sign a sample with the source's secret, send it, and print the answer
    Test(test::Test),
}

impl SourceArguments {
    pub async fn run(self) -> Result<ExitCode> {
        match self.action {
            SourceCommand::Add(add) => add.run().await,
            SourceCommand::List(list) => list.run().await,
            SourceCommand::Rotate(rotate) => rotate.run().await,
            SourceCommand::Pause(pause) => pause.run().await,
            SourceCommand::Resume(resume) => resume.run().await,
            SourceCommand::Remove(remove) => remove.run().await,
            SourceCommand::Test(test) => test.run().await,
        }
    }
}

#[derive(Debug, Args)]
struct ChangeOptions {
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print the result as one JSON object; needs --yes
    #[arg(long, requires = "yes")]
    json: bool,
    /// The parameter WorkerTimeout of the deployment, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=900))]
    worker_timeout: u64,
}

struct WrittenChange {
    change: DocumentChange,
    version: Option<String>,
}

impl ChangeOptions {
    async fn apply(
        &self,
        place: &DocumentPlace,
        source: &str,
        edit: impl Fn(&mut DocumentText) -> Result<()>,
    ) -> Result<Option<WrittenChange>> {
        let agree = |change: &DocumentChange| self.agree(place, source, change);
        match document::apply(place, self.worker_timeout, edit, agree).await? {
            ChangeOutcome::Done(change, version) => Ok(Some(WrittenChange { change, version })),
            ChangeOutcome::Declined => {
                output::complain("nothing was written");
                Ok(None)
            }
        }
    }

    fn agree(&self, place: &DocumentPlace, source: &str, change: &DocumentChange) -> Result<bool> {
        if !self.json {
            say!("{}", style(format!("{place}:")).bold());
            for line in &change.lines {
                let coloured = if line.starts_with('+') { style(line).green() } else { style(line).red() };
                say!("{coloured}");
            }
            if let Some(source) = change.sources.get(source) {
                print(&advice::of(source));
            }
        }
        if self.yes {
            return Ok(true);
        }
        ask("Write it?")
    }

    fn report(
        &self,
        place: &DocumentPlace,
        done: &WrittenChange,
        (short, what): (&str, &str),
        source: &str,
        words: &[String],
        mut more: Value,
    ) {
        if self.json {
            more["done"] = short.into();
            more["source"] = source.into();
            more["document"] = place.to_string().into();
            more["version"] = json!(done.version);
            let advice = done.change.sources.get(source).map(|source| advice::of(source)).unwrap_or_default();
            more["errors"] = texts(&advice, Weight::Error);
            more["warnings"] = texts(&advice, Weight::Warning);
            more["notes"] = texts(&advice, Weight::Note);
            return print_json(&more);
        }
        let version = done.version.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
        say!("\n{} {what} {place}{version}", style(source).bold());
        words.iter().for_each(|line| say!("{line}"));
    }
}

fn texts(advice: &[Advice], weight: Weight) -> Value {
    let of_weight = advice.iter().filter(|advice| advice.weight == weight);
    of_weight.map(|advice| console::strip_ansi_codes(&advice.text).into_owned()).collect()
}

fn print(advice: &[Advice]) {
    for Advice { weight, text } in advice {
        say!("{} {text}", weight.label());
    }
}

/// Refuses a secret or id that a forger can guess, because the functions do not use it.
fn refuse_guessable(what: &str, field: CredentialField, text: &str) -> Result<()> {
    let of_secret = || Secret::new(text).decoded().ok()?.guessable();
    let reason = match field {
        CredentialField::Secrets => of_secret(),
        CredentialField::RecipientId(_) => is_placeholder_id(text).then_some("is a placeholder"),
    };
    match reason {
        Some(reason) => bail!("{what} is not accepted: it {reason}. Give the value that the sender shows"),
        None => Ok(()),
    }
}

/// Refuses a source that gets no webhooks.
fn demand_door(source: &Source) -> Result<()> {
    match source.intake() {
        Intake::CopiesOf(from) => bail!("`{}` gets its deliveries from `{from}`: name that source", source.name),
        Intake::Queue(queue) => bail!("`{}` gets its deliveries from the queue {queue}, and no webhooks", source.name),
        Intake::Url => Ok(()),
    }
}

fn known_by(source: &Source) -> Result<CredentialField> {
    demand_door(source)?;
    source.credential_field().with_context(|| {
        format!(
            "{} signs with one key for all its customers, so source `{}` has no secret to rotate",
            source.provider_name, source.name
        )
    })
}

fn soon() -> String {
    format!("running functions read the changed document within {}", output::duration(REFRESH))
}

fn late() -> String {
    output::duration(STALE)
}
