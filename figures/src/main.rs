//! The command for benchmarks on the embedded engines, a month's bill, and limits of scaling.

mod bench;
mod cpu;
mod distance;
mod leases;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use distance::Distance;
use figures::{bill::Load, flood, scaling};
use serializer::{
    output::{self, Table},
    say,
};

/// Measures the serializer on this machine and estimates what it costs in AWS
#[derive(Debug, Parser)]
#[command(name = "figures", max_term_width = 100)]
enum Command {
    /// Measure on the embedded engines: time against a control, cost per delivery
    Bench(Bench),
    /// Estimate a month's bill, item by item, beside SQS FIFO
    Bill(Load),
    /// Compute what a flood of unsigned requests costs a day
    Flood,
    /// Compute which of AWS's limits a rate meets, and what an hour of ten times the rate does
    Scaling,
}

#[derive(Debug, clap::Args)]
struct Bench {
    /// Run only this scenario; repeat the option for several
    #[arg(long, value_name = "NAME", value_parser = names())]
    scenario: Vec<String>,
    /// Send this many deliveries instead of the scenario's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    deliveries: Option<u32>,
    #[command(flatten)]
    distance: Distance,
}

fn names() -> clap::builder::PossibleValuesParser {
    bench::SCENARIOS.iter().map(|scenario| scenario.name).chain([leases::NAME]).collect::<Vec<_>>().into()
}

#[tokio::main]
async fn main() -> ExitCode {
    let bench = match Command::parse() {
        Command::Bench(bench) => bench,
        Command::Bill(load) => {
            output::print(format_args!("{}\n", load.report()));
            return ExitCode::SUCCESS;
        }
        Command::Flood => {
            output::print(format_args!("{}\n", flood::report()));
            return ExitCode::SUCCESS;
        }
        Command::Scaling => {
            output::print(scaling::report());
            return ExitCode::SUCCESS;
        }
    };
    bench.run().await.unwrap_or_else(|error| {
        output::complain(format_args!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

impl Bench {
    async fn run(self) -> Result<ExitCode> {
        let is_chosen = |name: &str| self.scenario.is_empty() || self.scenario.iter().any(|chosen| chosen == name);
        let mut is_clean = true;
        let mut times = Table::new(&bench::TIMES);
        let mut counts = Table::new(&bench::COUNTS);
        for mut scenario in bench::SCENARIOS.into_iter().filter(|scenario| is_chosen(scenario.name)) {
            if let Some(deliveries) = self.deliveries {
                scenario.deliveries = deliveries;
                scenario.orders = scenario.orders.min(deliveries);
            }
            output::complain(format_args!("Running {} …", scenario.name));
            let measured = bench::run(scenario, self.distance).await?;
            is_clean &= measured.verdict.is_clean();
            times.row(measured.times());
            counts.row(measured.counts());
        }
        if !times.is_empty() {
            output::print(format_args!("{times}\n{counts}\n"));
        }
        if is_chosen(leases::NAME) {
            output::complain(format_args!("Running {} …", leases::NAME));
            let (table, is_exclusive) = leases::run(self.distance).await?;
            say!("{table}");
            is_clean &= is_exclusive;
        }
        Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
