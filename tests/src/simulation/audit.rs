//! The auditor: does a history keep the guarantees?
//!
//! The auditor sees calls and their answers, handler starts, effects and the remaining rows. It sees nothing
//! of the code.

use std::{collections::BTreeMap, time::Duration};

use webhook_serializer::protocol::{
    format::attribute as a,
    keys::WatchReason,
    maintain::Watched,
    state::{EntityState, LeaseKind},
    table::{Row, TableName, Value},
};

use super::{
    exclusion, fan_out,
    handler::{DeliveryTraits, EFFECTS},
    history::{AppendCall, DeliveryName, RecordedRewind, RecordedStart, SettledRecord, SimulationHistory},
    jobs,
    workload::event_time,
    world::{SimulatedWorld, entity_number, is_job, label, number_in, relative},
};

/// The shortest life of a receipt: its retention minus the clock skew.
const REMEMBERED: Duration = Duration::from_secs(28 * 86_400);

fn states(world: &SimulatedWorld) -> BTreeMap<usize, EntityState> {
    let rows = world.rows.rows(&TableName::Entities);
    let ours = rows.iter().filter(|row| !is_job(row.text(a::ENTITY).unwrap_or_default()));
    let parsed = ours.map(|row| EntityState::parse(row).expect("our own rows can be read"));
    parsed.map(|state| (entity_number(&state.entity), state)).collect()
}

/// Returns the orders whose wake-up could not be sent, and was noted as owed.
pub fn owed_orders(world: &SimulatedWorld) -> Vec<usize> {
    let rows = world.rows.rows(&TableName::Inbox);
    let watched = rows.iter().filter_map(|row| Watched::parse(row).ok());
    watched.filter(|one| one.reason == WatchReason::Owed).map(|one| entity_number(&one.entity)).collect()
}

/// Lists the orders in `owed` that still wait after their wake-ups were sent.
pub fn waiting_of(world: &SimulatedWorld, owed: &[usize]) -> Vec<String> {
    let states = states(world);
    let waits = |entity: &&usize| states.get(*entity).is_some_and(|state| !state.is_stopped() && !state.is_empty());
    let named = |entity: &usize| format!("stuck: {} waits although its owed wake-up was sent", label(*entity));
    owed.iter().filter(waits).map(named).collect()
}

pub fn is_at_rest(world: &SimulatedWorld) -> bool {
    states(world).values().all(|state| state.is_stopped() || (state.is_empty() && state.held.is_none()))
}

/// Lists the deliveries that were answered 2xx and wait, once no wake-up is left to find them.
pub fn stuck_deliveries(world: &SimulatedWorld) -> Vec<String> {
    let states = states(world);
    world.with_history(|history| {
        let mut stuck = Vec::new();
        for call in history.calls.values() {
            let entity = call.entity;
            if history.leaves_to_sweep(entity) {
                continue;
            }
            let Some(state) = states.get(&entity) else { continue };
            for (_, sequence) in &call.acked {
                if *sequence > state.head.0 && !state.is_stopped() {
                    stuck.push(format!(
                        "stuck: {} at {}/{} was answered 2xx, and no wake-up is left to find it",
                        call.name,
                        label(entity),
                        relative(*sequence)
                    ));
                }
            }
        }
        stuck
    })
}

pub fn final_audit(world: &SimulatedWorld) -> Vec<String> {
    let mut mistakes = jobs::audit(world);
    let states = states(world);
    for (entity, state) in &states {
        let who = label(*entity);
        if state.waits.is_some() != state.due_waits().is_some() {
            mistakes.push(format!("{who}: `waits` is {:?}, but must be {:?}", state.waits, state.due_waits()));
        }
        match &state.held {
            Some(held) if held.kind == LeaseKind::Drain => mistakes.push(format!("{who}: a drain lease is left")),
            _ => {}
        }
        if !state.is_empty() && !state.is_stopped() {
            mistakes.push(format!("{who}: {} deliveries are left undecided", state.waiting()));
        }
    }
    let left = Left::of(world);
    world.with_history(|history| {
        mistakes.append(&mut history.mistakes);
        order(history, &mut mistakes);
        starts(history, &mut mistakes);
        runs_again(history, &mut mistakes);
        effects(history, &mut mistakes);
        let in_tables: Vec<DeliveryName> =
            left.parked.iter().copied().chain(left.waiting.iter().map(|(name, _)| *name)).collect();
        fan_out::audit(history, &in_tables, &mut mistakes);
        if world.profile.excludes_in_time() {
            exclusion::audit(history, &mut mistakes);
        }
        for call in history.calls.values() {
            superseded(world, history, call, &mut mistakes);
            account(world, history, &states, &left, call, &mut mistakes);
        }
    });
    mistakes
}

