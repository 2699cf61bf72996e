//! The protocol's model.

mod changes;
mod counterexamples;
mod protocol;
mod reached;
mod state;
mod store;

use std::sync::atomic::Ordering;

use protocol::{Protocol, describe};
use reached::Reached;
use state::Budget;
use stateright::{Checker, HasDiscoveries, Model};

fn explore(name: &str, model: Protocol) {
    let started = std::time::Instant::now();
    let reached = model.reached.clone();
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).timeout(std::time::Duration::from_secs(std::env::var("SECS").map_or(60,|s|s.parse().unwrap()))).spawn_bfs().join();
    let seen = reached.load(Ordering::Relaxed);
    let all: Vec<Reached> = Reached::ALL.into_iter().filter(|what| seen & 1 << *what as u8 != 0).collect();
    println!(
        "{name}: {} states ({} generated), depth {}, {:?}; reached {all:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed()
    );
    for (property, path) in checker.discoveries() {
        println!("  VIOLATED: {property}");
        for (state, action) in path.into_vec() {
            println!("    {}\n  {:?}", describe(&state), action);
        }
    }
}

#[test]
fn scratch() {
    let b = Budget::default();
    let only = std::env::var("ONLY").unwrap_or_default();
    let configs: Vec<(&str, Protocol)> = vec![
        ("plain", Protocol { arrivals: &[0, 1], workers: 2, ..Protocol::default() }),
        (
            "crash",
            Protocol {
                arrivals: &[0, 1],
                workers: 2,
                budget: Budget { ingest_crashes: 1, worker_crashes: 1, copies: 1, take_overs: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "lost",
            Protocol { arrivals: &[0, 1], workers: 2, budget: Budget { lost_replies: 1, take_overs: 1, ..b }, ..Protocol::default() },
        ),
        (
            "fail",
            Protocol {
                arrivals: &[0, 1],
                workers: 2,
                budget: Budget { failures: 1, timeouts: 1, take_overs: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "repeat",
            Protocol {
                arrivals: &[0, 0],
                workers: 2,
                budget: Budget { worker_crashes: 1, take_overs: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "commit",
            Protocol {
                arrivals: &[0, 0],
                workers: 2,
                commit: true,
                budget: Budget { worker_crashes: 1, take_overs: 1, lost_replies: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "commit-reject",
            Protocol {
                arrivals: &[0],
                workers: 2,
                commit: true,
                budget: Budget { worker_crashes: 1, take_overs: 1, rejections: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "redrive",
            Protocol {
                arrivals: &[0],
                workers: 2,
                budget: Budget { worker_crashes: 1, take_overs: 1, rejections: 1, redrives: 1, ingest_crashes: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "block",
            Protocol {
                arrivals: &[0, 1],
                workers: 2,
                block: true,
                attempts: 1,
                budget: Budget { failures: 1, unblocks: 1, take_overs: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "visit",
            Protocol {
                arrivals: &[0, 1],
                workers: 1,
                budget: Budget { visits: 1, visitor_crashes: 1, take_overs: 1, ..b },
                ..Protocol::default()
            },
        ),
        (
            "purge",
            Protocol { arrivals: &[0, 1], workers: 2, budget: Budget { purges: 1, take_overs: 1, ..b }, ..Protocol::default() },
        ),
    ];
    for (name, model) in configs {
        if only.is_empty() || only.split(',').any(|one| one == name) {
            explore(name, model);
        }
    }
}

#[test]
fn controls_scratch() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for control in counterexamples::controls() {
        if !only.is_empty() && !control.change.contains(&only) {
            continue;
        }
        let anyway = changes::Changes::of(control.anyway);
        let unchanged = Protocol { changes: anyway, ..control.model.clone() };
        let started = std::time::Instant::now();
        let checker = unchanged.checker().threads(2).timeout(std::time::Duration::from_secs(20)).spawn_bfs().join();
        println!(
            "{}\n   unchanged: {} states, {:?}, {:?}",
            control.change,
            checker.unique_state_count(),
            started.elapsed(),
            checker.discoveries().keys().collect::<Vec<_>>()
        );
        let all: Vec<_> = control.anyway.iter().chain(control.changes).copied().collect();
        let changed = Protocol { changes: changes::Changes::of(&all), ..control.model.clone() };
        let started = std::time::Instant::now();
        let checker = changed
            .checker()
            .finish_when(HasDiscoveries::AllOf([control.property].into()))
            .timeout(std::time::Duration::from_secs(20))
            .spawn_bfs()
            .join();
        println!("   changed: {} states, {:?}", checker.unique_state_count(), started.elapsed());
        for (property, path) in checker.discoveries() {
            println!("   {property}: {} steps", path.clone().into_actions().len());
            if property == control.property && std::env::var("TRACE").is_ok() {
                for (state, action) in path.into_vec() {
                    println!("    {}\n  {:?}", describe(&state), action);
                }
            }
        }
    }
}
