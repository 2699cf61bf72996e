//! `serializer source remove`: removes a source. Refuses while deliveries are known to wait, unless the user lets them
//! be parked.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;
use serializer::output;
use webhook_serializer::{
    protocol::entity::SourceName,
    sources::{Intake, Source},
};

use super::{
    ChangeOptions, late,
    whereabouts::{DocumentOptions, local_queue, sources, unknown},
};
use crate::commands::target::Target;

#[derive(Debug, Args)]
pub(super) struct Remove {
    /// The source's name
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
    /// Remove the source even if its deliveries wait: each is parked when its turn comes
    #[arg(long)]
    park_waiting: bool,
    #[command(flatten)]
    manner: ChangeOptions,
    #[command(flatten)]
    document: DocumentOptions,
    #[command(flatten)]
    target: Target,
}

const SHOWN: usize = 3;

impl Remove {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let place = self.document.place(self.target.deployment_name()).await?;
        let (_, sources) = sources(&place).await?;
        let name = self.name.as_str();
        let source = sources.get(name).ok_or_else(|| unknown(&place, &sources, name))?;
        ensure!(
            sources.iter().count() > 1,
            "nothing was written: `{name}` is the only source in {place}, and a document needs a source. Add another \
             source first"
        );
        let waiting = self.waiting(source).await?;
        let done = self.manner.apply(&place, name, |text| text.remove(name)).await?;
        let Some(done) = done else { return Ok(ExitCode::FAILURE) };
        let end = match source.intake() {
            Intake::CopiesOf(from) => format!("the webhooks of `{from}` go to its other sources only"),
            Intake::Queue(queue) => match self.target.deployment_name().local {
                Some(url) => format!(
                    "let nothing send to {}: messages that arrive later stay there until you add the source again",
                    local_queue(url, queue).await
                ),
                None => format!(
                    "disable its event source mapping, or delete its stack: messages that arrive later stay in {queue} \
                     until its dead-letter queue takes them (docs/queues.md)"
                ),
            },
            Intake::Url => "remove the webhook's URL at the sender now: once the functions have read the document, ingest answers this source's webhooks 404".to_owned(),
        };
        let words = [
            end,
            format!("functions read the document within {} at the latest", late()),
            format!(
                "deliveries that wait or arrive until then are parked; to have them handled, add the source again and \
                 run `{} redrive`",
                output::this_command()
            ),
        ];
        self.manner.report(&place, &done, ("removed", "is removed from"), name, &words, json!({ "waiting": waiting }));
        Ok(ExitCode::SUCCESS)
    }

    async fn waiting(&self, source: &Source) -> Result<Option<usize>> {
        if !self.target.is_named() {
            output::complain("waiting deliveries were not checked; give --local or --stack to check them");
            return Ok(None);
        }
        let waiting = self.target.connect().await?.operator().waiting_of(&self.name).await?;
        let count = waiting.values().sum();
        let orders: Vec<&str> = waiting.keys().take(SHOWN).map(|order| order.as_str()).collect();
        let first = match source.intake() {
            Intake::CopiesOf(from) => format!("Pause `{from}`"),
            Intake::Queue(queue) => format!("Let nothing send to {queue}"),
            Intake::Url => "Disable the webhook at the sender".to_owned(),
        };
        let more = if waiting.len() > SHOWN { ", …" } else { "" };
        ensure!(
            count == 0 || self.park_waiting,
            "nothing was written: {count} {} of `{}` {}, in {}{more}. {first} until nothing waits, or \
             add --park-waiting, which parks each delivery in its turn",
            if count == 1 { "delivery" } else { "deliveries" },
            self.name,
            if count == 1 { "waits" } else { "wait" },
            orders.join(", ")
        );
        Ok(Some(count))
    }
}
