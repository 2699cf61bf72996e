//! `serializer source test`: signs a sample webhook with a source's secret, and sends or verifies it.

use std::{cmp::Reverse, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use console::style;
use serde_json::json;
use serializer::{
    document::DocumentPlace,
    local::{
        samples::{self, SignedWebhook},
        sender::Sender,
    },
    output::{local_address, this_command},
    say,
};
use webhook_serializer::{
    protocol::entity::SourceName,
    providers::{self, Headers, Verified},
    sources::{Intake, SPACING, Source, Sources},
    time::Env,
};

use super::{
    ask, demand_door, print_json,
    whereabouts::{DocumentLocation, sources, unknown},
};
use crate::commands::tryout::send;

#[derive(Debug, Args)]
#[command(
    after_help = "The sample is handled like any other webhook, under the sample's order. --dry-run sends nothing."
)]
pub(super) struct Test {
    /// The source's name
    #[arg(value_name = "NAME", value_parser = SourceName::parse)]
    name: SourceName,
    /// Send nothing: verify the sample here, as the function `ingest` does with this document
    #[arg(long)]
    dry_run: bool,
    /// The URL to post to, without `/webhooks/…`; by default the local run's, or WEBHOOK_URL
    #[arg(long, value_name = "URL", conflicts_with = "dry_run")]
    to: Option<String>,
    /// Your own sample, a Function URL event as in events/, instead of one of the provider's
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// Do not ask, even before sending to a stack
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whereabouts: DocumentLocation,
}

/// The pause before a refused webhook is sent again. Ingest refuses the webhook until ingest has read the changed
/// document.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
const LOOKS: u32 = 2 * (SPACING.as_secs() as u32 + 1);

