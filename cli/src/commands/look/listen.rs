//! `serializer listen`: prints orders' events as they happen, or posts accepted deliveries to a URL.

mod logs;
mod orders;
mod post;
mod receiver;
mod rows;

use std::{process::ExitCode, str::FromStr, time::Duration};

use anyhow::{Result, bail, ensure};
use clap::{Args, builder::PossibleValuesParser};
use console::style;
use serializer::{
    output, say,
    stack::api::Services,
    view::{
        activity::{ActivityEvent, ActivityFilter, outcomes},
        position::{Named, marked},
    },
};
use webhook_serializer::{
    protocol::entity::{EntityKey, Sequence, SourceName},
    sources::Pattern,
    time::{Env, Timestamp},
};

use crate::commands::{
    print_json,
    selection::Since,
    setup::source::whereabouts,
    similar,
    target::{Deployment, Target},
};
use logs::Logs;
use receiver::Receiver;
use rows::Rows;

#[derive(Debug, Args)]
#[command(after_help = "\
With --stack it reads the logs of ingest and worker every 2 s, with --local the orders' rows twice a second. The rows \
    keep no times of past failures and blocks, so --since does not show these. Events appear some seconds late. The \
    logs leave out handlers' errors, because these may quote a body: `show` prints them. A worker's log line has no \
    topic; the command takes it from ingest's earlier line. With --topic, begin earlier with --since.\n\n\
With --to, it posts each accepted delivery instead, with the headers of the handler `forward`, signed afresh, and \
    `serializer-listen: true`. It posts an order's deliveries one at a time, by sequence. The webhook-id is that of \
    the delivery, so a receiver that has applied it treats it as a repeat. The fencing token is the order's newest. No \
    handler starts, and nothing in the tables changes.\n\n\
An answer that is not 2xx is shown, and the order continues. While the receiver cannot be reached, it is tried again. \
    A request without an answer is repeated twice. `r` and Enter posts the last delivery again. After --limit \
    deliveries, the exit code is 1 if one of them got no 2xx.\n\n\
