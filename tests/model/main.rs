//! The ordering protocol, explored: every interleaving, fault and pause within
//! a configuration's bounds, by [stateright](https://docs.rs/stateright).
//!
//! # What is modelled
//!
//! Every write of a worker, an ingest or a holder is made by the production
//! operation (`Operation::write()`, evaluated by `protocol::memory`) and every
//! reply judged by it (`Operation::judge()`); no condition is written here again. What
//! a worker does next is asked of the production plan (`drain::plan`,
//! `drain::begin`), what an append owes of `append::Appending`, what a waiter for
//! a lease does of `leases::wait`, whether a parked delivery is put back of
//! `operator`; here it is done, one store write, queue send or handler step at a
//! time.
//!
//! One entity; two or three ingest instances; one or two workers; an exclusive
//! holder; an operator. A queue that delivers at least once, in any order and
//! at any time. Crashes between any two steps; replies lost after the write
//! landed; clocks that call a lease, a retry or a request to yield running or
//! over as they like; handlers that fail, are given up and come back late, are
//! frozen; groups of deliveries, and the latest of several; a receiver that remembers the newest token; commits; parking,
//! blocking, redrive, unblock, forced release, holds, skips, rewinds; rows purged and made anew.
//!
//! # What is not
//!
//! Several entities (they share nothing); bodies in parts; pages of more than
//! all there is, and reading ahead (a page read earlier is a paused worker's);
//! suspects that wait for their batch, and ten that vanish in a row; a drain
//! that announces its end and cannot send its wake-up; two formats side by side
//! (`end_to_end/charging.rs`); two messages of one entity in one batch;
//! a write that lands after its author sent it again; the sweep, which the loss
//! property does not count on; a queue that cannot be reached (there the sweep
//! is all there is); an operator who dies between unblocking and the wake-up,
//! before being told that it is done.
//!
//! A copy of a message shows a receive count above one, unless a configuration
//! says otherwise: SQS calls its count approximate. Without it, one crash more
//! than the queue's copy is one too many: an ingest that dies owing a wake-up,
//! or a worker, not both.
//!
//! How long a message stays hidden is not modelled: it may come back, as a copy
//! that shows its count, at any time while a worker is at it. A worker that knows
//! that it may have (rule 26) begins a configuration of its own.
//!
//! # What is left out since it changes nothing
//!
//! Of idle workers the first receives; arrivals that could change places begin
//! in turn. Steps that write nothing are taken at once while no lease can be
//! lost (no take-over and no forced release left in the budget), and so is the
//! deletion of a message while nobody can die or have a copy. A place is given
//! up under an ingest that lives only as often as the budget says.
//!
//! # Running it
//!
//! ```text
//! cargo test -p model                              the smallest configurations, and every counterexample
//! PROVE=1 cargo test --profile fast -p model       all configurations, also without their changes
//! MODEL_ONLY=clocks …                              those whose name has "clocks" in it
//! MODEL_TRACE=gaps cargo test -p model counterexample -- --nocapture
//!                                                          the trace of each control whose name has "gaps" in it
//! MODEL_TABLE=write cargo test -p model table  writes counterexamples.md anew
//! ```
//!
//! The state counts are pinned: one that changes says that the protocol, or the
//! model of it, did. Times on two shared cores, profile `fast`:
//!
//! | large configuration | unique states | seconds |
//! |---|---|---|
//! | crashes, copies and clocks, two deliveries | 1,284,423 | 10 |
//! | lost replies, two deliveries | 67,844 | 1 |
//! | failures and late effects, two deliveries | 107,945 | 0 |
//! | commits, repeats and a dying worker | 7,991,580 | 42 |
//! | an exclusive holder between two workers | 251,495 | 1 |
//! | three deliveries, places given up | 170,521 | 1 |
//! | three deliveries, early clocks | 176,173 | 1 |
//! | slices, outages, crashes and clocks | 945,680 | 4 |
//! | a row that remembers one place, repeats, outages and a dying worker | 583,497 | 2 |
//! | a row that remembers two places, three deliveries and a repeat | 602,719 | 4 |
//! | a row that remembers one place, and late clocks | 616,432 | 4 |
//! | groups that end at a place given up, and late effects | 480,554 | 3 |
//! | groups, crashes, failures and clocks | 440,022 | 2 |
//! | groups of three, repeats and a dying worker | 77,296 | 0 |
//! | the latest of three, failures and clocks | 60,596 | 0 |
//! | two lost leases | 10,038 | 0 |

mod audit;
mod configurations;
mod counterexamples;
mod drain;
mod ingest;
#[path = "../src/not_run.rs"]
mod not_run;
mod operations;
mod people;
mod protocol;
mod reached;
mod rewinds;
mod state;
mod stops;
mod store;
mod story;
mod ticks;
mod transaction;
mod turns;
mod without;
mod worker;

use std::{collections::BTreeMap, sync::atomic::Ordering};

use configurations::Configuration;
use counterexamples::{Control, controls};
use not_run::{is_thorough, not_run};
use protocol::Protocol;
use reached::Reached;
use stateright::{Checker, HasDiscoveries, Model, Path};
use story::Story;
use webhook_serializer::time::Env;
use without::{Changes, Rule};