impl Test {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let place = self.whereabouts.place().await?;
        let (_, sources) = sources(&place).await?;
        let name = self.name.as_str();
        let source = sources.get(name).ok_or_else(|| unknown(&place, &sources, name))?;
        if let Intake::Queue(_) = source.intake() {
            bail!(
                "`{name}` gets its deliveries from a queue, and no webhooks. Write a message into an SQS event's file: \
                 `{0} check DOCUMENT --event FILE` says what the source does with it, `{0} send FILE` sends it to a \
                 local run",
                this_command()
            );
        }
        demand_door(source)?;
        if let Some(field) = source.missing_field() {
            bail!(
                "`{name}` has no `{field}` yet: its deliveries are answered 503. Add it with `{} source rotate {name}`",
                this_command()
            );
        }
        let (sample, webhook) = self.webhook(source, &sources)?;
        if self.dry_run {
            self.judge(&place, source, &sample, &webhook)
        } else {
            self.send(source, &sample, &webhook).await
        }
    }

    fn webhook(&self, source: &Source, sources: &Sources) -> Result<(String, SignedWebhook)> {
        let own = match &self.sample {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
                Some((path.display().to_string(), text))
            }
            None => None,
        };
        let signed = |sample: &str, event: &str| -> Result<SignedWebhook> {
            let event = samples::readdressed(event, source.name.as_str())
                .with_context(|| format!("{sample} is not an event of a Function URL; events/ has examples"))?;
            samples::webhook(&event, sources, Env::system().now())
        };
        // A sample of a created order is the best choice; samples of ignored topics are useless.
        let rank = |(name, event): &(&str, &str)| {
            let taken = signed(name, event).is_ok_and(|webhook| source.takes(&webhook.incoming.topic));
            let ping = name.ends_with("-ping.json");
            let order = name.contains("order");
            (
                !ping,
                taken,
                ["order-create", "orders-create"].iter().any(|made| name.contains(made)),
                order,
                Reverse((*name).to_owned()),
            )
        };
        let brought = samples::of_provider(&source.provider_name).into_iter().max_by_key(rank);
        let (sample, event) =
            own.or_else(|| brought.map(|(name, event)| (name.to_owned(), event.to_owned()))).with_context(|| {
                format!("there is no sample of {}: give your own with --sample FILE", source.provider_name)
            })?;
        let webhook = signed(&sample, &event)?;
        if source.sign(&Headers::default(), b"{}", Env::system().now()).is_empty() && source.query().is_none() {
            bail!(
                "{0} signs with its private key, so no sample can be signed here: let the sender send a test, or try \
                 samples with `{1} local --development-keys` and `{1} send --provider {0}`",
                source.provider_name,
                this_command()
            );
        }
        Ok((sample, webhook))
    }

    fn judge(&self, place: &DocumentPlace, source: &Source, sample: &str, webhook: &SignedWebhook) -> Result<ExitCode> {
        let headers: Headers = webhook.headers.iter().cloned().collect();
        let headers = headers.with_query(webhook.query.clone().unwrap_or_default());
        let request = providers::Request { headers: &headers, body: &webhook.body };
        let verified = source.verify(request, Env::system().now());
        let incoming = &webhook.incoming;
        let valid = matches!(verified, Ok(Verified::Delivery));
        let taken = source.takes(&incoming.topic) && source.filter.refusing(&incoming.body).is_none();
        if self.json {
            let reason = verified.as_ref().err().map(ToString::to_string);
            print_json(&json!({
                "source": source.name.as_str(), "sample": sample, "sent": false, "valid": valid, "reason": reason,
                "topic": incoming.topic, "entity": incoming.entity, "handler": source.handler, "ignored": !taken,
            }));
        } else {
            match verified {
                Ok(Verified::Delivery) => {
                    say!("{} {place} accepts {sample}, signed with {}", style("valid:").green().bold(), secrets(source))
                }
                Ok(Verified::Ping) => say!("{sample} is a ping: ingest answers it 200 and stores nothing"),
                Err(reason) => say!("{} {reason}", style("not valid:").red().bold()),
            }
            say!("{:<12} {}", "topic", incoming.topic);
            say!("{:<12} {}", "entity", incoming.entity);
            let fate = if taken {
                source.handler.clone()
            } else {
                "none, because the source ignores it: see its `topics` and `filter`".to_owned()
            };
            say!("{:<12} {fate}", "handler");
        }
        Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn send(&self, source: &Source, sample: &str, webhook: &SignedWebhook) -> Result<ExitCode> {
        let to = match &self.to {
            Some(to) => to.clone(),
            None => self.whereabouts.webhooks().await?.unwrap_or_else(|| local_address().to_owned()),
        };
        let to = to.trim_end_matches('/').trim_end_matches("/webhooks").trim_end_matches('/');
        let is_here = to.starts_with("http://127.0.0.1:") || to.starts_with("http://localhost:");
        if !is_here
            && !self.yes
            && !ask(&format!(
                "{to} will handle the sample like any other webhook, for {}. Send it?",
                webhook.incoming.entity
            ))?
        {
            return Ok(ExitCode::FAILURE);
        }
        let sender = Sender::new(to);
        let env = Env::system();
        let mut looks = LOOKS;
        let answer = loop {
            let answer =
                sender.post(webhook).await.context("nothing was sent: start the server, or give its URL with --to")?;
            looks -= 1;
            // The function may have read the document before it changed.
            if looks == 0 || !matches!(answer.status, 401 | 404) {
                break answer;
            }
            env.sleep(BETWEEN_LOOKS).await;
        };
        let said = send::AcceptedAnswer::of(&answer.body);
        let hint = match answer.status {
            200 | 202 => None,
            401 => Some(
                "the server has another secret: wait a minute until it reads the document again, or check which document it uses",
            ),
            404 => Some(
                "the server does not know this source: wait a minute until it reads the document again, or check which document it uses",
            ),
            503 => Some("run the test again; if it fails again, read the server's log"),
            _ => None,
        };
        if self.json {
            print_json(&json!({
                "source": source.name.as_str(), "sample": sample, "sent": true, "to": to, "status": answer.status,
                "accepted": said.accepted, "entity": said.entity, "ignored": said.ignored, "error": said.error, "hint": hint,
            }));
        } else {
            say!("{sample} to {to}/webhooks/{}", source.name);
            say!("{}", send::line(answer.status, &said, &answer.body));
            if let Some(hint) = hint {
                say!("{hint}");
            }
        }
        Ok(if matches!(answer.status, 200 | 202) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn secrets(source: &Source) -> String {
    match source.secrets() {
        1 => "its one secret".to_owned(),
        count => format!("the first of its {count} secrets"),
    }
}
