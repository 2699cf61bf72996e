//! `serializer send`: posts freshly signed sample webhooks, and prints the server's answers. Puts sample messages into the
//! queues of a local run.

mod queue;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, builder::PossibleValuesParser};
use serde::Deserialize;
use serde_json::json;
use serializer::{
    document,
    local::{
        samples::{
            self,
            queued::{self, EventMessage},
        },
        sender::{HttpAnswer, Sender},
    },
    output::{self, local_address},
    say,
    view::position::marked,
};
use webhook_serializer::{protocol::entity::Sequence, providers::NAMES, sources::Sources, time::Env};

use crate::commands::print_json;
use queue::{LocalQueues, Queued};

#[derive(Debug, Args)]
pub struct Send {
    /// Function URL events and SQS events, as in `events/` and `events/queues/`; other files are skipped
    #[arg(required_unless_present = "provider", value_name = "FILE")]
    events: Vec<PathBuf>,
    /// Send all samples of this provider, instead of files
    #[arg(long, value_name = "NAME", conflicts_with = "events", value_parser = PossibleValuesParser::new(NAMES))]
    provider: Option<String>,
    /// The URL to post to, without `/webhooks/…`; or set SERIALIZER_LOCAL to it. For SQS events, that of a `serializer local`
    #[arg(long, default_value = local_address(), value_name = "URL")]
    to: String,
    /// The sources document with the secrets to sign with, and the queues; by default the samples' own, without queues
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    /// Print a `curl` line for each instead of sending it
    #[arg(long)]
    curl: bool,
    /// Print one JSON object for each webhook sent
    #[arg(long, conflicts_with = "curl")]
    json: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(in crate::commands) struct AcceptedAnswer {
    pub(in crate::commands) accepted: Option<u64>,
    pub(in crate::commands) entity: Option<String>,
    pub(in crate::commands) ignored: Option<String>,
    /// The place whose value the source's filter does not take.
    pub(in crate::commands) filter: Option<String>,
    pub(in crate::commands) error: Option<String>,
}

impl AcceptedAnswer {
    pub(in crate::commands) fn of(body: &str) -> Self {
        serde_json::from_str(body).unwrap_or_default()
    }
}

impl Send {
    pub async fn run(self) -> Result<ExitCode> {
        let sources = match &self.sources {
            Some(path) => document::read_text(path)?,
            None => samples::SOURCES.to_owned(),
        };
        let sources = Sources::parse(&sources)?;
        let to = self.to.trim_end_matches('/');
        let is_url = to.starts_with("http://") || to.starts_with("https://");
        ensure!(is_url, "{to} is not a URL; it must start with http:// or https://");
        let sender = Sender::new(to);
        let mut sent = 0;
        let mut all_accepted = true;
        let mut not_verified = false;
        for (path, event) in self.events(&sources)? {
            let path = path.as_path();
            if let Some(messages) = queued::messages(&event) {
                let messages = messages?;
                if let Some(queue) = queue::unknown(&messages, &sources) {
                    output::complain(format_args!(
                        "{}: skipped; {}; name the document that has it with --sources FILE",
                        path.display(),
                        sources.no_such_queue(queue)
                    ));
                    continue;
                }
                sent += 1;
                all_accepted &= self.send_messages(path, &messages, &sources, to).await?;
                continue;
            }
            if !samples::is_webhook(&event) {
                output::complain(format_args!(
                    "{}: skipped; it is not an event that posts to /webhooks/{{source}}, and no SQS event",
                    path.display()
                ));
                continue;
            }
            sent += 1;
            let signed = samples::webhook(&event, &sources, Env::system().now());
            let webhook = match signed {
                Ok(webhook) => webhook,
                // One failure does not stop the others from being sent.
                Err(error) => {
                    output::complain(format_args!("{}: {error:#}", path.display()));
                    all_accepted = false;
                    continue;
                }
            };
            if self.curl {
                output::print_raw(format!("{}\n", webhook.curl(to)?).as_bytes());
                continue;
            }
            let answer = sender.post(&webhook).await.with_context(|| {
                format!(
                    "{} could not be posted: start `{} local`, or give another URL with --to",
                    path.display(),
                    output::this_command()
                )
            })?;
            all_accepted &= answer.status == 200;
            not_verified |= answer.status == 401;
            self.print(path, &answer);
        }
        if not_verified {
            output::complain(self.other_secrets());
        }
        ensure!(sent > 0, "nothing was sent: none of these files is an event for these sources; events/ has samples");
        Ok(if all_accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Puts the messages of an SQS event into the queues of a local run. Returns whether all are there.
    async fn send_messages(&self, path: &Path, messages: &[EventMessage], sources: &Sources, to: &str) -> Result<bool> {
        ensure!(!self.curl, "{} is an SQS event, and --curl prints webhooks only; leave out --curl", path.display());
        let queues = LocalQueues::connect(to).await?;
        for message in messages {
            match queues.send(message, sources).await {
                Ok(Queued { entity, message_id }) if self.json => {
                    print_json(&json!({ "file": path, "entity": entity, "message": message_id }));
                }
                Ok(Queued { entity, message_id }) => say!("{entity} is message {message_id} of its queue"),
                // The messages behind it must not overtake it.
                Err(error) => {
                    output::complain(format_args!("{}: {error:#}", path.display()));
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn events(&self, sources: &Sources) -> Result<Vec<(PathBuf, String)>> {
        let Some(provider) = self.provider.as_deref() else {
            let read = |path: &PathBuf| {
                let event = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
                Ok((path.clone(), event))
            };
            return self.events.iter().map(read).collect();
        };
        let samples = samples::of_provider(provider);
        let Some(file) = &self.sources else {
            ensure!(
                !samples.is_empty(),
                "{provider} sends to a queue: name a document that has one with --sources FILE"
            );
            return Ok(samples.into_iter().map(|(name, event)| (name.into(), event.to_owned())).collect());
        };
        let Some(source) = samples::source_of(provider, sources) else {
            let of_provider = sources.iter().filter(|source| source.provider_name == provider);
            let queue = of_provider.filter_map(|source| source.queue.as_ref()).next();
            let queue =
                queue.with_context(|| format!("{} has no source with the provider {provider}", file.display()))?;
            let messages = queued::readdressed(provider, queue)?;
            return Ok(messages.into_iter().map(|(name, event)| (name.into(), event)).collect());
        };
        let to_it = |(name, event): (&str, &str)| Ok((name.into(), samples::readdressed(event, source.name.as_str())?));
        samples.into_iter().map(to_it).collect()
    }

    fn other_secrets(&self) -> String {
        let signed = match &self.sources {
            Some(path) => format!("the secrets in {}", path.display()),
            None => "the samples' own secrets".to_owned(),
        };
        format!("The server refused a signature made with {signed}; name the server's document with --sources FILE.")
    }

    fn print(&self, path: &Path, answer: &HttpAnswer) {
        let said: AcceptedAnswer = AcceptedAnswer::of(&answer.body);
        if self.json {
            return print_json(&json!({
                "file": path, "status": answer.status, "entity": said.entity, "accepted": said.accepted,
                "ignored": said.ignored, "filter": said.filter, "error": said.error,
            }));
        }
        say!("{}", line(answer.status, &said, &answer.body));
    }
}

pub(in crate::commands) fn line(status: u16, said: &AcceptedAnswer, body: &str) -> String {
    match said {
        AcceptedAnswer { accepted: Some(sequence), entity: Some(order), .. } => {
            format!("{status} {order} accepted as {}", marked(Sequence(*sequence)))
        }
        AcceptedAnswer { accepted: Some(sequence), .. } => {
            format!("{status} accepted as {}; the server's answer names no order", marked(Sequence(*sequence)))
        }
        AcceptedAnswer { ignored: Some(_), filter: Some(place), .. } => {
            format!("{status} ignored: the source does not take the value at `{place}`, see its `filter`")
        }
        AcceptedAnswer { ignored: Some(topic), .. } => {
            format!("{status} ignored: the source does not take `{topic}`, see its `topics`")
        }
        AcceptedAnswer { entity: Some(order), .. } if status == 202 => {
            format!("{status} {order} deferred: it waits in the queue until the tables can be reached")
        }
        AcceptedAnswer { error: Some(error), .. } => format!("{status} {error}"),
        _ if status == 200 && body == "{}" => format!("{status} a ping: the server stores nothing"),
        _ => format!("{status} {body}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_describes_each_server_answer() {
        let said = |status, body: &str| line(status, &serde_json::from_str(body).unwrap_or_default(), body);
        assert_eq!(said(200, r#"{"accepted":3,"entity":"a/b"}"#), "200 a/b accepted as #3");
        assert_eq!(
            said(202, r#"{"deferred":true,"entity":"a/b"}"#),
            "202 a/b deferred: it waits in the queue until the tables can be reached"
        );
        assert_eq!(said(200, r#"{"accepted":3}"#), "200 accepted as #3; the server's answer names no order");
        let ignored = "200 ignored: the source does not take `customers/update`, see its `topics`";
        assert_eq!(said(200, r#"{"ignored":"customers/update"}"#), ignored);
        let filtered = "200 ignored: the source does not take the value at `/test`, see its `filter`";
        assert_eq!(said(200, r#"{"ignored":"orders/create","filter":"/test"}"#), filtered);
        assert_eq!(said(401, r#"{"error":"the signature is wrong"}"#), "401 the signature is wrong");
        assert_eq!(said(502, "Bad Gateway"), "502 Bad Gateway");
    }
}
