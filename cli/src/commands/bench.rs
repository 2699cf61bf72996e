//! `serializer bench`.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serializer::{
    bench::{Measured, SCENARIOS, Scenario, run},
    output::Table,
};

/// Options of `serializer bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Only this one; all by default
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SCENARIOS.map(|scenario| scenario.name)))]
    scenario: Vec<String>,
    /// So many deliveries instead of the scenario's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    deliveries: Option<u32>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub async fn run(self) -> Result<ExitCode> {
        let chosen =
            |scenario: &Scenario| self.scenario.is_empty() || self.scenario.iter().any(|name| name == scenario.name);
        let mut all = Vec::new();
        for mut scenario in SCENARIOS.into_iter().filter(chosen) {
            if let Some(deliveries) = self.deliveries {
                scenario.deliveries = deliveries as usize;
                scenario.entities = scenario.entities.min(scenario.deliveries);
            }
            let bar = ProgressBar::new(scenario.deliveries as u64).with_prefix(scenario.name);
            bar.set_style(
                ProgressStyle::with_template("{prefix:8} {bar:40} {pos}/{len} applied")
                    .map_err(|error| anyhow!(error))?,
            );
            let measured = run(scenario, |applied| bar.set_position(applied as u64)).await?;
            bar.finish_and_clear();
            if self.json {
                println!("{}", serde_json::to_string(&measured)?);
            } else if !console::user_attended() {
                eprintln!("{} done", scenario.name);
            }
            all.push(measured);
        }
        if !self.json {
            print_tables(&all);
        }
        let clean = all.iter().all(Measured::is_clean);
        Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn print_tables(all: &[Measured]) {
    let ms = |value: f64| format!("{value:.1}");
    let maybe = |value: Option<f64>| value.map(ms).unwrap_or_else(|| "–".into());
    let cpu = |time: Option<f64>| time.map_or_else(|| "–".into(), |time| format!("{time:.2}"));
    let mut times = Table::new(&[
        "scenario",
        ">deliveries",
        ">orders",
        ">workers",
        ">wall ms",
        ">ideal ms",
        ">control ms",
        ">wall/control",
        ">hand-over p50",
        ">p95",
        ">cpu ms each",
        ">emulator's",
    ]);
    let mut counts =
        Table::new(&["per delivery", ">B", ">write units", ">read units", ">sends", ">failed conditions", "verdict"]);
    for one in all {
        times.row([
            one.scenario.into(),
            one.deliveries.to_string(),
            one.entities.to_string(),
            one.workers.to_string(),
            ms(one.wall_ms),
            ms(one.ideal_ms),
            ms(one.control_ms),
            format!("{:.2}", one.wall_ms / one.control_ms),
            maybe(one.handoff_ms_p50),
            maybe(one.handoff_ms_p95),
            cpu(one.cpu_ms),
            cpu(one.emulator_cpu_ms),
        ]);
        if one.workers == 0 {
            continue;
        }
        let verdict = if one.is_clean() {
            "in order".to_owned()
        } else {
            format!("{} ahead, {} overlap, {} lost, {} repeated", one.ran_ahead, one.overlaps, one.lost, one.repeated)
        };
        counts.row([
            one.scenario.into(),
            one.body_units.to_string(),
            format!("{:.3}", one.write_units),
            format!("{:.3}", one.read_units),
            format!("{:.3}", one.queue_sends),
            format!("{:.3}", one.failed_conditions),
            verdict,
        ]);
    }
    print!("{times}");
    if !counts.is_empty() {
        print!("\n{counts}");
    }
}
