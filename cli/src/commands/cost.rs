//! `serializer cost`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::{
    cost::{ASSUMPTIONS, INSTANCE_HOUR, Instances, Load, MOST_WORKERS, Room, floods},
    output::{self, Table},
    say,
};

/// Options of `serializer cost`.
#[derive(Debug, Args)]
pub struct Cost {
    /// Deliveries a day
    #[arg(long, value_name = "N", value_parser = positive, required_unless_present = "flood")]
    per_day: Option<f64>,
    /// Deliveries of one order that wait together when a worker takes it up
    #[arg(long, value_name = "K", default_value = "2", value_parser = positive)]
    burst: f64,
    /// At most so many of them in one start of the handler, as a source's `deliver = { up_to = M }` says
    #[arg(long, value_name = "M", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=25))]
    up_to: u64,
    /// Size of a body as sent, in KB
    #[arg(long, value_name = "S", default_value = "4", value_parser = positive)]
    body_kb: f64,
    /// How long a start of the handler takes, in ms
    #[arg(long, value_name = "M", default_value = "50", value_parser = positive)]
    handler_ms: f64,
    /// An HTTP API in front instead of a Function URL
    #[arg(long)]
    http_api: bool,
    /// Configured sources
    #[arg(long, value_name = "N", default_value = "2", value_parser = positive)]
    sources: f64,
    /// Every metric by source and outcome, as the parameter DetailedMetrics says
    #[arg(long)]
    detailed_metrics: bool,
    /// The handler keeps a row of each order, as `orders` does, and commits it with each delivery
    #[arg(long)]
    orders: bool,
    /// The sources stand in Secrets Manager instead of Parameter Store
    #[arg(long)]
    secrets_manager: bool,
    /// The sources are encrypted with a KMS key of your own
    #[arg(long)]
    own_key: bool,
    /// The workers run on so many Lambda Managed Instances, three if no number is given: docs/managed-instances.md
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "3", value_parser = positive)]
    instances: Option<f64>,
    /// What EC2 asks for an hour of one of them, in dollars; unless given, that of an m7g.large
    #[arg(long, value_name = "DOLLARS", requires = "instances", value_parser = positive)]
    instance_hour: Option<f64>,
    /// What a flood of requests that prove nothing costs at each door, instead
    #[arg(long, conflicts_with_all = ["per_day", "orders", "secrets_manager", "own_key", "detailed_metrics", "instances"])]
    flood: bool,
    /// One JSON object a design
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("a number above nothing is needed".into()),
    }
}

