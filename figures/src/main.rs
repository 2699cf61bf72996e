//! The command for benchmarks on the embedded engines, a month's bill, and limits of scaling.

mod bench;
mod cpu;
mod distance;
mod engines;
mod leases;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use distance::Distance;
use figures::{
    bill::Load,
    flood, scaling,
    sheet::{FiguresReport, Sheet},
};
use serializer::{output, say};

/// Measures the serializer on this machine and estimates what it costs in AWS
#[derive(Debug, Parser)]
#[command(name = "figures", max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: FiguresCommand,
    /// Print one JSON object with the same figures, not rounded
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum FiguresCommand {
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

// One thread, as in a function. With more threads, the figures would include the time for waking them.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let CommandLine { command, json } = CommandLine::parse();
    let measured = match command {
        FiguresCommand::Bench(bench) => bench.run().await,
        FiguresCommand::Bill(load) => Ok((load.report(), true)),
        FiguresCommand::Flood => Ok((flood::report(), true)),
        FiguresCommand::Scaling => Ok((scaling::report(), true)),
    };
    match measured {
        Ok((report, is_clean)) => {
            match json {
                true => say!("{}", report.json),
                false => say!("{}", report.text),
            }
            if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            output::complain(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Bench {
    /// Runs the chosen scenarios. Returns their figures, and whether all deliveries were handled in order and all
    /// leases were exclusive.
    async fn run(self) -> Result<(FiguresReport, bool)> {
        let is_chosen = |name: &str| self.scenario.is_empty() || self.scenario.iter().any(|chosen| chosen == name);
        let mut is_clean = true;
        let mut times = Sheet::new(&bench::TIMES);
        let mut counts = Sheet::new(&bench::COUNTS);
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
        let mut sheets = vec![("times", times), ("per_delivery", counts)];
        if is_chosen(leases::NAME) {
            output::complain(format_args!("Running {} …", leases::NAME));
            let (leases, is_exclusive) = leases::run(self.distance).await?;
            sheets.push(("leases", leases));
            is_clean &= is_exclusive;
        }
        if !self.distance.is_zero() {
            output::complain(format_args!("Measuring the delays …"));
            sheets.push(("delays", self.distance.control().await?));
        }
        sheets.retain(|(_, sheet)| !sheet.is_empty());
        let texts: Vec<String> = sheets.iter().map(|(_, sheet)| sheet.to_string()).collect();
        let json = sheets.iter().map(|(name, sheet)| ((*name).to_owned(), sheet.json())).collect();
        Ok((
            FiguresReport { text: texts.join("\n").trim_end().to_owned(), json: serde_json::Value::Object(json) },
            is_clean,
        ))
    }
}
