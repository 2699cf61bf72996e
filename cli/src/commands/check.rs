//! `serializer check`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use serializer::output::{self, Table};
use webhook_serializer::{config::WorkerConfig, sources::Sources};

use super::print_json;

/// Options of `serializer check`.
#[derive(Debug, Args)]
#[command(after_help = "Refuses what the functions would refuse, and says where; but which handlers \
                       there are, only the worker knows. Shows no secret.")]
pub struct Check {
    /// The sources document (TOML or JSON)
    file: PathBuf,
    /// The time that a worker is deployed with, in seconds: the parameter WorkerTimeout
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=900))]
    worker_timeout: u64,
    /// One JSON object a source
    #[arg(long)]
    json: bool,
}

impl Check {
    pub fn run(&self) -> Result<ExitCode> {
        let file = self.file.display();
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("{file} cannot be read"))?;
        let sources = Sources::parse(&text).with_context(|| format!("{file} is refused"))?;
        let (function, hidden) = (self.worker_timeout.to_string(), (self.worker_timeout * 3 / 2).to_string());
        let deployed = [
            ("FUNCTION_TIMEOUT_SECONDS", function.as_str()),
            ("VISIBILITY_TIMEOUT_SECONDS", hidden.as_str()),
            ("LEASE_SECONDS", "1"),
        ];
        WorkerConfig::read(&deployed.as_slice(), &sources)
            .with_context(|| format!("a worker of {} s refuses {file}", self.worker_timeout))?;
        let mut table = Table::new(&["source", "provider", "handler", ">at most", ">attempts", "webhooks to"]);
        for source in sources.iter() {
            if self.json {
                print_json(&json!({
                    "source": source.name.as_str(),
                    "provider": source.provider_name,
                    "handler": source.handler,
                    "handler_timeout_ms": source.handler_timeout.as_millis() as u64,
                    "attempts": source.retry.attempts,
                }));
            }
            table.row([
                source.name.to_string(),
                source.provider_name.clone(),
                source.handler.clone(),
                output::duration(source.handler_timeout),
                source.retry.attempts.to_string(),
                format!("/webhooks/{}", source.name),
            ]);
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
        let check = Check { file: file.path().to_owned(), worker_timeout, json: false };
        check.run().map(|_| ()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_a_worker_would_refuse_is_refused() {
        assert_eq!(check(serializer::samples::SOURCES, 60), Ok(()));
        let slow =
            "[sources.shop]\nprovider = 'shopify'\nsecrets = ['hidden']\nhandler = 'mine'\nhandler_timeout = '65s'\n";
        assert_eq!(check(slow, 120), Ok(()));
        let refused = check(slow, 60).unwrap_err();
        assert!(refused.contains("`shop`") && refused.contains("less than 56 s"), "{refused}");
        let refused = check(&slow.replace("'shopify'", "'hidden'"), 120).unwrap_err();
        assert!(refused.contains("is refused: source `shop`: "), "{refused}");
    }
}