/// Explores all of a model: how many states, and what is violated.
fn explored(model: Protocol) -> (usize, BTreeMap<&'static str, String>) {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let violated = checker.discoveries().into_iter();
    let violated = violated.map(|(property, path)| (property, Story(path.into_vec()).to_string())).collect();
    (checker.unique_state_count(), violated)
}

fn told(violated: &BTreeMap<&'static str, String>) -> String {
    violated.iter().map(|(property, story)| format!("violates \"{property}\":\n{story}\n")).collect()
}

/// Not where it is asked what notices a change of behaviour: a count does not.
fn counts_are_pinned() -> bool {
    std::env::var("MODEL_COUNTS").as_deref() != Ok("free")
}

/// The most states of a configuration that `cargo test` explores.
const QUICK: usize = 10_000;

fn holds(mut configurations: Vec<Configuration>) -> u64 {
    if !is_thorough() {
        configurations.retain(|configuration| configuration.states <= QUICK);
    }
    if let Ok(only) = std::env::var("MODEL_ONLY") {
        configurations.retain(|configuration| configuration.name.contains(&only));
    }
    let mut reached = 0;
    let mut moved = Vec::new();
    for Configuration { name, states, model } in configurations {
        let env = Env::system();
        let started = env.monotonic();
        let seen = model.reached.clone();
        let (found, violated) = explored(model);
        println!("{name}: {found} states, {:.1} s", (env.monotonic() - started).as_secs_f32());
        assert!(violated.is_empty(), "{name}: {}", told(&violated));
        if found != states && counts_are_pinned() {
            moved.push(format!("{name}: {found} states, pinned are {states}"));
        }
        reached |= seen.load(Ordering::Relaxed);
    }
    assert!(moved.is_empty(), "{}", moved.join("\n"));
    reached
}

#[test]
fn protocol_holds_in_every_configuration() {
    let reached = holds(configurations::small());
    if is_thorough() {
        let missing: Vec<_> = Reached::ALL.into_iter().filter(|what| reached & 1 << *what as u8 == 0).collect();
        assert_eq!(missing, []);
    }
}

#[test]
fn protocol_holds_in_large_configurations() {
    if !is_thorough() {
        return not_run("explores for minutes; PROVE=1 asks for it");
    }
    holds(configurations::large());
}

/// The shortest way to break `property`.
fn shortest(control: &Control, changes: &[Rule]) -> Option<Path<state::State, protocol::Action>> {
    let model = Protocol { changes: Changes::of(changes), ..control.model.clone() };
    // One thread: breadth first, so that the first found is a shortest.
    let wanted = HasDiscoveries::AllOf([control.property].into());
    model.checker().finish_when(wanted).spawn_bfs().join().discovery(control.property)
}

#[test]
fn every_counterexample_is_found() {
    let wanted = std::env::var("MODEL_TRACE").ok();
    let mut moved = Vec::new();
    for control in controls() {
        let changes: Vec<Rule> = control.anyway.iter().chain(control.changes).copied().collect();
        let path = shortest(&control, &changes);
        let path = path.unwrap_or_else(|| panic!("{}: \"{}\" holds all the same", control.change, control.property));
        let steps = path.clone().into_actions().len();
        if wanted.as_ref().is_some_and(|wanted| control.change.contains(wanted.as_str())) {
            println!("{}\nviolates \"{}\":\n{}", control.change, control.property, Story(path.into_vec()));
        }
        if steps != control.steps && counts_are_pinned() {
            moved.push(format!("{}: {steps} steps, pinned are {}", control.change, control.steps));
        }
    }
    assert!(moved.is_empty(), "{}", moved.join("\n"));
}

#[test]
fn every_control_holds_without_its_change() {
    if !is_thorough() {
        return not_run("explores for a minute; PROVE=1 asks for it");
    }
    for control in controls() {
        let model = Protocol { changes: Changes::of(control.anyway), ..control.model };
        let (_, violated) = explored(model);
        assert!(violated.is_empty(), "{}: without it, {}", control.change, told(&violated));
    }
}

/// `fail` asks for `head` = sequence - 1 although the token says as much: every
/// settle changes it.
#[test]
fn fail_is_protected_by_its_token_too() {
    let found = |changes: &[Rule]| {
        let of = |control: Control| Protocol { changes: Changes::of(changes), ..control.model };
        let all = controls().into_iter().filter(|control| control.changes == [Rule::FailWithoutHead]);
        let [explored] = all.map(|control| explored(of(control))).collect::<Vec<_>>().try_into().unwrap();
        explored
    };
    assert_eq!(found(&[Rule::DoubtfulCommitFails]), found(&[Rule::DoubtfulCommitFails, Rule::FailWithoutHead]));
}

#[test]
fn counterexamples_table_is_up_to_date() {
    let mut table = String::from("| change | violates | steps | what goes wrong |\n|---|---|---|---|\n");
    for Control { change, property, steps, wrong, .. } in controls() {
        table += &format!("| {change} | {property} | {steps} | {wrong} |\n");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/counterexamples.md");
    if std::env::var("MODEL_TABLE").as_deref() == Ok("write") {
        std::fs::write(path, &table).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), table, "MODEL_TABLE=write writes it anew");
}
