//! `serializer source pause` and `resume`: while a source is paused, its webhooks are accepted and no handler starts.

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;
use serializer::output::{self, command_line};
use webhook_serializer::{protocol::entity::SourceName, sources::REFRESH};

use super::{
    ChangeOptions, soon,
    whereabouts::{DocumentOptions, sources, unknown},
};
use crate::commands::target::Target;

#[derive(Debug, Args)]
#[command(
    after_help = "The source's webhooks are verified, answered 2xx and stored, in order; its running handlers finish. \
                  The pause lasts until `source resume`. docs/operating.md says what it costs."
)]
pub(super) struct Pause {
    #[command(flatten)]
    of: PauseOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "With --local or --stack, the command also wakes a worker for each order with waiting deliveries, \
                  once the functions have read the document. To find these orders, it reads the whole table of \
                  deliveries. Without these options, workers continue within a quarter of an hour."
)]
pub(super) struct ResumeArguments {
    #[command(flatten)]
    of: PauseOptions,
}

#[derive(Debug, Args)]
struct PauseOptions {
    /// The source's name
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
    #[command(flatten)]
    manner: ChangeOptions,
    #[command(flatten)]
    document: DocumentOptions,
    #[command(flatten)]
    target: Target,
}

/// The time to wait after the refresh interval, so that all running functions have read the new document.
const READ_TIME: Duration = Duration::from_secs(10);

impl Pause {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let PauseOptions { name, document, target, .. } = &self.of;
        let resume = command_line("source resume", &document.option(&target.deployment_name()), &[name.as_str()]);
        let words = [
            format!("{}; from then on, its deliveries are accepted and wait", soon()),
            format!("this lets workers handle them, in order:\n  {resume}"),
        ];
        Ok(match self.of.write(true, ("paused", "is paused in"), &words).await? {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

impl ResumeArguments {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let words = [soon()];
        if !self.of.write(false, ("resumed", "is no longer paused in"), &words).await? {
            return Ok(ExitCode::FAILURE);
        }
        if !self.of.target.is_named() {
            output::complain(
                "the command woke no worker, so the source's orders continue within 15 min. Add --local or --stack to \
                 wake workers now",
            );
            return Ok(ExitCode::SUCCESS);
        }
        let operator = self.of.target.connect().await?.operator();
        let waiting = operator.waiting_of(&self.of.name).await?;
        for order in waiting.keys() {
            operator.wake(order, REFRESH + READ_TIME).await?;
        }
        let orders = output::counted(waiting.len() as u64, "waiting order", "waiting orders");
        output::complain(format_args!(
            "workers look at {orders} in {}, and continue with those that are due",
            output::duration(REFRESH + READ_TIME)
        ));
        Ok(ExitCode::SUCCESS)
    }
}

impl PauseOptions {
    /// Pauses or resumes the source in the document. Returns false if the operator declined.
    async fn write(&self, is_paused: bool, done_as: (&str, &str), words: &[String]) -> Result<bool> {
        let place = self.document.place(self.target.deployment_name()).await?;
        let (_, sources) = sources(&place).await?;
        let name = self.name.as_str();
        let source = sources.get(name);
        ensure!(source.is_some(), unknown(&place, &sources, name));
        if source.is_some_and(|source| source.is_paused == is_paused) {
            let so = if is_paused { "already paused" } else { "not paused" };
            output::complain(format_args!("{name} is {so} in {place}; nothing was written"));
            return Ok(true);
        }
        let done = self.manner.apply(&place, name, |text| text.flag(name, "paused", is_paused)).await?;
        let Some(done) = done else { return Ok(false) };
        self.manner.report(&place, &done, done_as, name, words, json!({}));
        Ok(true)
    }
}
