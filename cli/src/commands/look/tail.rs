//! `serializer tail`: events as they happen.

mod logs;
mod rows;

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use console::{Style, style};
use serializer::{
    output, say,
    stack::api::Services,
    view::activity::{Filter, Happening},
};
use webhook_serializer::{
    protocol::entity::{EntityKey, SourceName},
    time::Timestamp,
};

use crate::commands::{
    print_json,
    target::{Deployment, Target},
};
use logs::Logs;
use rows::Rows;

#[derive(Debug, Args)]
#[command(after_help = "\
With --stack it reads the logs of ingest and worker from CloudWatch Logs every 2 s, by FilterLogEvents, for which \
    CloudWatch's price list names no charge. Events appear some seconds late. The logs omit errors of handlers, which \
    may quote a body: `show` prints them. A worker's log line has no topic; the command takes it from ingest's earlier \
    line, so with --topic begin some --minutes ago.\n\n\
With --local it reads the orders' rows twice a second and prints the changes. It misses a change that is undone in \
    between.\n\n\
An event must match all filters. Ctrl-C ends it.\n\n\
Examples:\n  \
serializer tail --stack webhook-serializer --outcome parked\n  \
serializer tail --local --source shopify --topic 'orders/*'")]
pub struct Tail {
    /// Only events with this text in the order's key, delivery id, topic or message
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Only what this source sent
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    source: Option<SourceName>,
    /// Only this order
    #[arg(long, value_name = "ORDER")]
    entity: Option<EntityKey>,
    /// Only this topic; with * at its end, topics that start like this
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only this outcome: accepted, applied, repeat, parked, superseded, void, failed, blocked, ignored, …
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
    /// Start N minutes ago
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1440))]
    minutes: u64,
    /// Stop after N lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

enum Reader {
    Logs(Logs),
    Rows(Rows),
}

impl Reader {
    async fn look(&mut self) -> Result<Vec<Happening>> {
        match self {
            Self::Logs(logs) => logs.look().await,
            Self::Rows(rows) => rows.look().await,
        }
    }

    fn every(&self) -> Duration {
        match self {
            Self::Logs(_) => logs::EVERY,
            Self::Rows(_) => rows::EVERY,
        }
    }
}

impl Tail {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let mut reader = self.reader(&deployment)?;
        let filter = Filter {
            source: self.source.as_ref().map(ToString::to_string),
            entity: self.entity.as_ref().map(ToString::to_string),
            topic: self.topic.clone(),
            outcome: self.outcome.clone(),
            text: self.text.clone(),
        };
        let mut left = self.limit.unwrap_or(u64::MAX);
        loop {
            for one in reader.look().await? {
                if left == 0 {
                    return Ok(ExitCode::SUCCESS);
                }
                if filter.takes(&one) {
                    self.print(&one);
                    left -= 1;
                }
            }
            if left == 0 {
                return Ok(ExitCode::SUCCESS);
            }
            deployment.env.sleep(reader.every()).await;
        }
    }

    fn reader(&self, deployment: &Deployment) -> Result<Reader> {
        let now = deployment.env.now();
        let begin = Timestamp::from_millis(now.as_millis().saturating_sub(self.minutes * 60_000));
        if deployment.is_local() {
            let rows = Rows::of(deployment.operator(), deployment.env.clone(), begin);
            return Ok(Reader::Rows(rows));
        }
        let Some(stack) = &deployment.stack else {
            bail!("events of a deployment in AWS come from its logs; add --stack NAME");
        };
        output::complain(
            style(format_args!("events from the logs of {}, some seconds late; Ctrl-C stops it", stack.name)).dim(),
        );
        let entity = self.entity.as_ref().map(EntityKey::as_str);
        Ok(Reader::Logs(Logs::of(Services::of(&deployment.account), stack, begin, entity)))
    }

    fn print(&self, one: &Happening) {
        if self.json {
            return print_json(&one.as_json());
        }
        let at = one.at.map(|at| at.to_string()).unwrap_or_default();
        // The time of day of 2026-11-21T08:00:00.000Z, to the millisecond.
        let time = at.split_once('T').map_or(at.as_str(), |(_, time)| time);
        let place = one.sequence.map(|sequence| format!(" {sequence}")).unwrap_or_default();
        let order = one.entity.as_deref().or(one.source.as_deref()).unwrap_or_default();
        let topic = one.topic.as_deref().or(one.delivery.as_deref()).unwrap_or_default();
        let line = format!("{order}{place}  {topic}  {}", style(output::one_line(&one.words)).dim());
        say!("{}  {}  {}", style(time).dim(), coloured(&one.what), line.trim_end());
    }
}

fn coloured(what: &str) -> console::StyledObject<String> {
    let style = match what {
        "applied" => Style::new().green(),
        "parked" | "blocked" => Style::new().red().bold(),
        "failed" | "lease lost" | "wake-up not sent" => Style::new().yellow(),
        "accepted" => Style::new().cyan(),
        _ => Style::new(),
    };
    style.apply_to(format!("{what:<10}"))
}
