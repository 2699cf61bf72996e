//! `serializer send`: a sample event, freshly signed, to any endpoint.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serializer::{samples, sender::Sender};
use webhook_serializer::{sources::Sources, time::Surroundings};

use super::target::LOCAL;

/// Options of `serializer send`.
#[derive(Debug, Args)]
pub struct Send {
    /// Function URL events, as in `events/`
    #[arg(required = true, value_name = "EVENT")]
    events: Vec<PathBuf>,
    /// Where to, without `/webhooks/…`
    #[arg(long, default_value = LOCAL)]
    to: String,
    /// The sources document with the secrets to sign with; the samples' own by default
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    /// Print a `curl` line for each instead of sending it: for endpoints elsewhere
    #[arg(long)]
    curl: bool,
}

impl Send {
    pub async fn run(self) -> Result<ExitCode> {
        let sources = match &self.sources {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?,
            None => samples::SOURCES.to_owned(),
        };
        let sources = Sources::parse(&sources)?;
        let to = self.to.trim_end_matches('/');
        ensure!(
            self.curl || to.starts_with("http://"),
            "only http:// can be sent to; for a deployed endpoint use --curl"
        );
        let sender = Sender::new(to);
        let mut all_accepted = true;
        for path in &self.events {
            let event = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
            let webhook = samples::webhook(&event, &sources, Surroundings::system().now())
                .with_context(|| format!("{}", path.display()))?;
            if self.curl {
                println!("{}", webhook.curl(to)?);
                continue;
            }
            let answer = sender.post(&webhook).await?;
            println!("{} {} {}", answer.status, webhook.incoming.entity, answer.body);
            all_accepted &= answer.status == 200;
        }
        Ok(if all_accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
