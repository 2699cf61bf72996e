//! `serializer source list`: lists the configured sources, with advice about them.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use serializer::{
    document::advice::{self, Weight},
    output::{self, Table},
};
use webhook_serializer::sources::{CredentialField, Intake, QueueArn};

use super::{
    print, print_json, texts,
    whereabouts::{DocumentLocation, sources},
};

#[derive(Debug, Args)]
pub(super) struct SourceListArguments {
    /// Print one JSON object per source
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whereabouts: DocumentLocation,
}

impl SourceListArguments {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let place = self.whereabouts.place().await?;
        let (_, sources) = sources(&place).await?;
        let mut table = Table::new(&[
            "source",
            "provider",
            "entity",
            "handler",
            "topics",
            ">secrets",
            "given up after",
            ">remarks",
        ]);
        let mut all = Vec::new();
        for source in sources.iter() {
            let advice = advice::of(source);
            let templates: Vec<String> = source.entity_templates().collect();
            let topics = source.topics();
            let patterns = |take: bool| -> Vec<&str> {
                let list = topics.map(|topics| if take { &topics.take } else { &topics.ignore });
                list.into_iter().flat_map(|list| list.iter()).map(|pattern| pattern.as_str()).collect()
            };
            let take = patterns(true);
            let ignore = patterns(false);
            let host = source.forward().map(|destination| destination.host().to_owned());
            let function = source.invoke().map(ToString::to_string);
            let known_by = source.credential_field();
            let awaits = source.missing_field().map(CredentialField::name);
            if self.json {
                print_json(&json!({
                    "source": source.name.as_str(), "provider": source.provider_name, "from": source.from,
                    "queue": source.queue.as_ref().map(QueueArn::as_str), "entity": templates,
                    "handler": source.handler, "forwards_to": host, "invokes": function, "take": take, "ignore": ignore,
                    "secrets": source.secrets(), "known_by": known_by.map(CredentialField::name), "awaits": awaits,
                    "attempts": source.retry.attempts,
                    "unanswered_for_ms": source.retry.unanswered_for.as_millis() as u64,
                    "unavailable_for_ms": source.retry.unavailable_for.as_millis() as u64,
                    "errors": texts(&advice, Weight::Error),
                    "warnings": texts(&advice, Weight::Warning), "notes": texts(&advice, Weight::Note),
                }));
                continue;
            }
            let but = if ignore.is_empty() { String::new() } else { format!("not {}", ignore.join(", ")) };
            let said = [take.join(", "), but].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
            table.row([
                source.name.to_string(),
                match source.intake() {
                    Intake::CopiesOf(from) => format!("from {from}"),
                    Intake::Queue(queue) => format!("{} from {}", source.provider_name, queue.name()),
                    Intake::Url => source.provider_name.clone(),
                },
                if templates.is_empty() { "{source}/{entity}".to_owned() } else { templates.join(", else ") },
                match (host, function) {
                    (Some(host), _) => format!("{} to {host}", source.handler),
                    (_, Some(function)) => format!("{} {function}", source.handler),
                    _ => source.handler.clone(),
                },
                if said.is_empty() { "all".to_owned() } else { said.join(", ") },
                match known_by {
                    Some(CredentialField::Secrets) => source.secrets().to_string(),
                    Some(field) if source.missing_field().is_some() => format!("no {field}"),
                    Some(field) => field.to_string(),
                    None => "none needed".to_owned(),
                },
                output::limits(&source.retry),
                if advice.is_empty() { String::new() } else { advice.len().to_string() },
            ]);
            all.extend(advice);
        }
        if !self.json {
            output::print(table);
            print(&all);
        }
        Ok(ExitCode::SUCCESS)
    }
}
