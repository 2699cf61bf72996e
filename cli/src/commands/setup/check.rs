//! `serializer check`: checks a sources document, or prints the document's schema and reference pages.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use serializer::{
    document::{
        self,
        advice::{self, Advice, Weight},
        reference,
        routing::{self, Route},
    },
    output::{self, Table},
    say,
};
use webhook_serializer::{
    sources::{Intake, QueueArn, Sources},
    time::Env,
};

use crate::commands::print_json;

#[derive(Debug, Args)]
#[command(
    after_help = "Refuses a document that the functions would refuse, and names the wrong field. The command cannot see \
                       your worker's own handlers, so it lists the handlers that the worker must have. Warns about \
                       templates that split an order, and about misspelt topics and handlers. Shows no secret."
)]
pub struct Check {
    /// The sources document (TOML or JSON)
    #[arg(required_unless_present_any = ["schema", "reference", "providers"])]
    file: Option<PathBuf>,
    /// The parameter WorkerTimeout of the deployment, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=900))]
    worker_timeout: u64,
    /// Say instead what each source would do with a Function URL event, as in `events/`, or with each message of an SQS
    /// event, and why. Its signature is not
    /// checked
    #[arg(long, value_name = "FILE", requires = "file")]
    event: Option<PathBuf>,
    /// Print one JSON object per source
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema with which editors complete and check a sources document
    #[arg(long, exclusive = true)]
    schema: bool,
    /// Print the page docs/sources-reference.md
    #[arg(long, exclusive = true, hide = true)]
    reference: bool,
    /// Print the page docs/providers.md
    #[arg(long, exclusive = true, hide = true)]
    providers: bool,
}

impl Check {
    pub fn run(&self) -> Result<ExitCode> {
        match &self.file {
            _ if self.schema => output::print(reference::schema()),
            _ if self.reference => output::print(reference::page()),
            _ if self.providers => output::print(reference::providers()),
            Some(file) => return self.check(file),
            None => unreachable!("the command line demands a file, or one of the others"),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn check(&self, path: &Path) -> Result<ExitCode> {
        let file = path.display();
        let text = document::read_text(path)?;
        let sources = Sources::parse(&text).with_context(|| format!("{file} is refused"))?;
        document::fits(&sources, self.worker_timeout).with_context(|| format!("{file} is refused"))?;
        if let Some(event) = &self.event {
            return self.route(event, &sources);
        }
        let mut table = Table::new(&["source", "provider", "handler", ">at most", "given up after", "webhooks to"]);
        let mut advice = Vec::from_iter(advice::of_origin(&sources));
        if self.json {
            advice.iter().for_each(|advice| print_json(&json!({ "source": null, "errors": [advice.text] })));
        }
        advice.extend(advice::of_alerts(&sources));
        for source in sources.iter() {
            let mut of_it = advice::of(source);
            of_it.extend(advice::of_development(source));
            of_it.extend(advice::subscribers::of(source, &sources));
            if self.json {
                let texts = |weight| -> Vec<_> {
                    let of_weight = of_it.iter().filter(|advice| advice.weight == weight);
                    of_weight.map(|advice| console::strip_ansi_codes(&advice.text)).collect()
                };
                print_json(&json!({
                    "source": source.name.as_str(),
                    "provider": source.provider_name,
                    "from": source.from,
                    "queue": source.queue.as_ref().map(QueueArn::as_str),
                    "handler": source.handler,
                    "handler_timeout_ms": source.handler_timeout.as_millis() as u64,
                    "attempts": source.retry.attempts,
                    "failed_for_ms": Some(source.retry.failed_for).filter(|limit| *limit != Duration::MAX).map(|limit| limit.as_millis() as u64),
                    "unanswered_for_ms": source.retry.unanswered_for.as_millis() as u64,
                    "unavailable_for_ms": source.retry.unavailable_for.as_millis() as u64,
                    "errors": texts(Weight::Error),
                    "warnings": texts(Weight::Warning),
                    "notes": texts(Weight::Note),
                }));
            }
            advice.extend(of_it);
            table.row([
                source.name.to_string(),
                source.provider_name.clone(),
                source.handler.clone(),
                output::duration(source.handler_timeout),
                output::limits(&source.retry),
                match source.intake() {
                    Intake::CopiesOf(from) => format!("from {from}"),
                    Intake::Queue(queue) => format!("queue {}", queue.name()),
                    // The query may hold the secret.
                    Intake::Url => {
                        format!("/webhooks/{}{}", source.name, if source.query().is_some() { "?token=…" } else { "" })
                    }
                },
            ]);
        }
        if !self.json {
            output::print(table);
            advice.extend(advice::handlers::of(&sources));
            for Advice { weight, text } in &advice {
                say!("\n{} {text}", weight.label());
            }
        }
        let is_refused = advice.iter().any(|advice| advice.weight == Weight::Error);
        Ok(if is_refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn route(&self, event: &Path, sources: &Sources) -> Result<ExitCode> {
        let file = event.display();
        let text = document::read_text(event)?;
        let routes = routing::routes(&text, sources, Env::system().now()).with_context(|| format!("{file}"))?;
        let mut table = Table::new(&["source", "topic", "does", "why"]);
        for Route { source, topic, does, why } in routes {
            if self.json {
                print_json(&json!({ "source": source, "topic": topic, "does": does, "why": why }));
            }
            table.row([source, topic, does.to_owned(), why]);
        }
        if !self.json {
            output::print(table);
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn check(document: &str, worker_timeout: u64) -> Result<(), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(document.as_bytes()).unwrap();
        let check = Check {
            file: Some(file.path().to_owned()),
            worker_timeout,
            event: None,
            json: false,
            schema: false,
            reference: false,
            providers: false,
        };
        check.run().map(|_| ()).map_err(|error| format!("{error:#}"))
    }

    /// Promise: `serializer check` refuses what the functions would.
    #[test]
    fn check_refuses_documents_that_workers_refuse() {
        assert_eq!(check(serializer::local::samples::SOURCES, 60), Ok(()));
        let slow = "[sources.shop]\nprovider = 'shopify'\nsecrets = ['hidden-q7mZ4kT1']\nhandler = 'mine'\nhandler_timeout = '65s'\n";
        assert_eq!(check(slow, 120), Ok(()));
        let refused = check(slow, 60).unwrap_err();
        assert!(refused.contains("`shop`") && refused.contains("less than 56 s"), "{refused}");
        let refused = check(&slow.replace("'shopify'", "'hidden'"), 120).unwrap_err();
        assert!(refused.contains("is refused: source `shop`: "), "{refused}");
        let refused = check("[shop]\nprovider = 'shopify'\nhandler = 'mine'\n", 60).unwrap_err();
        assert!(refused.contains("line 1: unknown field `shop` (did you mean `sources.shop`?)"), "{refused}");
    }
}
