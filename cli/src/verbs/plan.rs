//! Finds the targets of a verb, and what the command lists about them before it asks.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use webhook_serializer::{
    protocol::entity::{EntityKey, Sequence},
    time::Timestamp,
};

use super::{
    Act, OperationTarget,
    run::{OperationRequest, refused_text},
    skip::not_in_front,
};
use crate::{
    commands::{
        interrupt::Interrupt,
        survey::{Cost, ReadScope, Surveyor},
        target::Deployment,
    },
    output::{counted, duration},
    view::{
        delivery::parked_json,
        order_status::attempts_so_far,
        overview::{OrderSummary, ParkedDelivery},
        position::marked,
    },
};

pub struct OperationPlan {
    pub targets: Vec<OperationTarget>,
    pub columns: &'static [&'static str],
    pub rows: Vec<(Vec<String>, Value)>,
    pub notes: Vec<String>,
    /// The number of further orders or deliveries that `--limit` leaves out.
    pub left_out: usize,
}

impl OperationRequest {
    pub async fn plan(&self, deployment: &Deployment, interrupt: &Interrupt) -> Result<OperationPlan> {
        let cost = Cost { yes: self.choice.many.yes };
        let limit = self.choice.many.limit.map_or(usize::MAX, |limit| limit as usize);
        let filter = self.choice.many.selection.filter(deployment.env.now());
        let takes_parked = |one: &ParkedDelivery| {
            self.choice.sequence.is_none_or(|named| named.fits(one.sequence))
                && filter.takes(Some(&one.source), Some(&one.error), one.since)
        };
        match (&self.verb.act, &self.choice.order) {
            (Act::Parked { note, .. }, order) => {
                let parked: Vec<ParkedDelivery> = match order {
                    Some(order) => {
                        deployment.operator().parked(order).await?.iter().map(ParkedDelivery::from).collect()
                    }
                    None => {
                        Surveyor::read(deployment, cost, interrupt.clone(), ReadScope::Parked)
                            .await?
                            .complete()?
                            .overview
                            .parked
                    }
                };
                let selection = ParkedSelection::of(parked, takes_parked, limit);
                if let ([first, second, ..], Some(_)) = (&selection.deliveries[..], self.choice.sequence) {
                    let first = first.sequence;
                    let second = second.sequence;
                    bail!("several parked deliveries fit; give the whole sequence, such as {first} or {second}");
                }
                let note = note(&selection, deployment.retention.as_secs() / 86_400);
                Ok(plan_of_parked(&selection, note, deployment.env.now()))
            }
            (Act::Delivery(_), Some(order)) => self.plan_of_next(order, deployment).await,
            (_, Some(order)) => {
                let targets = vec![OperationTarget { order: order.clone(), sequence: None }];
                let row = (vec![order.to_string()], json!({ "entity": order, "done": null }));
                Ok(OperationPlan { targets, columns: &["order"], rows: vec![row], notes: Vec::new(), left_out: 0 })
            }
            (_, None) => {
                let mut surveyor = Surveyor::read(deployment, cost, interrupt.clone(), ReadScope::Trouble).await?;
                let is_wanted = |lane: &OrderSummary| filter.takes_but_source(lane.error(), lane.since());
                if filter.source.is_some() {
                    surveyor.sources(is_wanted).await?;
                }
                let lanes = surveyor.complete()?.overview.lanes;
                let is_wanted = |lane: &&OrderSummary| filter.takes(lane.source.as_ref(), lane.error(), lane.since());
                let mut lanes: Vec<&OrderSummary> = lanes.iter().filter(is_wanted).collect();
                lanes.sort_by_key(|lane| lane.since());
                lanes.retain(|lane| (self.verb.takes)(lane));
                let left_out = lanes.len().saturating_sub(limit);
                lanes.truncate(limit);
                let plan = plan_of_orders(&lanes, self.verb.takes_deliveries(), deployment.env.now());
                Ok(OperationPlan { left_out, ..plan })
            }
        }
    }

    async fn plan_of_next(&self, order: &EntityKey, deployment: &Deployment) -> Result<OperationPlan> {
        let Some(named) = self.choice.sequence else {
            bail!(
                "give the SEQUENCE of the delivery of {order}; `{}` shows the next one",
                deployment.command("show", order.as_str())
            );
        };
        let sequence = deployment.sequence(order, named).await?;
        let target = OperationTarget { order: order.clone(), sequence: Some(sequence) };
        let single = deployment.operator().single(order, sequence).await?;
        let topic = single.content.delivery().map_or("empty", |delivery| delivery.topic()).to_owned();
        let mut notes = Vec::new();
        if let Some(state) = single.state {
            if state.next() != sequence || state.is_empty() {
                let refused = not_in_front(order, sequence, &state);
                bail!("{}", refused_text(&refused, order, deployment).await);
            }
            let behind = counted(state.waiting() - 1, "delivery waits", "deliveries wait");
            let then = match (state.hold.since(), state.waiting() - 1) {
                (Some(_), _) => "until the order is resumed",
                (None, 1) => "and then continues",
                (None, _) => "and then continue",
            };
            notes.push(format!("{behind} behind it, {then}."));
            let stands =
                if state.has_attempts_of_latest() { " The error is that of the newest waiting delivery." } else { "" };
            let error = state.last_error.as_deref().unwrap_or("none");
            notes.push(format!("Attempts so far: {}. Last error: {error}.{stands}", attempts_so_far(&state)));
        }
        let json = json!({ "entity": order, "sequence": sequence, "topic": topic, "done": null });
        let rows = vec![(vec![order.to_string(), marked(sequence), topic], json)];
        Ok(OperationPlan { targets: vec![target], columns: &["order", ">delivery", "topic"], rows, notes, left_out: 0 })
    }
}

