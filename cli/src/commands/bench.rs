//! `serializer bench`.

use std::{num::NonZeroUsize, process::ExitCode};

use anyhow::{Result, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serializer::{
    bench::{Measured, SCENARIOS, Scenario, isolation, lease, run},
    local::{DEFAULT_WORKERS, SLOTS},
    output::{self, Table},
    say,
};

/// Options of `serializer bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Only this one; all but `isolation`, which takes minutes, by default
    #[arg(long, value_name = "NAME", value_parser = names())]
    scenario: Vec<String>,
    /// So many deliveries instead of the scenario's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    deliveries: Option<u32>,
    /// Of `isolation`, only this case; all by default
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(isolation::CASES.map(|case| case.name)))]
    case: Vec<String>,
    /// Of `isolation`: how many workers
    #[arg(long, value_name = "N", default_value_t = DEFAULT_WORKERS)]
    workers: NonZeroUsize,
    /// Of `isolation`: how many batches each has at work at most; in Lambda 1
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::new(SLOTS).expect("it is not 0"))]
    slots: NonZeroUsize,
    /// Of `isolation`: so many orders that make trouble instead of the case's own number
    #[arg(long, value_name = "N")]
    orders: Option<NonZeroUsize>,
    /// Of `isolation`: for how long the others come, ten a second
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// The one scenario that has no deliveries.
const LEASE: &str = "lease";

/// The one that runs only when it is named.
const ISOLATION: &str = "isolation";

fn names() -> clap::builder::PossibleValuesParser {
    let names = SCENARIOS.map(|scenario| scenario.name);
    clap::builder::PossibleValuesParser::new(names.into_iter().chain([LEASE, ISOLATION]))
}

fn bar(of: usize, name: &'static str, what: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(of as u64).with_prefix(name);
    bar.set_style(
        ProgressStyle::with_template(&format!("{{prefix:8}} {{bar:40}} {{pos}}/{{len}} {what}"))
            .map_err(|error| anyhow!(error))?,
    );
    Ok(bar)
}