/// The deliveries that are left in the tables, and how often each one's effects were committed.
struct Left {
    parked: Vec<DeliveryName>,
    waiting: Vec<(DeliveryName, u64)>,
    counts: BTreeMap<DeliveryName, u64>,
}

impl Left {
    fn of(world: &SimulatedWorld) -> Self {
        let inbox = world.rows.rows(&TableName::Inbox);
        let is_parked = |row: &&Row| row.text(a::ITEM).is_some_and(|item| item.starts_with("p#"));
        let waits = |row: &Row| Some((name_in(row)?, row.text(a::ITEM)?.strip_prefix("d#")?.parse().ok()?));
        let count = |row: &Row| {
            let (number, redrive) = row.text("name")?.split_once('.')?;
            let name = DeliveryName { number: number.parse().ok()?, redrive: redrive.parse().ok()? };
            let Some(Value::N(count)) = row.get("count") else { return None };
            Some((name, *count as u64))
        };
        Self {
            parked: inbox.iter().filter(is_parked).filter_map(name_in).collect(),
            waiting: inbox.iter().filter_map(waits).collect(),
            counts: world.rows.rows(&TableName::Named(EFFECTS.into())).iter().filter_map(count).collect(),
        }
    }
}

/// Returns the settlements of a delivery as superseded, each with its order and sequence.
fn superseded_at(history: &SimulationHistory, name: DeliveryName) -> Vec<(&(usize, u64), &SettledRecord)> {
    history.decided_ever().filter(|(_, one)| one.name == Some(name) && one.settlement == "superseded").collect()
}

/// Returns whether this delivery was superseded by a newer one that was applied.
fn is_superseded_by_newer(world: &SimulatedWorld, history: &SimulationHistory, name: DeliveryName) -> bool {
    superseded_at(history, name).iter().any(|((entity, sequence), decided)| {
        let of_newer = |at: &(usize, u64)| *at == (*entity, decided.by) && decided.by > *sequence;
        let mut newer = history.decided_at_all().filter(|(at, _)| of_newer(at));
        let before = |((of, at), other): (&(usize, u64), &SettledRecord)| {
            *of == *entity
                && at < sequence
                && other.settlement == "applied"
                && other.name.is_some_and(|other| event_time(other) > event_time(name))
        };
        newer.any(|(_, newer)| newer.settlement == "applied")
            || world.profile.skips && name.redrive == 0 && history.decided_at_all().any(before)
    })
}

fn superseded(world: &SimulatedWorld, history: &SimulationHistory, call: &AppendCall, mistakes: &mut Vec<String>) {
    let name = call.name;
    let superseded = superseded_at(history, name);
    let is_by_late = |((entity, sequence), decided): &(&(usize, u64), &SettledRecord)| {
        decided.by > *sequence && history.late.contains(&(*entity, decided.by))
    };
    if superseded.iter().any(is_by_late) {
        mistakes.push(format!("{name} was superseded by one that was appended late"));
    }
    if !superseded.is_empty() && !is_superseded_by_newer(world, history, name) {
        mistakes.push(format!("{name} was superseded, and by none that was applied"));
    }
}

