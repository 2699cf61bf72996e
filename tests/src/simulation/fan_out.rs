//! A source with several handlers: the deliveries of the source `fan`, and the copies that its subscribers get.
//!
//! The thousands of a delivery's number say which source it belongs to: a subscriber, `fan`, or 0 for the other sources.
//! An order's number and those of its copies also differ by thousands.

use std::{collections::BTreeMap, sync::Arc};

use webhook_serializer::protocol::{
    delivery::Delivery,
    entity::{Identity, SourceName},
};

use super::{
    history::{DeliveryName, SimulationHistory},
    node::Node,
    profile::Profile,
    workload::record_call,
    world::{SimulatedWorld, entity_number, name_of, relative},
};

/// The source with the handler `fan-out`.
pub const PARENT: &str = "fan";

/// The subscriber that takes every topic.
pub const ALL: &str = "all";

/// The subscriber that takes one topic.
pub const FEW: &str = "few";

const SPAN: u32 = 1000;

/// The sources by the thousands of their deliveries' numbers, from 1.
const SOURCES: [&str; 3] = [ALL, FEW, PARENT];

const PARENT_PART: u32 = 3;

/// The first part of an order's key, by the thousands of the order's number.
pub const NAMESPACES: [&str; 3] = ["sim", ALL, FEW];

/// The topic that both subscribers take.
pub const TAKEN_BY_BOTH: &str = "order.paid";

/// Returns the number of a delivery that is sent to `fan`, or `number` if it is sent to another source.
pub fn sent(profile: &Profile, number: u32) -> u32 {
    let is_spread = profile.fan_out && !number.is_multiple_of(3);
    if is_spread { PARENT_PART * SPAN + number } else { number }
}

/// Returns the source of a delivery, or `None` if it is neither `fan` nor a subscriber.
pub fn source(number: u32) -> Option<&'static str> {
    SOURCES.get((number / SPAN).checked_sub(1)? as usize).copied()
}

/// Returns the number of the delivery of `source` whose sender's id is `id`.
pub fn number(source: &str, id: u32) -> u32 {
    match SOURCES.iter().position(|other| *other == source) {
        Some(part) => (part as u32 + 1) * SPAN + id % SPAN,
        None => id,
    }
}

/// Returns the number of the original of a copy, and of any other delivery its own.
pub fn original(number: u32) -> u32 {
    if number < SPAN { number } else { PARENT_PART * SPAN + number % SPAN }
}

pub fn is_parent(name: DeliveryName) -> bool {
    name.number / SPAN == PARENT_PART
}

pub fn is_copy(name: DeliveryName) -> bool {
    source(name.number).is_some() && !is_parent(name)
}

pub fn topic(number: u32) -> &'static str {
    if number.is_multiple_of(2) { TAKEN_BY_BOTH } else { "order.updated" }
}

/// Returns whether the copy's source takes it.
fn is_taken(copy: DeliveryName) -> bool {
    source(copy.number) == Some(ALL) || topic(copy.number) == TAKEN_BY_BOTH
}

/// Returns the copies that the subscribers take of a delivery of `fan`.
fn copies(original: DeliveryName) -> impl Iterator<Item = DeliveryName> {
    let copy = move |part: u32| DeliveryName { number: part * SPAN + original.number % SPAN, redrive: 0 };
    (1..PARENT_PART).map(copy).filter(|copy| is_taken(*copy))
}

/// Returns the number of the order or of one of its copies, so that all are visited.
pub fn visited(profile: &Profile, number: u32, entity: usize) -> usize {
    let part = if profile.fan_out { number as usize % NAMESPACES.len() } else { 0 };
    part * SPAN as usize + entity
}

/// Splits an order's number into its namespace and the number that its copies share.
pub fn namespace(entity: usize) -> (&'static str, usize) {
    (NAMESPACES[entity / SPAN as usize], entity % SPAN as usize)
}

/// Returns an order's number in a namespace.
pub fn in_namespace(namespace: &str, entity: usize) -> usize {
    NAMESPACES.iter().position(|other| *other == namespace).unwrap_or_default() * SPAN as usize + entity
}

/// The copies that a start appends. Those that are not appended when it ends may have sent no wake-up.
pub struct CopiesUnderWay {
    world: Arc<SimulatedWorld>,
    /// The copies, each with its order and the number of its answers before the start.
    copies: Vec<(DeliveryName, usize, usize)>,
}

