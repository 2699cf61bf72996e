//! The real ingest, drain, lease and sweep code under every fault that a seed can draw; and proof that the
//! auditor would notice a mistake.
//!
//! A failing seed prints a short trace. To see it again, and to run many more:
//! `cargo run --release -p tests --bin simulate -- --seeds 100000`.

mod breakers;

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use tests::{
    not_run::{is_thorough, not_run},
    rules::{MUTATIONS, ViolatedRule},
    simulation::{SimulationPlan, SimulationReport, outage::FailureMode, profile::Profile, run, shrink::shrink},
};

fn plan(seed: u64, mutation: Option<ViolatedRule>) -> SimulationPlan {
    SimulationPlan { seed, mutation, focus: mutation, ..SimulationPlan::default() }
}

/// Runs seeds on two threads until one fails. Returns the situations reached, and the failing run with the
/// smallest seed.
fn first_failure(
    seeds: u64,
    mutation: Option<ViolatedRule>,
) -> (BTreeMap<&'static str, u64>, Option<SimulationReport>) {
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(seeds);
    let work = || {
        let mut reached = BTreeMap::new();
        let mut failed = None;
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= end.load(Relaxed) {
                return (reached, failed);
            }
            let report = run(plan(seed, mutation));
            for (what, times) in &report.reached {
                *reached.entry(*what).or_default() += u64::from(*times);
            }
            if !report.mistakes.is_empty() {
                end.fetch_min(seed, Relaxed);
                failed = Some(report);
            }
        }
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (what, times) in ended.iter().flat_map(|(reached, _)| reached) {
        *all.entry(what).or_default() += times;
    }
    (all, ended.into_iter().filter_map(|(_, failed)| failed).min_by_key(|report| report.seed))
}

/// Promise: none of it rests on any machine's clock.
#[test]
fn no_seed_finds_a_protocol_violation() {
    let (reached, failed) = first_failure(if is_thorough() { 2000 } else { 100 }, None);
    if let Some(report) = failed {
        let seed = report.seed;
        let report = shrink(&plan(seed, None), report);
        panic!("seed {seed} fails; the shrunk run:\n{}", report.text());
    }
    for wanted in INTERESTING.iter().filter(|_| is_thorough()) {
        assert!(reached.contains_key(wanted), "no seed reached: {wanted}");
    }
}

/// The situations that two thousand seeds must reach.
const INTERESTING: &[&str] = &[
    "a breaker closes",
    "a breaker opens",
    "a breaker puts its wake-up off",
    "a copy is appended",
    "a copy is not appended",
    "a copy's receive count lies",
    "a deleted wake-up comes again",
    "a deferred delivery is ingested",
    "a delivery is deferred",
    "a delivery is parked",
    "a drain yields",
    "a function is killed at its deadline",
    "a group fails",
    "a group is settled",
    "a handler begins nothing",
    "a handler kills its process",
    "a handler starts before the queue has answered",
    "a job kills its process",
    "a delivery is skipped",
    "a late effect is refused",
    "a latest is settled",
    "a parked delivery is redriven",
    "a place is voided",
    "a receipt leaves its row",
    "a repeat is settled",
    "a repeat of another period is settled",
    "a restore finds a job",
    "a restore gives a place up",
    "a restore is killed",
    "a restore knows a repeat",
    "a restore leaves what was applied",
    "a restore puts on hold",
    "a restore sets aside",
    "a restore takes a lease away",
    "a scheduler does not live to its end",
    "a tick fails",
    "a start tries whether its source is well",
    "a subscriber does not take a delivery",
    "a tick is done",
    "an effect lands late",
    "an entity is erased",
    "an entity's row is purged",
    "an exclusive holder commits",
    "an exclusive holder fails",
    "an exclusive lease is granted",
    "an inbox row is purged",
    "an owed wake-up is sent",
    "answered 2xx without a wake-up",
    "blocked",
    "finds its lease lost",
    "force released",
    "ingest answers 503",
    "ingest crashes",
    "put on hold",
    "resumed",
    "something was out for long",
    "taken over",
    "the tables are lost",
    "the sweep keeps rows",
    "the sweep wakes somebody",
    "two operators at once",
    "unblocked",
    "what is run again is ended early",
    "what was applied is run again",
    "what was sent before the loss is sent again",
];

/// Fifty orders begin while inbox queries fail for nine minutes, so a lease's holder cannot start any
/// handler.
#[test]
fn failing_inbox_queries_park_no_delivery() {
    let report = run(SimulationPlan { profile: Some(Profile::query_outage()), ..SimulationPlan::default() });
    assert!(report.mistakes.is_empty(), "{}", report.text());
    assert!(report.reached.contains_key("something was out for long"), "{:?}", report.reached);
}

/// A delivery that is answered 202 while both tables are unavailable reaches its inbox once, whatever happens
/// to queue and workers.
#[test]
fn deferred_deliveries_are_applied_after_hour_of_store_outage() {
    let through = |(seed, how)| {
        let report =
            run(SimulationPlan { seed, profile: Some(Profile::store_outage(how)), ..SimulationPlan::default() });
        assert!(report.mistakes.is_empty(), "seed {seed}, {how:?}:\n{}", report.text());
        let times = |what| report.reached.get(what).copied().unwrap_or(0);
        let deferred = times("a delivery is deferred");
        let ingested = times("a deferred delivery is ingested");
        assert!(deferred >= 30 && ingested >= deferred, "seed {seed}, {how:?}: {deferred}, {ingested}");
    };
    let hows = [FailureMode::Throttled, FailureMode::FailsBefore, FailureMode::Silent, FailureMode::LosesReply];
    let hows = hows.into_iter().take(if is_thorough() { 4 } else { 1 });
    thread::scope(|scope| {
        (0..).zip(hows).for_each(|each| drop(scope.spawn(move || through(each))));
    });
}

/// The machine's load does not change a run.
#[test]
fn same_seed_gives_the_same_trace() {
    for seed in 0..if is_thorough() { 40 } else { 5 } {
        let first = run(plan(seed, None));
        let second = run(plan(seed, None));
        assert_eq!(first.text(), second.text(), "seed {seed}");
        assert_eq!(first.hash, second.hash, "seed {seed}");
    }
}

fn noticed() -> impl Iterator<Item = (ViolatedRule, u64)> {
    MUTATIONS.iter().filter_map(|(rule, known)| Some((*rule, (*known)?)))
}

/// Each omitted rule is noticed: by the seed that is known to show it or, if the code has changed since, by
/// one of a thousand seeds.
#[test]
fn every_mutation_is_found() {
    for (mutation, known) in noticed() {
        let report = run(plan(known, Some(mutation)));
        let report = if report.mistakes.is_empty() { first_failure(1000, Some(mutation)).1 } else { Some(report) };
        let report = report.unwrap_or_else(|| panic!("{mutation:?} goes unnoticed"));
        println!("{mutation:?}: seed {}: {}", report.seed, report.mistakes[0]);
    }
}

/// Runs the same faults with the rule in place.
#[test]
fn seed_exposing_a_mutation_passes_unmutated_code() {
    if !is_thorough() {
        return not_run("simulates for a minute; PROVE=1 asks for it");
    }
    for (mutation, known) in noticed() {
        let report = run(SimulationPlan { seed: known, focus: Some(mutation), ..SimulationPlan::default() });
        assert!(report.mistakes.is_empty(), "{mutation:?}, seed {known}:\n{}", report.text());
    }
}