/// Checks what became of an answered delivery: applied once, parked, superseded, or waiting in a stopped
/// order.
fn account(
    world: &SimulatedWorld,
    history: &SimulationHistory,
    states: &BTreeMap<usize, EntityState>,
    left: &Left,
    call: &AppendCall,
    mistakes: &mut Vec<String>,
) {
    let name = call.name;
    let is_applied = |decided: &SettledRecord| decided.name == Some(name) && decided.settlement == "applied";
    let applied = history.decided.values().filter(|decided| is_applied(decided)).count();
    // Applied in the tables that were lost.
    let lost = history.lost.iter().filter(|(_, decided)| is_applied(decided) && !decided.is_kept).count();
    // Applied before a rewind.
    let before = history.decided_before.iter().filter(|(_, decided)| is_applied(decided)).count();
    let kept = history.decided_ever().filter(|(_, decided)| decided.is_kept && is_applied(decided)).count();
    // A repeat that arrives after its receipt has expired is a new delivery.
    let once = each_was_forgotten(history, call.entity, name);
    if applied > 1 && !once {
        mistakes.push(format!("{name} was applied {applied} times"));
    }
    let state = states.get(&call.entity).filter(|state| state.is_stopped());
    let waits_stopped = |at: u64| state.is_some_and(|state| at > state.head.0);
    // An answered delivery has a settled sequence, whatever the outcome was.
    for (_, sequence) in &call.acked {
        let place = (call.entity, *sequence);
        if !history.decided_ever().any(|(at, _)| *at == place) && !waits_stopped(*sequence) {
            let place = relative(*sequence);
            mistakes.push(format!("lost: {name} was answered 2xx at {place}, and nothing came of it"));
        }
    }
    let stopped = left.waiting.iter().any(|(waits, at)| *waits == name && waits_stopped(*at));
    let promised = call.deferred || !call.acked.is_empty() || fan_out::is_owed(history, name);
    let is_set_aside = is_set_aside(history, left, name);
    let by_newer = is_superseded_by_newer(world, history, name);
    if promised && applied + before + lost == 0 && !is_set_aside && !stopped && !by_newer {
        mistakes.push(format!("lost: {name} was answered 2xx, and is neither applied nor parked nor stopped"));
    }
    let done = history.starts.iter().any(|start| start.name == name && start.done);
    if applied > 0 && !done {
        mistakes.push(format!("{name} counts as applied, and no handler start of it was done"));
    }
    let commits = DeliveryTraits::of(world.plan.seed, name.number).commits;
    let count = left.counts.get(&name).copied().unwrap_or(0);
    let expected = if once { applied } else { usize::from(applied > 0) } + before - kept;
    if commits && count != (expected + lost) as u64 {
        mistakes.push(format!("{name} was applied {applied} times, and its effects were committed {count} times"));
    }
}

/// Returns whether a delivery is parked, or was parked and then redriven or erased.
fn is_set_aside(history: &SimulationHistory, left: &Left, name: DeliveryName) -> bool {
    let next = DeliveryName { redrive: name.redrive + 1, ..name };
    // An operator whose redrive could not send its wake-up does not learn the new sequence.
    let stands = || {
        let decided = history.decided.values().any(|decided| decided.name == Some(next));
        decided || left.waiting.iter().any(|(waits, _)| *waits == next)
    };
    let mut settled = history.decided.iter().filter(|(_, decided)| decided.name == Some(name));
    let was_parked = settled.clone().any(|(_, decided)| decided.settlement == "parked");
    let erased = settled.any(|((entity, sequence), _)| history.has_erased(*entity, *sequence, Duration::MAX));
    let put_back = history.calls.get(&next).is_some_and(|call| !call.acked.is_empty() || stands());
    left.parked.contains(&name) || (was_parked && (put_back || erased))
}

/// Returns whether the delivery's receipt had expired or been erased before each further application.
fn each_was_forgotten(history: &SimulationHistory, entity: usize, name: DeliveryName) -> bool {
    let applied = history.decided.iter().filter(|(_, d)| d.name == Some(name) && d.settlement == "applied");
    let mut applied: Vec<(u64, Duration)> = applied.map(|((_, sequence), decided)| (*sequence, decided.time)).collect();
    applied.sort_unstable();
    let (Some(first), Some(last)) = (applied.first(), applied.last()) else { return true };
    let erased = |pair: &[(u64, Duration)]| history.has_erased(entity, pair[0].0, pair[1].1);
    last.1 - first.1 >= REMEMBERED || (applied.len() > 1 && applied.windows(2).all(erased))
}

fn name_in(row: &Row) -> Option<DeliveryName> {
    let number = number_in(row.text(a::DELIVERY_ID)?)?;
    let number = fan_out::number(row.text(a::SOURCE)?, number);
    Some(DeliveryName { number, redrive: row.number(a::REDRIVE).unwrap_or(0) as u32 })
}

/// G1: if a delivery was answered before another one arrived, it is settled before the other one starts.
fn order(history: &SimulationHistory, mistakes: &mut Vec<String>) {
    for late in history.calls.values() {
        let Some(start) = history.starts.iter().find(|start| start.name == late.name) else { continue };
        for early in history.calls.values().filter(|early| early.entity == late.entity && early.name != late.name) {
            // A delivery that was lost with the tables precedes none that arrived after the loss.
            let is_after = history.lost_at.is_some_and(|lost| lost < start.at);
            let lost = early.lost.iter().filter(|_| !is_after);
            let Some((_, sequence)) = early.acked.iter().chain(lost).find(|(at, _)| *at < late.called) else {
                continue;
            };
            let place = (early.entity, *sequence);
            let decided = history.decided_at_all().filter(|(at, _)| **at == place).map(|(_, decided)| decided.at).min();
            // The same start handled the earlier delivery, or superseded it.
            let is_with_it = early.entity == start.entity && (start.first..start.sequence).contains(sequence);
            if !is_with_it && decided.is_none_or(|at| at > start.at) {
                mistakes.push(format!(
                    "order: {} was answered before {} arrived, and was not decided when the handler of {} started",
                    early.name, late.name, late.name
                ));
            }
        }
    }
}

