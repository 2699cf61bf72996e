//! Real processes under faults, for as long as one likes:
//! `cargo run -p tests --bin chaos -- --minutes 10`. The processes are this same
//! program, in the roles of `tests::chaos::roles`.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use tests::chaos::{FAILING, Loss, Plan, Receiver, TEST, UNWELL, WorkerKind, roles, run};

/// Kills and freezes workers, ingests and store until the time is over, then
/// audits what was done.
#[derive(Debug, Parser)]
struct Options {
    /// For how long.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// What decides the faults; the machine decides the rest.
    #[arg(long)]
    seed: Option<u64>,
    /// For how many seconds the store cannot be reached, and the queue can: what comes
    /// meanwhile is answered 202.
    #[arg(long)]
    outage: Option<u64>,
    /// Loses the tables, and restores a copy of them.
    #[arg(long)]
    loses_tables: bool,
    /// Loses the tables, and uses a copy of them as it is: a negative control.
    #[arg(long)]
    unrestored: bool,
    /// For how many seconds what the handlers of one source need is out of reach, while
    /// those of another fail: the negative control, whose mistakes are told apart.
    #[arg(long)]
    unwell: Option<u64>,
    /// How many orders.
    #[arg(long, default_value_t = 12)]
    orders: usize,
    /// How many workers.
    #[arg(long, default_value_t = 6)]
    workers: usize,
    /// Audits a receiver that ignores tokens: the negative control.
    #[arg(long)]
    ignore_tokens: bool,
    /// Has workers that ignore their token: the other negative control.
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
