//! `serializer find`: finds deliveries by a value in their bodies.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::Value;
use serializer::{
    output::{self, Table, counted, duration},
    say,
    view::{body::Searched, delivery::delivery_json, limits::FREE, position::marked},
};
use webhook_serializer::{
    nearest,
    operator::{Operator, ReadCost, StoredDelivery},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
        format::attribute as a,
        table::{Row, TableName},
    },
    providers::is_pointer,
    time::Timestamp,
};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    survey::{Cost, READ_ON, bar, cost_of},
    target::{Deployment, Target},
};

const DELIVERIES: &str = "the deliveries";

#[derive(Debug, Args)]
#[command(
    after_help = "Finds a value with TEXT in it, in any case, or the number TEXT. It reads the whole inbox table: waiting, \
                  settled and parked deliveries, as long as they are kept. Bodies are not printed: `serializer show` shows \
                  one, `serializer export` all of an order.\n\n\
                  Not searched: deliveries that are deferred in the queue, logs, your handlers' tables, backups.\n\n\
                  Exit codes: 0 found, 1 nothing found or not everything read.\n\n\
                  Examples:\n  \
                  serializer find ada@example.com\n  \
                  serializer find ada@example.com --keys | serializer export > ada.jsonl\n  \
                  serializer find 450789469 --field /order_id --source shopify"
)]
pub struct Find {
    /// The text or number to find
    #[arg(value_name = "TEXT")]
    text: String,
    /// Only the value at this place of the body, a JSON pointer such as /customer/email
    #[arg(long, value_name = "POINTER")]
    field: Option<String>,
    /// Only deliveries of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Print the orders' keys alone, each once
    #[arg(long, conflicts_with = "json")]
    keys: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    target: Target,
}

/// The deliveries that were found, without their bodies. A parked delivery may have two rows, but is here once.
type Found = BTreeMap<(EntityKey, Sequence), Match>;

struct Match {
    source: String,
    topic: String,
    received_at: Timestamp,
    json: Value,
}

impl From<&Delivery> for Match {
    fn from(delivery: &Delivery) -> Self {
        Self {
            source: delivery.source().to_string(),
            topic: delivery.topic().to_owned(),
            received_at: delivery.received_at(),
            json: delivery_json(delivery),
        }
    }
}

struct Search<'a> {
    find: &'a Find,
    searched: Searched,
    operator: Operator,
    found: Found,
    /// The number of rows with a delivery that were read.
    rows: u64,
    /// The sources of all deliveries.
    sources: BTreeSet<String>,
    is_complete: bool,
}

impl Find {
    pub async fn run(self) -> Result<ExitCode> {
        let field = self.field.as_deref();
        ensure!(!self.text.is_empty(), "there is no text to find: give some, such as an e-mail address");
        ensure!(
            field.is_none_or(is_pointer),
            "--field {} is not a JSON pointer: write it with slashes, such as /customer/email",
            field.unwrap_or_default()
        );
        let deployment = self.target.connect().await?;
        let searched = Searched::new(&self.text, field);
        let operator = deployment.operator();
        let mut search = Search {
            find: &self,
            searched,
            operator,
            found: Found::new(),
            rows: 0,
            sources: BTreeSet::new(),
            is_complete: true,
        };
        search.read().await?;
        self.print(&search, &deployment);
        Ok(if search.is_complete && !search.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(&self, search: &Search<'_>, deployment: &Deployment) {
        let found = &search.found;
        if self.json {
            found.values().for_each(|found| print_json(&found.json));
        } else if self.keys {
            let mut keys: Vec<&EntityKey> = found.keys().map(|(entity, _)| entity).collect();
            keys.dedup();
            keys.iter().for_each(|key| say!("{key}"));
        } else {
            let now = deployment.env.now();
            let mut table = Table::new(&["order", ">delivery", "source", "topic", ">ago"]);
            for ((entity, sequence), Match { source, topic, received_at, .. }) in found {
                let ago = duration(now.since(*received_at));
                table.row([entity.to_string(), marked(*sequence), source.clone(), topic.clone(), ago]);
            }
            if !table.is_empty() {
                output::print(table);
                say!();
            }
            let rows = counted(search.rows, "row", "rows");
            say!("{} in {rows}", counted(found.len() as u64, "match", "matches"));
        }
        if !search.is_complete {
            output::complain("the command read only a part of the deliveries, so the output is incomplete");
        } else if let Some(source) = self.source.as_deref().filter(|source| !search.sources.contains(*source)) {
            let known = || search.sources.iter().map(String::as_str);
            let stored =
                if search.sources.is_empty() { "none".to_owned() } else { known().collect::<Vec<_>>().join(", ") };
            let hint = nearest::hint(source, known());
            output::complain(format_args!(
                "no delivery of a source `{source}` is stored{hint}; sources with deliveries: {stored}"
            ));
        }
    }
}

impl Search<'_> {
    async fn read(&mut self) -> Result<()> {
        let interrupt = Interrupt::listen();
        let operator = self.operator.clone();
        let mut pass = operator.pass(TableName::Inbox);
        let bar = bar(pass.read().of.into(), DELIVERIES);
        let mut agreed = self.find.cost.yes;
        loop {
            let needs_consent = !agreed && pass.read().units() + ReadCost::PAGE_UNITS > FREE;
            if needs_consent {
                let said = cost_of(DELIVERIES, pass.read(), None);
                agreed = bar.suspend(|| interrupt.ask(&said, READ_ON))?;
            }
            if interrupt.came() || needs_consent && !agreed {
                self.is_complete = false;
                break;
            }
            let Some(rows) = pass.page().await? else { break };
            for row in &rows {
                self.row(row).await?;
            }
            bar.set_position(pass.read().parts.into());
            bar.set_message(format!("{} rows, {} read units", pass.read().rows, pass.read().units()));
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn row(&mut self, row: &Row) -> Result<()> {
        if let Some(source) = row.text(a::SOURCE).filter(|source| !self.sources.contains(*source)) {
            self.sources.insert(source.to_owned());
        }
        if self.find.source.as_deref().is_some_and(|source| row.text(a::SOURCE) != Some(source)) {
            return Ok(());
        }
        let Some(StoredDelivery { delivery, .. }) = self.operator.stored_in(row).await? else { return Ok(()) };
        self.rows += 1;
        if self.searched.is_in(delivery.body()) {
            self.found.insert((delivery.entity().clone(), delivery.sequence()), Match::from(&delivery));
        }
        Ok(())
    }
}
