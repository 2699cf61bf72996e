//! After a verb that lets deliveries start: names the paused sources among theirs. If a destination is down, waits for a
//! probe, and says what it found.

use std::{collections::BTreeSet, time::Duration};

use webhook_serializer::{
    operator::{Operator, OperatorError},
    protocol::{
        entity::{EntityKey, SourceName},
        outage::{DestinationId, Outage},
        state::EntityState,
    },
};

use super::OperationTarget;
use crate::{
    commands::{interrupt::Interrupt, setup::source::whereabouts, target::Deployment},
    say,
    view::outage::{self, Tries},
};

/// The number of targets whose destinations are looked up. Targets of one command mostly share one.
const LOOKED_UP: usize = 25;

const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// The longest time to wait for a probe. A probe lasts at most as long as its handler's timeout, which may be longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The paused and removed sources of the targets' next deliveries, and the outages of the other sources' destinations,
/// as they were before the verb ran.
#[derive(Default)]
pub struct ProbeWatch {
    before: Vec<Outage>,
    paused: BTreeSet<SourceName>,
    removed: BTreeSet<SourceName>,
}

impl ProbeWatch {
    /// Looks up which sources of the targets are paused or removed, and which destinations are down. Without the sources
    /// document, finds none.
    pub async fn of(targets: &[OperationTarget], deployment: &Deployment) -> Result<Self, OperatorError> {
        let operator = deployment.operator();
        let Ok(Some(sources)) = whereabouts::known_or_complained(deployment).await else { return Ok(Self::default()) };
        let names = sources_of(&operator, targets).await?;
        let (known, removed): (BTreeSet<_>, _) =
            names.into_iter().partition(|name| sources.get(name.as_str()).is_some());
        let mut paused = sources.paused();
        paused.retain(|name| known.contains(name));
        let starts = known.difference(&paused).filter_map(|name| sources.get(name.as_str()));
        let destinations: BTreeSet<DestinationId> = starts.map(|source| source.destination().id().clone()).collect();
        // The verb needs no right to read the outages.
        let mut before = operator.outages().await.unwrap_or_default();
        before.retain(|outage| destinations.contains(&outage.destination));
        Ok(Self { before, paused, removed })
    }

    /// Returns whether workers handle all deliveries that the verb lets start.
    pub fn starts_all(&self) -> bool {
        self.paused.is_empty() && self.removed.is_empty()
    }

    /// Waits until each destination has been tried once more, and prints what was found.
    pub async fn wait(self, deployment: &Deployment, interrupt: &Interrupt) -> Result<(), OperatorError> {
        let Self { before: mut left, paused, removed } = self;
        let env = &deployment.env;
        for source in paused {
            let resume = deployment.line("source resume", &[source.as_str()]);
            say!("The source {source} is paused, so its deliveries still wait. `{resume}` ends the pause.");
        }
        for source in removed {
            say!("The source {source} is not in the sources document, so a worker parks its deliveries.");
        }
        for outage in &left {
            say!("{}. Waiting for a probe …", outage::sentence(outage, Tries::Probe, env.now()));
        }
        let end = env.monotonic() + PATIENCE;
        while !left.is_empty() && env.monotonic() < end && !interrupt.came() {
            env.sleep(BETWEEN_LOOKS).await;
            let seen = deployment.operator().outages().await?;
            left.retain(|before| match found(before, &seen) {
                Some(found) => {
                    say!("{found}");
                    false
                }
                None => true,
            });
        }
        for outage in &left {
            say!("No probe of {} has ended yet; its orders stay held back.", outage.name);
        }
        Ok(())
    }
}

/// Returns what a probe has found since `before` was read. `None` if none has ended.
fn found(before: &Outage, seen: &[Outage]) -> Option<String> {
    let of = |outage: &&Outage| outage.destination == before.destination && outage.since == before.since;
    let Some(outage) = seen.iter().find(of) else {
        return Some(format!("{} is up again: all its orders go on.", before.name));
    };
    // Each probe has another nonce. The one that ran before the verb does not count.
    let is_new = outage.failed.is_some() && outage.nonce != before.nonce;
    is_new.then(|| {
        format!("The probe failed: {}. {} stays down, and no order waits longer for it.", outage.error, outage.name)
    })
}

/// Returns the sources of the orders' next deliveries. For an empty order, returns that of the parked delivery.
async fn sources_of(operator: &Operator, targets: &[OperationTarget]) -> Result<BTreeSet<SourceName>, OperatorError> {
    let targets = &targets[..targets.len().min(LOOKED_UP)];
    let orders: Vec<EntityKey> = targets.iter().map(|target| target.order.clone()).collect();
    let rows = operator.order_rows(&orders).await?;
    let states = rows.iter().filter_map(|row| EntityState::parse(row).ok()).filter(|state| !state.is_empty());
    let next: Vec<_> = states.map(|state| (state.entity.clone(), state.next())).collect();
    let mut deliveries = operator.deliveries(&next).await?;
    for target in targets {
        let is_empty = next.iter().all(|(order, _)| *order != target.order);
        if let Some(sequence) = target.sequence.filter(|_| is_empty) {
            deliveries
                .extend(operator.parked_at(&target.order, sequence).await?.map(|parked| parked.delivery().clone()));
        }
    }
    Ok(deliveries.iter().map(|delivery| delivery.source().clone()).collect())
}
