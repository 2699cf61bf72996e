//! Runs real processes under faults: `cargo run -p tests --bin chaos -- --minutes 10`. Each process is this
//! same program, in one of the roles of `tests::chaos::roles`.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use tests::chaos::{ChaosPlan, ReceiverKind, roles, run_plan};

/// Kills and freezes workers, ingests and the store, then audits the results
#[derive(Debug, Parser)]
struct ChaosOptions {
    /// The duration of the run
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The seed of the faults; the machine decides the rest
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds in which only the queue can be reached: new deliveries are answered 202
    #[arg(long)]
    outage: Option<u64>,
    /// Number of orders
    #[arg(long, default_value_t = 12)]
    orders: usize,
    /// Number of workers
    #[arg(long, default_value_t = 6)]
    workers: usize,
    /// Negative control: audits a receiver that ignores tokens
    #[arg(long)]
    ignore_tokens: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    if roles::run_role()? {
        return Ok(ExitCode::SUCCESS);
    }
    let options = ChaosOptions::parse();
    let plan = ChaosPlan {
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..)),
        time: Duration::from_secs_f64(options.minutes * 60.0),
        orders: options.orders,
        workers: options.workers,
        outage: options.outage.map(Duration::from_secs),
        shows_progress: true,
    };
    println!("seed {}", plan.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(run_plan(&std::env::current_exe()?, &plan))?;
    let receiver = if options.ignore_tokens { ReceiverKind::IgnoresTokens } else { ReceiverKind::RemembersTokens };
    println!("{report}");
    let mistakes = report.mistakes(receiver);
    mistakes.iter().for_each(|mistake| println!("wrong: {mistake}"));
    Ok(if mistakes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