A source's `forward` secrets sign its deliveries; others are signed with a secret that is printed at the start, or \
    with that of --secret.\n\n\
It needs rights to read only: cloudformation:DescribeStacks, logs:FilterLogEvents; with --to also dynamodb:GetItem and \
    BatchGetItem on both tables, and for the `forward` secrets ssm:GetParameter or secretsmanager:GetSecretValue; with \
    a key of your own kms:Decrypt.\n\n\
Examples:\n  \
serializer listen --stack webhook-serializer --to http://localhost:3000/webhooks\n  \
serializer listen --stack webhook-serializer --outcome parked\n  \
serializer listen --local --source shopify --topic 'orders/*' --since 2h\n  \
serializer listen --local --order shopify/order/450789469 --since 7011 --limit 1 --to http://localhost:3000")]
pub struct Listen {
    /// Only events with this text in the order's key, delivery id, topic or message
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// Post each accepted delivery to this URL
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// Only deliveries of this source
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    source: Option<SourceName>,
    /// Only this order
    #[arg(long, value_name = "ORDER")]
    order: Option<EntityKey>,
    /// Only these topics: * matches any text, as in the sources document
    #[arg(long, value_name = "TOPIC", value_parser = topic)]
    topic: Option<Pattern>,
    /// Only events with this outcome: accepted, applied, repeat, parked, superseded, void (a tombstone), failed, blocked, …
    #[arg(
        long, value_name = "WORD", conflicts_with_all = ["to", "secret", "timeout", "yes"], hide_possible_values = true,
        value_parser = PossibleValuesParser::new(outcomes())
    )]
    outcome: Option<String>,
    /// Begin in the past, at a duration (2h) or a time (2026-11-22T12:00:00Z). With --order and --to, also at a
    /// delivery: the last digits of its sequence (7011), or the whole sequence
    #[arg(long, value_name = "TIME")]
    since: Option<Begin>,
    /// Stop after N lines, or with --to after N deliveries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Sign with one secret (`whsec_…`), typed at a prompt or read from standard input
    #[arg(long, requires = "to")]
    secret: bool,
    /// Wait at most this long for each answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "to", value_parser = clap::value_parser!(u64).range(1..=900))]
    timeout: u64,
    /// Post to another machine without asking
    #[arg(long, short = 'y', requires = "to")]
    yes: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy)]
enum Begin {
    At(Since),
    Delivery(Named),
}

impl FromStr for Begin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(named) => Ok(Self::Delivery(named)),
            Err(_) => text.parse().map(Self::At).map_err(|error: String| {
                format!("{error}; with --order and --to, a delivery's position, such as 7011, is accepted too")
            }),
        }
    }
}

fn topic(text: &str) -> Result<Pattern, &'static str> {
    let pattern = Pattern::new(text);
    pattern.objection().map_or(Ok(pattern), Err)
}

/// The timeout of reading an order's row.
const PATIENCE: Duration = Duration::from_secs(10);

enum DeliveryReader {
    Logs(Logs),
    Rows(Rows),
}

impl DeliveryReader {
    async fn look(mut self, pause: Duration, env: Env) -> Result<(Self, Vec<ActivityEvent>)> {
        env.sleep(pause).await;
        let events = match &mut self {
            Self::Logs(logs) => logs.look().await?,
            Self::Rows(rows) => rows.look().await?,
        };
        Ok((self, events))
    }

    fn every(&self) -> Duration {
        match self {
            Self::Logs(_) => logs::EVERY,
            Self::Rows(_) => rows::EVERY,
        }
    }

    fn is_behind(&self) -> bool {
        matches!(self, Self::Logs(logs) if logs.is_behind())
    }
}

impl Listen {
    pub async fn run(self) -> Result<ExitCode> {
        let by_delivery = matches!(self.since, Some(Begin::Delivery(_)));
        ensure!(
            !by_delivery || self.to.is_some() && self.order.is_some(),
            "--since with a delivery's position needs --order and --to; for a duration, add the unit: 30m or 2h"
        );
        if let Some(to) = &self.to {
            receiver::permit(to, self.yes)?;
        }
        let deployment = self.target.connect().await?;
        self.check(&deployment).await?;
        let reader = self.reader(&deployment)?;
        match &self.to {
            Some(to) => {
                let receiver = Receiver::new(to, self.secret, Duration::from_secs(self.timeout), &deployment).await?;
                self.post(reader, &receiver, &deployment).await
            }
            None => self.watch(reader, &deployment).await,
        }
    }

    /// Fails if the chosen source is not configured. Only warns if the chosen order is not stored, because its first
    /// delivery may still arrive.
    async fn check(&self, deployment: &Deployment) -> Result<()> {
        if let Some(source) = &self.source
            && let Some(unknown) = whereabouts::unknown_in(deployment, source).await
        {
            bail!(unknown);
        }
        if let Some(order) = &self.order
            // If the row cannot be read, the command listens nevertheless.
            && let Ok(None) = deployment.parts.store.entity(order, PATIENCE).await
        {
            let unknown = similar::unknown(order, deployment).await;
            output::complain(format_args!("{unknown}. listen waits for the order's first event"));
        }
        Ok(())
    }

    async fn watch(&self, mut reader: DeliveryReader, deployment: &Deployment) -> Result<ExitCode> {
        let filter = self.filter();
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let mut pause = Duration::ZERO;
        while left > 0 {
            let events;
            tokio::select! {
                _ = &mut interrupted => break,
                read = reader.look(pause, deployment.env.clone()) => (reader, events) = read?,
            }
            for one in events.iter().filter(|one| filter.takes(one)).take(left.try_into().unwrap_or(usize::MAX)) {
                match self.json {
                    true => print_json(&one.as_json()),
                    false => print(one),
                }
                left -= 1;
            }
            pause = reader.every();
        }
        Ok(ExitCode::SUCCESS)
    }

    fn filter(&self) -> ActivityFilter {
        ActivityFilter {
            source: self.source.as_ref().map(ToString::to_string),
            entity: self.order.as_ref().map(ToString::to_string),
            topic: self.topic.clone(),
            outcome: self.outcome.clone(),
            text: self.text.clone(),
        }
    }

    fn begin(&self, now: Timestamp) -> Timestamp {
        match self.since {
            Some(Begin::At(since)) => since.before(now),
            Some(Begin::Delivery(_)) | None => now,
        }
    }

    fn reader(&self, deployment: &Deployment) -> Result<DeliveryReader> {
        let begin = self.begin(deployment.env.now());
        if deployment.is_local() {
            let rows = Rows::of(deployment.operator(), deployment.env.clone(), begin);
            return Ok(DeliveryReader::Rows(rows));
        }
        let Some(stack) = &deployment.stack else {
            bail!("listen reads a deployment's events from its logs: name the stack with --stack NAME");
        };
        let requests = Duration::from_secs(3600).as_secs() / logs::EVERY.as_secs() * 2;
        let reads = match self.to {
            Some(_) => {
                format!("; a thousand deliveries take some {} read units of DynamoDB, $0.001", post::READS * 1000)
            }
            None => String::new(),
        };
        let cost = format!(
            "in an hour, listen sends {requests} requests to CloudWatch Logs; AWS's price list names no charge for them"
        );
        output::complain(
            style(format_args!("listening to the logs of {}: {cost}{reads}; Ctrl-C stops it", stack.name)).dim(),
        );
        let entity = self.order.as_ref().map(EntityKey::as_str);
        Ok(DeliveryReader::Logs(Logs::of(Services::of(&deployment.account), stack, begin, entity)))
    }
}

fn print(one: &ActivityEvent) {
    let at = one.at.map(|at| at.to_string()).unwrap_or_default();
    // Shows only the time of day, to the millisecond.
    let time = at.split_once('T').map_or(at.as_str(), |(_, time)| time);
    let place = one.sequence.map(|sequence| format!(" {}", marked(Sequence(sequence)))).unwrap_or_default();
    let order = one.entity.as_deref().or(one.source.as_deref()).unwrap_or_default();
    let topic = one.topic.as_deref().or(one.delivery.as_deref()).unwrap_or_default();
    let line = format!("{order}{place}  {topic}  {}", style(output::one_line(&one.words)).dim());
    say!("{}  {:<10}  {}", style(time).dim(), one.what.styled(), line.trim_end());
}
