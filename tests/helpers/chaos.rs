//! Real processes under faults: `cargo run -p tests --bin chaos -- --minutes 10`. The
//! processes run this same program in the roles of `tests::chaos::roles`.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use tests::chaos::{FAILING, Loss, Plan, Receiver, TEST, UNWELL, WorkerKind, roles, run};

/// Kills and freezes workers, ingests and the store, then audits the results
#[derive(Debug, Parser)]
struct Options {
    /// How long to run
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The seed of the faults; the machine decides the rest
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds in which only the queue can be reached: new deliveries are answered 202
    #[arg(long)]
    outage: Option<u64>,
    /// Loses the tables and restores a copy of them
    #[arg(long)]
    loses_tables: bool,
    /// Negative control: loses the tables and uses a copy without restoring it
    #[arg(long)]
    unrestored: bool,
    /// Negative control: seconds in which one source's destination is down while another's handlers fail
    #[arg(long)]
    unwell: Option<u64>,
    /// Number of orders
    #[arg(long, default_value_t = 12)]
    orders: usize,
    /// Number of workers
    #[arg(long, default_value_t = 6)]
    workers: usize,
    /// Negative control: audits a receiver that ignores tokens
    #[arg(long)]
    ignore_tokens: bool,
    /// Negative control: runs workers that ignore their token
    #[arg(long)]
    careless: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    if roles::play()? {
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse();
    let plan = Plan {
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..)),
        time: Duration::from_secs_f64(options.minutes * 60.0),
        orders: options.orders,
        workers: options.workers,
        kind: if options.careless { WorkerKind::Careless } else { WorkerKind::Own },
        outage: options.outage.map(Duration::from_secs),
        loss: match options.unrestored {
            true => Some(Loss::UsedAsCopied),
            false => options.loses_tables.then_some(Loss::Restored),
        },
        unwell: options.unwell.map(Duration::from_secs),
        tells: true,
    };
    println!("seed {}", plan.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(run(&std::env::current_exe()?, &plan))?;
    let receiver = if options.ignore_tokens { Receiver::IgnoresTokens } else { Receiver::RemembersTokens };
    println!("{report}");
    let mistakes = report.of(&[TEST, UNWELL]).mistakes(receiver);
    mistakes.iter().for_each(|mistake| println!("wrong: {mistake}"));
    let control = report.of(&[FAILING]);
    if options.unwell.is_some() {
        println!("of the control {} were set aside", control.set_aside());
    }
    let others = control.mistakes_beside_set_aside(receiver);
    others.iter().for_each(|mistake| println!("wrong of the control: {mistake}"));
    let is_right = mistakes.is_empty() && others.is_empty() && (control.set_aside() > 0) == options.unwell.is_some();
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
