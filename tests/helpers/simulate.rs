//! Runs many seeds of the simulation and prints shortened traces of those that fail.

use std::{
    collections::BTreeMap,
    io::Write,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use clap::Parser;
use tests::{
    rules::MUTATIONS,
    simulation::{SimulationPlan, profile::Profile, run, shrink::shrink},
};
use webhook_serializer::time::{Clock, SystemClock};

/// Simulates seeds; the exit code is 1 if one fails
#[derive(Debug, Parser)]
struct SimulateOptions {
    /// Number of seeds
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Seeds that run in parallel
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Removes a rule, by its number in the protocol's table
    #[arg(long)]
    mutation: Option<usize>,
    /// Injects the faults of this rule's counterexample and keeps the rule
    #[arg(long)]
    focus: Option<usize>,
    /// Runs fifty orders through nine minutes of failing inbox queries
    #[arg(long)]
    query_outage: bool,
    /// Prints the whole trace of the first seed
    #[arg(long)]
    trace: bool,
    /// Stops after this many failures
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Prints traces without shrinking them
    #[arg(long)]
    raw: bool,
}

fn main() -> ExitCode {
    let options = SimulateOptions::parse();
    let rule = |number: usize| MUTATIONS.get(number.wrapping_sub(1)).map(|(rule, _)| *rule);
    let mutation = options.mutation.and_then(rule);
    let focus = options.focus.or(options.mutation).and_then(rule);
    let profile = options.query_outage.then(Profile::query_outage);
    let plan = |seed| SimulationPlan { seed, mutation, focus, profile: profile.clone(), ..SimulationPlan::default() };
    if options.trace {
        println!("{}", run(plan(options.from)).text());
        return ExitCode::SUCCESS;
    }
    let clock = SystemClock::start();
    let next = AtomicU64::new(options.from);
    let end = options.from + options.seeds;
    let failed = Mutex::new(Vec::new());
    let reached: Mutex<BTreeMap<&str, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= end || failed.lock().expect("no panic").len() >= options.failures {
                        return;
                    }
                    let report = run(plan(seed));
                    for (what, times) in &report.reached {
                        *reached.lock().expect("no panic").entry(what).or_default() += u64::from(*times);
                    }
                    if !report.mistakes.is_empty() {
                        eprintln!("\rseed {seed}: {:?}", report.mistakes);
                        failed.lock().expect("no panic").push(report);
                    }
                    let done = seed + 1 - options.from;
                    if done.is_multiple_of(100) {
                        let rate = done as f64 / clock.monotonic().as_secs_f64();
                        let left = (end - seed) as f64 / rate;
                        eprint!("\r{done} of {} seeds, {rate:.0} a second, {left:.0} s left   ", options.seeds);
                        let _ = std::io::stderr().flush();
                    }
                }
            });
        }
    });
    eprintln!("\r{:.1} s{:60}", clock.monotonic().as_secs_f64(), "");
    for (what, times) in reached.into_inner().expect("no panic") {
        println!("{times:>10}  {what}");
    }
    let failed = failed.into_inner().expect("no panic");
    for report in failed.into_iter().take(options.failures) {
        let seed = report.seed;
        let report = if options.raw { report } else { shrink(&plan(seed), report) };
        println!("seed {seed}, {} decisions:\n{}", report.decisions.len(), report.text());
    }
    if next.load(Relaxed) >= end { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
