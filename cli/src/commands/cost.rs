//! `serializer cost`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::{
    cost::{ASSUMPTIONS, Load},
    output::{self, Table},
    say,
};

/// Options of `serializer cost`.
#[derive(Debug, Args)]
pub struct Cost {
    /// Deliveries a day
    #[arg(long, value_name = "N", value_parser = positive)]
    per_day: f64,
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
        let load = Load {
            per_day: self.per_day,
            burst: self.burst.max(1.0),
            up_to: self.up_to,
            body_kb: self.body_kb,
            handler_ms: self.handler_ms,
            http_api: self.http_api,
            sources: self.sources,
        };
        let bills = load.bills();
        if self.json {
            for bill in &bills {
                say!("{}", serde_json::to_string(bill)?);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let [ours, ..] = &bills;
        let mut items = Table::new(&["a month", ">count", "", ">dollars"]);
        for item in &ours.items {
            items.row([item.item.into(), count(item.count), item.unit.into(), dollars(item.dollars)]);
        }
        output::print(items);
        let month = self.per_day * ASSUMPTIONS.days;
        let named = ["metrics", "alarms", "queue, idle receives"];
        let mut designs = Table::new(&[
            "dollars a month",
            ">in all",
            ">metrics",
            ">alarms",
            ">idle queue",
            ">scheduler",
            ">deliveries",
            ">a million more",
        ]);
        for bill in &bills {
            let fixed = named.map(|name| bill.dollars_for(name));
            let scheduler = bill.fixed - fixed.iter().sum::<f64>();
            let deliveries = bill.dollars - bill.fixed;
            let all = [bill.dollars].into_iter().chain(fixed).chain([scheduler, deliveries, deliveries / month * 1e6]);
            // What is left over of sums of fractions is no cost.
            let shown = all.map(|amount| dollars(if amount.abs() < 0.005 { 0.0 } else { amount }));
            designs.row(std::iter::once(bill.design.to_owned()).chain(shown));
        }
        say!("\n{}", designs.to_string().trim_end());
        say!(
            "Alarms, idle queue and scheduler are due whether anything arrives or not, metrics for each hour that has any: here all.\n"
        );
        say!(
            "us-east-1, arm64, on demand, no free tier. Assumed: bodies shrink to {:.0} %, functions have {:.0} MB, rows are kept {} days, no handler's own tables.",
            ASSUMPTIONS.compression * 100.0,
            ASSUMPTIONS.memory_gb * 1024.0,
            ASSUMPTIONS.retention_days
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