impl CopiesUnderWay {
    pub fn begin(node: &Node, delivery: &Delivery) -> Self {
        let world = &node.world;
        let original = name_of(delivery.identity());
        let answers = |name| world.with_history(|history| history.calls.get(&name).map_or(0, |call| call.acked.len()));
        let begun = |name: DeliveryName| {
            let source = source(name.number).unwrap_or_default();
            let entity = in_namespace(source, entity_number(delivery.entity()));
            let before = answers(name);
            let source = SourceName::parse(source).expect("a source");
            let delivery_id = delivery.delivery_id().clone();
            world.register_identity(&Identity { source, delivery_id, redrive: 0 });
            record_call(world, name, entity, node.number);
            (name, entity, before)
        };
        if copies(original).count() < SOURCES.len() - 1 {
            world.mark("a subscriber does not take a delivery");
        }
        Self { world: world.clone(), copies: copies(original).map(begun).collect() }
    }
}

impl Drop for CopiesUnderWay {
    fn drop(&mut self) {
        self.world.with_history(|history| {
            for (name, entity, before) in &self.copies {
                if history.calls.get(name).is_some_and(|call| call.acked.len() == *before) {
                    history.unwoken.insert(*entity);
                }
            }
        });
    }
}

/// Returns whether the original of a copy was applied, so that the copy must be in its inbox.
pub fn is_owed(history: &SimulationHistory, name: DeliveryName) -> bool {
    let mut decided = history.decided_ever().filter_map(|(_, decided)| Some((decided.name?, decided)));
    is_copy(name)
        && name.redrive == 0
        && decided.any(|(of, decided)| of.number == original(name.number) && decided.settlement == "applied")
}

/// Checks that each subscriber gets a copy of all that it takes, in the order of the originals, and nothing else. `left`
/// are the deliveries in the tables. The audit of each copy's call shows that it is applied once.
pub fn audit(history: &SimulationHistory, left: &[DeliveryName], mistakes: &mut Vec<String>) {
    let started = history.starts.iter().map(|start| start.name);
    for name in started.chain(left.iter().copied()).filter(|name| is_copy(*name)) {
        if !is_taken(name) {
            mistakes.push(format!("{name} is a copy that its source does not take"));
        } else if !history.calls.contains_key(&DeliveryName { redrive: 0, ..name }) {
            mistakes.push(format!("{name} is a copy, and its original never started"));
        }
    }
    for original in history.calls.keys().filter(|name| is_parent(**name)) {
        for copy in copies(*original).filter(|copy| is_owed(history, *copy)) {
            if !history.calls.contains_key(&copy) {
                mistakes.push(format!("{original} was applied, and {copy} was never appended"));
            }
        }
    }
    order(history, mistakes);
}

/// Checks that copies are settled in the order of their originals. An original that was redriven, settled otherwise than
/// as applied, or settled at several sequences, is left out: a later run may have appended its copy.
fn order(history: &SimulationHistory, mistakes: &mut Vec<String>) {
    let mut applied: BTreeMap<DeliveryName, Option<(usize, u64)>> = BTreeMap::new();
    let mut first: BTreeMap<DeliveryName, (usize, u64)> = BTreeMap::new();
    for (place, decided) in history.decided_ever() {
        let Some(name) = decided.name else { continue };
        if is_copy(name) {
            let earliest = first.entry(name).or_insert(*place);
            *earliest = place.min(earliest).to_owned();
        } else if is_parent(name) && name.redrive == 0 && decided.settlement != "repeat" {
            let known = applied.entry(name).or_insert(Some(*place));
            *known = known.filter(|known| known == place && decided.settlement == "applied");
        }
    }
    let mut originals: Vec<((usize, u64), DeliveryName)> =
        applied.into_iter().filter_map(|(name, place)| Some((place?, name))).collect();
    originals.sort_unstable();
    let mut newest: BTreeMap<usize, (u64, DeliveryName)> = BTreeMap::new();
    for copy in originals.into_iter().flat_map(|(_, name)| copies(name)) {
        let Some((entity, sequence)) = first.get(&copy).copied() else { continue };
        if let Some((before, earlier)) =
            newest.insert(entity, (sequence, copy)).filter(|(before, _)| *before > sequence)
        {
            mistakes.push(format!(
                "{copy} is at {}, before {earlier} at {}, and its original came later",
                relative(sequence),
                relative(before)
            ));
        }
    }
}