/// G2: each token has one start. A settled delivery does not start again under the newest token, unless it
/// was rewound or its receipt is gone.
fn starts(history: &SimulationHistory, mistakes: &mut Vec<String>) {
    let mut tokens = BTreeMap::new();
    for start in &history.starts {
        let other = tokens.insert((start.entity, start.token), (start.name, start.first));
        if let Some((other, _)) = other.filter(|(other, first)| *first != start.first || *other == start.name) {
            mistakes.push(format!(
                "two handler starts under token {} of {}: {other} and {}",
                relative(start.token),
                label(start.entity),
                start.name
            ));
        }
        if start.token > start.newest {
            mistakes.push(format!("{} started under a token that was never granted", start.name));
        }
        let decides = |(place, decided): (&(usize, u64), &SettledRecord)| {
            decided.name == Some(start.name)
                && decided.settlement != "void"
                && decided.at < start.at
                && start.time - decided.time < REMEMBERED
                && !history.has_erased(place.0, place.1, start.time)
        };
        // Returns whether a rewind in between makes the delivery run again.
        let is_set_back = |entity: usize, sequence: u64, at: usize| {
            let covers = |rewound: &&RecordedRewind| {
                rewound.entity == entity && (rewound.from..=rewound.through).contains(&sequence) && rewound.at > at
            };
            history.rewound.iter().filter(covers).any(|rewound| rewound.at < start.at)
        };
        let decided = history
            .decided_ever()
            .any(|(place, decided)| decides((place, decided)) && !is_set_back(place.0, place.1, decided.at));
        if decided && start.token == start.newest && !start.is_lost {
            mistakes.push(format!("{} was run again under the newest token after it was decided", start.name));
        }
    }
}

/// Checks that rewound deliveries start in order, and before the deliveries behind them.
fn runs_again(history: &SimulationHistory, mistakes: &mut Vec<String>) {
    for rewound in &history.rewound {
        // A loss of the tables ends the rewind, because a restore settles all waiting deliveries.
        let end = history.lost_at.filter(|lost| *lost > rewound.at).unwrap_or(usize::MAX);
        let of_it = |start: &&RecordedStart| {
            start.entity == rewound.entity
                && (rewound.at..end).contains(&start.at)
                && start.token == start.newest
                && !start.is_lost
        };
        for start in history.starts.iter().filter(of_it) {
            for place in rewound.from..=rewound.through.min(start.first.saturating_sub(1)) {
                let is_decided = history.decided_at_all().any(|(at, decided)| {
                    *at == (rewound.entity, place) && (rewound.at..start.at).contains(&decided.at)
                });
                if !is_decided {
                    mistakes.push(format!(
                        "{} started before the rerun of {}, its predecessor",
                        start.name,
                        relative(place)
                    ));
                }
            }
        }
    }
}

/// Checks that the receiver accepts effects in the order of their tokens.
fn effects(history: &SimulationHistory, mistakes: &mut Vec<String>) {
    let mut newest: BTreeMap<usize, (u64, Option<u64>)> = BTreeMap::new();
    for landed in &history.landed {
        let (token, sequence) = newest.entry(landed.entity).or_default();
        // After a rewind, an earlier sequence may follow a later one.
        let since = *token..landed.token;
        if history.rewound.iter().any(|rewound| rewound.entity == landed.entity && since.contains(&rewound.token)) {
            *sequence = None;
        }
        if landed.token < *token {
            mistakes.push(format!(
                "{}: a late effect of token {} landed after one of {}",
                label(landed.entity),
                relative(landed.token),
                relative(*token)
            ));
        }
        if landed.sequence.is_some() && landed.sequence < *sequence {
            mistakes.push(format!("{}: an effect landed after one of a later delivery", label(landed.entity)));
        }
        *token = landed.token.max(*token);
        *sequence = landed.sequence.max(*sequence);
    }
}
