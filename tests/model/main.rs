//! A model of the ordering protocol, explored by [stateright](https://docs.rs/stateright): every
//! interleaving, fault and pause within a configuration's bounds.
//!
//! # The model
//!
//! Every write of a worker, an ingest, an operator or an exclusive holder is made by the production
//! operation (`Operation::write()`, evaluated by `protocol::memory`), and every reply is interpreted by it
//! (`Operation::judge()`). The next step is decided by production code too: `drain::plan` and
//! `drain::begin` for a worker, `append::Appending` for an append, `leases::wait` for an exclusive holder,
//! `operator` for a redrive and a rewind. The model only takes the steps, one store write, queue send or
//! handler step at a time.
//!
//! There is one entity, with two or three ingest instances, one or two workers, an exclusive holder and an
//! operator. The queue delivers at least once, in any order and at any time. Processes crash between any two
//! steps, and replies are lost after their writes landed. Clocks find a lease, a retry or a request to yield
//! valid or expired as they like. Handlers fail, time out and have a late effect, or are frozen. There are
//! groups, superseded deliveries, commits, parking, blocks, redrives, releases by force, holds, skips,
//! rewinds, and a receiver that remembers the newest token. Rows are purged and created again.
//!
//! Two models stand beside it: jobs (`ticks.rs`), and the time of a lease among wrong clocks (`clocks.rs`).
//!
//! # What is not modelled
//!
//! - several entities, which share nothing; two messages of one entity in one batch
//! - bodies in parts, partial pages and reading ahead (an old page is that of a paused worker)
//! - suspects that wait for their batch, and ten holders in a row that vanish
//! - a drain that marks its hand-over but cannot send its wake-up
//! - two formats side by side (`end_to_end/charging.rs`)
//! - writes that land after their author sent them again, except an operator's
//! - the sweep: the loss property holds without it, except if the queue cannot be reached
//! - an operator who dies between an unblock and its wake-up, before its completion is reported
//!
//! A copy of a message shows a receive count above one unless a configuration says otherwise; SQS calls its
//! count approximate. If a copy shows a count of one, the protocol survives one crash that loses a wake-up,
//! but not two. Visibility timeouts are not modelled: a message may come back as a copy while a worker has it. A
//! worker that knows that its message may be visible again (rule 26) has a separate configuration.
//!
//! # Reductions
//!
//! The first idle worker receives, and interchangeable arrivals start in order. Steps that write nothing are
//! taken at once if no lease can be lost any more, and so is the deletion of a message if nobody can die or
//! has a copy. The budget limits tombstones written while the sequence's ingest lives.
//!
//! # Running it
//!
//! ```text
//! cargo test -p model                              the smallest configurations, and every counterexample
//! PROVE=1 cargo test --profile fast -p model       all configurations, and all controls without their change
//! MODEL_ONLY=clocks …                              the configurations whose name contains "clocks"
//! MODEL_TRACE=gaps cargo test -p model counterexample -- --nocapture
//!                                                  the trace of each control whose name contains "gaps"
//! GENERATE=1 cargo test -p model table             writes counterexamples.md
//! ```
//!
//! The numbers of states are pinned: a different one means that the protocol or its model has changed.

mod audit;
mod clocks;
mod configurations;
mod counterexamples;
mod drain;
mod exclusive;
mod holds;
mod ingest;
#[path = "../src/made.rs"]
mod made;
#[path = "../src/not_run.rs"]
mod not_run;
mod operations;
mod operator;
mod protocol;
mod reached;
mod rewinds;
mod state;
mod steps;
mod store;
mod ticks;
mod trace;
mod transaction;
mod without;
mod worker;

use std::{collections::BTreeMap, sync::atomic::Ordering};

use configurations::Configuration;
use counterexamples::{Control, controls};
use made::check_part;
use not_run::{is_thorough, not_run};
use protocol::Protocol;
use reached::Reached;
use stateright::{Checker, HasDiscoveries, Model, Path};
use trace::ModelTrace;
use webhook_serializer::time::Env;
use without::{Changes, ViolatedRule};

/// Explores a model, and returns its number of states and a trace for each violated property.
fn explored(model: Protocol) -> (usize, BTreeMap<&'static str, String>) {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let violated = checker.discoveries().into_iter();
    let violated = violated.map(|(property, path)| (property, ModelTrace(path.into_vec()).to_string())).collect();
    (checker.unique_state_count(), violated)
}