impl Bench {
    pub async fn run(self) -> Result<ExitCode> {
        let chosen = |name: &str| self.scenario.is_empty() || self.scenario.iter().any(|one| one == name);
        let mut all = Vec::new();
        for mut scenario in SCENARIOS.into_iter().filter(|scenario: &Scenario| chosen(scenario.name)) {
            if let Some(deliveries) = self.deliveries {
                scenario.deliveries = deliveries as usize;
                scenario.entities = scenario.entities.min(scenario.deliveries);
            }
            let bar = bar(scenario.deliveries, scenario.name, "applied")?;
            let measured = run(scenario, |applied| bar.set_position(applied as u64)).await?;
            bar.finish_and_clear();
            if self.json {
                say!("{}", serde_json::to_string(&measured)?);
            } else if !console::user_attended() {
                output::complain(format_args!("{} done", scenario.name));
            }
            all.push(measured);
        }
        if !self.json && !all.is_empty() {
            print_tables(&all);
        }
        let mut clean = all.iter().all(Measured::is_clean);
        if chosen(LEASE) {
            if !self.json && !all.is_empty() {
                say!();
            }
            clean &= self.leases().await?;
        }
        if self.scenario.iter().any(|one| one == ISOLATION) {
            clean &= self.isolation().await?;
        }
        Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Bench {
    async fn isolation(&self) -> Result<bool> {
        let chosen = |name: &str| self.case.is_empty() || self.case.iter().any(|one| one == name);
        let orders = self.orders.map(NonZeroUsize::get);
        let size = isolation::Size { workers: self.workers, slots: self.slots, orders, seconds: self.seconds };
        let mut table = Table::new(&[
            "others wait while",
            ">orders",
            ">workers",
            ">slots",
            ">others",
            ">wait p50 ms",
            ">p95",
            ">longest",
            ">not started",
            ">starts of the troubled",
            ">applied",
            ">sends",
            "verdict",
        ]);
        let mut all_isolated = true;
        for case in isolation::CASES.into_iter().filter(|case| chosen(case.name)) {
            let bar = bar(self.seconds as usize * 10, case.name, "started")?;
            let one = isolation::run(case, size, |started| bar.set_position(started as u64)).await?;
            bar.finish_and_clear();
            all_isolated &= one.is_isolated();
            if self.json {
                say!("{}", serde_json::to_string(&one)?);
                continue;
            } else if !console::user_attended() {
                output::complain(format_args!("{} done", case.name));
            }
            table.row([
                case.name.to_owned(),
                one.orders.to_string(),
                one.workers.to_string(),
                one.slots.to_string(),
                one.others.to_string(),
                format!("{:.0}", one.wait_ms_p50),
                format!("{:.0}", one.wait_ms_p95),
                format!("{:.0}", one.wait_ms_longest),
                one.unstarted.to_string(),
                one.troubled_starts.to_string(),
                one.troubled_applied.to_string(),
                one.queue_sends.to_string(),
                if one.is_isolated() { "isolated" } else { "held up" }.to_owned(),
            ]);
        }
        if !self.json {
            output::print(table);
        }
        Ok(all_isolated)
    }

    async fn leases(&self) -> Result<bool> {
        let bar = bar(lease::MEASUREMENTS, LEASE, "measured")?;
        let all = lease::run(|done| bar.set_position(done as u64)).await?;
        bar.finish_and_clear();
        let mut table = Table::new(&[
            "leases",
            ">callers",
            ">keys",
            ">wall ms",
            ">ideal ms",
            ">hand-over p50",
            ">p95",
            ">writes each",
            ">reads each",
            "verdict",
        ]);
        let maybe = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.1}"));
        for one in &all {
            if self.json {
                say!("{}", serde_json::to_string(one)?);
                continue;
            }
            let verdict = match one.is_clean() {
                true => "one at a time".to_owned(),
                false => format!("{} overlap, {} stale tokens", one.overlaps, one.stale_tokens),
            };
            table.row([
                one.way.to_owned(),
                one.callers.to_string(),
                one.keys.to_string(),
                format!("{:.1}", one.wall_ms),
                format!("{:.1}", one.ideal_ms),
                maybe(one.handoff_ms_p50),
                maybe(one.handoff_ms_p95),
                format!("{:.2}", one.writes),
                format!("{:.2}", one.reads),
                verdict,
            ]);
        }
        if !self.json {
            output::print(table);
        }
        Ok(all.iter().all(lease::MeasuredLeases::is_clean))
    }
}

fn print_tables(all: &[Measured]) {
    let ms = |value: f64| format!("{value:.1}");
    let maybe = |value: Option<f64>| value.map(ms).unwrap_or_else(|| "–".into());
    let fine = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.2}"));
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
    let mut counts = Table::new(&[
        "per delivery",
        ">B",
        ">write units",
        ">read units",
        ">requests",
        ">sends",
        ">hides",
        ">failed conditions",
        "verdict",
    ]);
    for one in all {
        times.row([
            one.scenario.into(),
            one.deliveries.to_string(),
            one.entities.to_string(),
            one.workers.to_string(),
            ms(one.wall_ms),
            ms(one.ideal_ms),
            ms(one.control_ms),
            // Jobs of no time leave the control nothing to be compared with.
            fine((one.ideal_ms > 0.0).then(|| one.wall_ms / one.control_ms)),
            maybe(one.handoff_ms_p50),
            maybe(one.handoff_ms_p95),
            fine(one.cpu_ms),
            fine(one.emulator_cpu_ms),
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
            format!("{:.3}", one.requests),
            format!("{:.3}", one.queue_sends),
            format!("{:.3}", one.queue_hides),
            format!("{:.3}", one.failed_conditions),
            verdict,
        ]);
    }
    output::print(times);
    if !counts.is_empty() {
        output::print(format_args!("\n{counts}"));
    }
}