impl Cost {
    pub fn run(&self) -> Result<ExitCode> {
        // One of the two is given.
        let Some(per_day) = self.per_day.filter(|_| !self.flood) else { return self.print_floods() };
        let load = Load {
            per_day,
            burst: self.burst.max(1.0),
            up_to: self.up_to,
            body_kb: self.body_kb,
            handler_ms: self.handler_ms,
            http_api: self.http_api,
            sources: self.sources,
            detailed_metrics: self.detailed_metrics,
            keeps_orders: self.orders,
            secrets_manager: self.secrets_manager,
            own_key: self.own_key,
            instances: self
                .instances
                .map(|count| Instances { count, hour: self.instance_hour.unwrap_or(INSTANCE_HOUR) }),
        };
        let bills = load.bills();
        if self.json {
            for bill in &bills {
                say!("{}", serde_json::to_string(bill)?);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let [ours, ..] = &bills;
        let mut items = Table::new(&["a month", ">count", "", ">dollars", ">free"]);
        for item in &ours.items {
            let free = if item.free > 0.0 { dollars(item.free) } else { String::new() };
            items.row([item.item.into(), count(item.count), item.unit.into(), dollars(item.dollars), free]);
        }
        let due = [dollars(ours.dollars), dollars(ours.free)];
        items.row(["in all".into(), String::new(), String::new(), due[0].clone(), due[1].clone()]);
        output::print(items);
        say!(
            "\n{} dollars a month, {} where nothing else in the account uses the free tier; {} of them for observation.\n",
            due[0],
            dollars(ours.dollars - ours.free),
            dollars(ours.observation)
        );
        if let Some(instances) = load.instances {
            say!(
                "On average {:.2} worker runs are under way at once. The instances cost as much as the time of {:.1} that \
                 are under way at every moment.\n",
                load.runs_at_once(),
                instances.runs_for_the_same()
            );
            let runs = instances.runs();
            say!(
                "None of their runs waits for a cold start. With two processors each they have room for {runs:.0} runs at \
                 once{}; more room comes in minutes, where functions come in seconds.",
                match instances.room(&load) {
                    Room::Enough => "",
                    Room::Shared => ", which is enough only as far as orders share runs",
                    Room::TooLittle => ", which is too little for this load, even with ten orders in each run",
                }
            );
            if instances.room(&load) != Room::TooLittle {
                say!(
                    "A thousand orders that come at once after a quiet time, each with a burst of {:.0}, are drained in {:.1} s at best; \
                     by up to {MOST_WORKERS:.0} functions in {:.1} s, and the cold starts of most of them.",
                    load.burst,
                    load.rush(1000.0, runs),
                    load.rush(1000.0, MOST_WORKERS)
                );
            }
            say!();
        }
        let month = per_day * ASSUMPTIONS.days;
        let fixed = if load.instances.is_some() { ">scheduler, secrets, instances" } else { ">scheduler, secrets" };
        let mut designs = Table::new(&[
            "dollars a month, without observation",
            ">in all",
            ">idle queue",
            fixed,
            ">deliveries",
            ">a million more",
        ]);
        for bill in &bills {
            let idle = bill.dollars_for("queue, idle receives");
            let deliveries = bill.bare() - bill.fixed;
            let all = [bill.bare(), idle, bill.fixed - idle, deliveries, deliveries / month * 1e6];
            // What is left over of sums of fractions is no cost.
            let shown = all.map(|amount| dollars(if amount.abs() < 0.005 { 0.0 } else { amount }));
            designs.row(std::iter::once(bill.design.to_owned()).chain(shown));
        }
        say!("{}", designs.to_string().trim_end());
        say!(
            "Idle queue and scheduler are due whether anything arrives or not. Logs, metrics and alarms are left out here: \
             any design needs some. EventBridge's ordered subscribers are not compared: no price of theirs is known here.\n"
        );
        say!(
            "us-east-1, arm64, on demand. Free: what AWS gives every account each month, without end. Assumed: bodies \
             shrink to {:.0} %, functions have {:.0} MB, rows are kept {} days; metrics of trouble in every hour, and a \
             topic for alarms.",
            ASSUMPTIONS.compression * 100.0,
            ASSUMPTIONS.memory_gb * 1024.0,
            ASSUMPTIONS.retention_days
        );
        Ok(ExitCode::SUCCESS)
    }
}

impl Cost {
    fn print_floods(&self) -> Result<ExitCode> {
        const SENT: [u64; 3] = [200, 1_000, 10_000];
        if self.json {
            for flood in floods() {
                say!("{}", serde_json::to_string(&flood)?);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["dollars a day, where a second", ">200", ">1,000", ">10,000 are sent", ">let in"]);
        for flood in floods() {
            let days = SENT.map(|sent| dollars(flood.day(sent)));
            let let_in = format!("{} /s", flood.per_second);
            table.row([flood.door.to_owned()].into_iter().chain(days).chain([let_in]));
        }
        output::print(table);
        say!(
            "\nus-east-1, no free tier. Small requests that no secret fits: ingest runs 3 ms for each that is let in, \
             nothing is stored, and the logs have some lines a minute. An HTTP API counts a request above 512 KB several \
             times; what it answers 429 is counted here, since AWS does not say that it is free. WAF has a rule of 100 \
             requests in five minutes for each address, and they come from a thousand; its own 6 dollars a month are \
             left out."
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn dollars(amount: f64) -> String {
    format!("{amount:.2}")
}

fn count(count: f64) -> String {
    match count {
        ..1000.0 => format!("{count:.1}"),
        ..1e6 => format!("{:.1} k", count / 1e3),
        _ => format!("{:.1} M", count / 1e6),
    }
}