fn report(violated: &BTreeMap<&'static str, String>) -> String {
    violated.iter().map(|(property, trace)| format!("violates \"{property}\":\n{trace}\n")).collect()
}

/// Mutation tests free the counts, which notice every change but explain none.
fn counts_are_pinned() -> bool {
    std::env::var("MODEL_COUNTS").as_deref() != Ok("free")
}

/// The most states of a configuration in `cargo test`.
const QUICK: usize = 10_000;

fn holds(mut configurations: Vec<Configuration>) -> u64 {
    if !is_thorough() {
        configurations.retain(|configuration| configuration.states <= QUICK);
    }
    if let Ok(only) = std::env::var("MODEL_ONLY") {
        configurations.retain(|configuration| configuration.name.contains(&only));
    }
    let mut reached = 0;
    let mut changed = Vec::new();
    for Configuration { name, states, model } in configurations {
        let env = Env::system();
        let started = env.monotonic();
        let seen = model.reached.clone();
        let (found, violated) = explored(model);
        println!("{name}: {found} states, {:.1} s", (env.monotonic() - started).as_secs_f32());
        assert!(violated.is_empty(), "{name}: {}", report(&violated));
        if found != states && counts_are_pinned() {
            changed.push(format!("{name}: {found} states, pinned are {states}"));
        }
        reached |= seen.load(Ordering::Relaxed);
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
    reached
}

#[test]
fn protocol_holds_in_every_configuration() {
    let reached = holds(configurations::small());
    if is_thorough() {
        let missing: Vec<_> = Reached::ALL.iter().filter(|what| reached & 1 << **what as u8 == 0).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn protocol_holds_in_large_configurations() {
    if !is_thorough() {
        return not_run("explores for minutes; PROVE=1 asks for it");
    }
    holds(configurations::large());
}

/// Returns a shortest path to a violation of the control's property.
fn shortest(control: &Control) -> Option<Path<state::ModelState, protocol::ModelAction>> {
    let changes: Vec<ViolatedRule> = control.assumes.iter().copied().chain([control.rule]).collect();
    let model = Protocol { changes: Changes::of(&changes), ..control.model.clone() };
    // With one thread, breadth-first search finds a shortest path first.
    let wanted = HasDiscoveries::AllOf([control.property].into());
    model.checker().finish_when(wanted).spawn_bfs().join().discovery(control.property)
}

/// Promise: each rule is needed.
#[test]
fn every_counterexample_is_found() {
    let wanted = std::env::var("MODEL_TRACE").ok();
    let mut changed = Vec::new();
    for control in controls() {
        let path = shortest(&control);
        let path = path.unwrap_or_else(|| panic!("{}: \"{}\" holds all the same", control.change, control.property));
        let steps = path.clone().into_actions().len();
        if wanted.as_ref().is_some_and(|wanted| control.change.contains(wanted.as_str())) {
            println!("{}\nviolates \"{}\":\n{}", control.change, control.property, ModelTrace(path.into_vec()));
        }
        if steps != control.steps && counts_are_pinned() {
            changed.push(format!("{}: {steps} steps, pinned are {}", control.change, control.steps));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn each_counterexample_vanishes_with_its_rule_restored() {
    if !is_thorough() {
        return not_run("explores for a minute; PROVE=1 asks for it");
    }
    for control in controls() {
        let model = Protocol { changes: Changes::of(control.assumes), ..control.model };
        let (_, violated) = explored(model);
        assert!(violated.is_empty(), "{}: without it, {}", control.change, report(&violated));
    }
}

/// The condition of `fail` on `head` is redundant as long as every settle changes the token.
#[test]
fn head_condition_of_fail_operation_is_redundant() {
    let found = |changes: &[ViolatedRule]| {
        let control = controls().into_iter().find(|control| control.rule == ViolatedRule::FailWithoutHead).unwrap();
        explored(Protocol { changes: Changes::of(changes), ..control.model })
    };
    assert_eq!(
        found(&[ViolatedRule::DoubtfulCommitFails]),
        found(&[ViolatedRule::DoubtfulCommitFails, ViolatedRule::FailWithoutHead])
    );
}

#[test]
fn counterexamples_table_is_up_to_date() {
    let mut table = String::from("| change | violates | steps | what goes wrong |\n|---|---|---|---|\n");
    for Control { change, property, steps, wrong, .. } in controls() {
        table += &format!("| {change} | {property} | {steps} | {wrong} |\n");
    }
    check_part("tests/model/counterexamples.md", "", "", &table);
}