fn plan_of_parked(selection: &ParkedSelection, note: Option<String>, now: Timestamp) -> OperationPlan {
    let row = |one: &ParkedDelivery| {
        let since = one.since.map(|at| duration(now.since(at))).unwrap_or_default();
        let cells = [one.entity.to_string(), marked(one.sequence), one.source.to_string(), one.topic.clone()];
        let mut json = parked_json(one);
        json["became"] = Value::Null;
        ([&cells[..], &[since, one.error.clone()]].concat(), json)
    };
    let deliveries = counted(selection.deliveries.len() as u64, "delivery", "deliveries");
    let orders = counted(selection.orders() as u64, "order", "orders");
    OperationPlan {
        targets: selection.targets(),
        columns: &["order", ">delivery", "source", "topic", ">parked", "error"],
        rows: selection.deliveries.iter().map(row).collect(),
        notes: [format!("{deliveries} of {orders}.")].into_iter().chain(note).collect(),
        left_out: selection.left_out,
    }
}

fn plan_of_orders(lanes: &[&OrderSummary], takes_deliveries: bool, now: Timestamp) -> OperationPlan {
    let sequence = |lane: &OrderSummary| lane.next().filter(|_| takes_deliveries);
    let target = |lane: &&OrderSummary| OperationTarget { order: lane.state.entity.clone(), sequence: sequence(lane) };
    let row = |lane: &&OrderSummary| {
        let state = &lane.state;
        let cells = vec![
            state.entity.to_string(),
            lane.kind.as_str().to_owned(),
            state.waiting().to_string(),
            lane.since().map(|at| duration(now.since(at))).unwrap_or_default(),
            lane.status(None, now).summary(),
        ];
        let json = json!({
            "entity": state.entity, "sequence": sequence(lane), "state": lane.kind.as_str(), "since": lane.since(),
            "waiting": state.waiting(), "error": lane.error(), "done": null,
        });
        (cells, json)
    };
    let waiting: u64 = lanes.iter().map(|lane| lane.state.waiting()).sum();
    let waiting = counted(waiting, "delivery waits", "deliveries wait");
    OperationPlan {
        targets: lanes.iter().map(target).collect(),
        columns: &["order", "state", ">waiting", ">since", "why"],
        rows: lanes.iter().map(row).collect(),
        notes: vec![format!("{}, in which {waiting}.", counted(lanes.len() as u64, "order", "orders"))],
        left_out: 0,
    }
}

/// The parked deliveries that an operation would change, sorted by order and sequence.
#[derive(Debug, Clone, Default)]
pub struct ParkedSelection {
    pub deliveries: Vec<ParkedDelivery>,
    /// The number of orders in which a delivery stays parked although a later delivery is selected.
    pub overtaken: usize,
    /// The number of further deliveries that the limit leaves out.
    pub left_out: usize,
}

impl ParkedSelection {
    pub fn of(mut parked: Vec<ParkedDelivery>, takes: impl Fn(&ParkedDelivery) -> bool, limit: usize) -> Self {
        parked.sort_by(|left, right| (&left.entity, left.sequence).cmp(&(&right.entity, right.sequence)));
        let (mut deliveries, others): (Vec<ParkedDelivery>, Vec<ParkedDelivery>) = parked.into_iter().partition(takes);
        let left_out = deliveries.len().saturating_sub(limit);
        deliveries.truncate(limit);
        let last: BTreeMap<&EntityKey, Sequence> = deliveries.iter().map(|one| (&one.entity, one.sequence)).collect();
        let stay = others.iter().filter(|one| last.get(&one.entity).is_some_and(|last| one.sequence < *last));
        let overtaken = stay.map(|one| &one.entity).collect::<BTreeSet<_>>().len();
        Self { deliveries, overtaken, left_out }
    }

    pub fn targets(&self) -> Vec<OperationTarget> {
        let target = |one: &ParkedDelivery| OperationTarget { order: one.entity.clone(), sequence: Some(one.sequence) };
        self.deliveries.iter().map(target).collect()
    }

    pub fn orders(&self) -> usize {
        self.deliveries.iter().map(|one| &one.entity).collect::<BTreeSet<_>>().len()
    }
}
