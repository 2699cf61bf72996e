//! Delays that come from an order's source: its pause, its linger, its removal or its destination's outage.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use webhook_serializer::{
    protocol::{entity::SourceName, outage::Outage, state::EntityState},
    sources::{REFRESH, Source, Sources},
    time::Timestamp,
};

use super::{Kind, NEXT_ATTEMPT, NextCommand, OrderStatus};
use crate::{
    output::duration,
    view::outage::{self, Tries},
};

/// A delay of a source's deliveries.
#[derive(Debug, Clone)]
pub struct SourceDelay {
    pub source: SourceName,
    pub cause: DelayCause,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelayCause {
    Paused {
        /// The time of the order's next wake-up. `None` if the wake-up is due within `PAUSED_FOR`, or if its time is
        /// unknown.
        looked_at_again: Option<Timestamp>,
    },
    /// The source's `linger` collects deliveries for one handler start until this time.
    Lingers(Timestamp),
    /// The source is not in the sources document.
    Removed,
    /// The source's destination is down.
    Down(Outage),
}

/// The status names the time of a wake-up only if the wake-up is due in more than this time. A sooner wake-up may have
/// another cause than the pause.
const PAUSED_FOR: Duration = Duration::from_secs(120);

impl SourceDelay {
    /// Returns the delay of the source `name`, which is `source` in the sources document. Returns `None` if its
    /// deliveries do not wait for their source. `outages` are the outages that last.
    pub fn of(
        name: &SourceName,
        source: Option<&Source>,
        outages: &[Outage],
        state: &EntityState,
        now: Timestamp,
    ) -> Option<Self> {
        let outage =
            outages.iter().find(|one| source.is_some_and(|source| one.destination == *source.destination().id()));
        let is_seen = |at: &Timestamp| state.held.is_none() && *at > now + PAUSED_FOR;
        let cause = match (source, outage) {
            // A worker parks the deliveries of an unrouted order in any case.
            (None, _) if state.entity.is_unrouted() => return None,
            (None, _) => DelayCause::Removed,
            (Some(source), _) if source.is_paused => {
                DelayCause::Paused { looked_at_again: state.handover.filter(is_seen) }
            }
            (_, Some(outage)) => DelayCause::Down(outage.clone()),
            (Some(source), None) => DelayCause::Lingers(lingers_until(source, state).filter(|until| *until > now)?),
        };
        Some(Self { source: name.clone(), cause })
    }

    pub fn is_pause(&self) -> bool {
        matches!(self.cause, DelayCause::Paused { .. })
    }
}

/// The sources of a deployment's document. `None` if no variable names the document; an error says why it cannot be
/// read.
pub type KnownSources = Result<Option<Arc<Sources>>, String>;

/// The sources and outages that may delay orders.
#[derive(Debug)]
pub struct SourceDelays {
    pub sources: KnownSources,
    /// The outages that last.
    pub outages: Vec<Outage>,
}

impl SourceDelays {
    /// Returns the delay of an order whose next delivery is of the source `name`.
    pub fn of_order(&self, name: &SourceName, state: &EntityState, now: Timestamp) -> Option<SourceDelay> {
        let source = self.sources.as_ref().ok()?.as_ref()?.get(name.as_str()).map(|source| &**source);
        SourceDelay::of(name, source, &self.outages, state, now)
    }

    /// Returns what tries the outage's destination. If the sources are not known, supposes a probe.
    pub fn tries(&self, outage: &Outage) -> Tries {
        let Ok(Some(sources)) = &self.sources else { return Tries::Probe };
        let own = sources.iter().filter(|source| *source.destination().id() == outage.destination);
        let are_paused: Vec<bool> = own.map(|source| source.is_paused).collect();
        match are_paused.as_slice() {
            [] => Tries::Unused,
            are_paused if are_paused.contains(&false) => Tries::Probe,
            _ => Tries::Paused,
        }
    }

    pub fn paused(&self) -> BTreeSet<SourceName> {
        self.sources.iter().flatten().flat_map(|sources| sources.paused()).collect()
    }
}

/// Returns the time until which the source's `linger` delays the wake-up of the order's first waiting delivery.
fn lingers_until(source: &Source, state: &EntityState) -> Option<Timestamp> {
    let is_untouched = state.held.is_none() && state.handover.is_none() && state.last_error.is_none();
    let linger = source.linger.filter(|linger| is_untouched && state.waiting() < linger.most)?;
    Some(state.pending_since? + linger.wait)
}

impl OrderStatus {
    #[must_use]
    pub fn with_delay(mut self, delay: Option<&SourceDelay>, now: Timestamp) -> Self {
        let Some(SourceDelay { source, cause }) = delay else { return self };
        let is_stopped = matches!(self.kind, Kind::Blocked | Kind::OnHold);
        let is_waiting = matches!(self.kind, Kind::Waiting | Kind::Failing | Kind::Unavailable | Kind::Abandoned);
        if matches!(cause, DelayCause::Paused { .. } | DelayCause::Removed) {
            self.causes.retain(|cause| !cause.starts_with(NEXT_ATTEMPT));
        }
        self.explain(match cause {
            DelayCause::Paused { looked_at_again: Some(_) } if self.kind == Kind::Waiting => {
                format!("The source {source} is paused")
            }
            DelayCause::Paused { looked_at_again: Some(at) } => {
                format!("The source {source} is paused. A worker looks again in {}", duration(at.since(now)))
            }
            DelayCause::Paused { looked_at_again: None } => format!(
                "The sources document pauses the source {source}, and workers follow within {}",
                duration(REFRESH)
            ),
            DelayCause::Lingers(until) => {
                format!(
                    "The `linger` of the source {source} collects deliveries for {} more",
                    duration(until.since(now))
                )
            }
            DelayCause::Down(outage) => outage::of_order(outage, now),
            DelayCause::Removed => format!(
                "The source {source} is not in the sources document, so {} its deliveries",
                if is_stopped { "an order that is resumed parks" } else { "the next worker parks" }
            ),
        });
        let ends_delay = match cause {
            DelayCause::Paused { .. } => Some(("source resume", &[][..], "ends the pause of its source")),
            DelayCause::Removed => Some((
                "source add",
                &["--provider", "PROVIDER", "--handler", "HANDLER"][..],
                "adds its source again, if that was removed by mistake",
            )),
            DelayCause::Lingers(_) | DelayCause::Down(_) => None,
        };
        if let Some((command, arguments, purpose)) = ends_delay {
            let ends_it = NextCommand { source: Some(source.clone()), ..NextCommand::new(command, arguments, purpose) };
            if is_waiting {
                // A worker that these commands wake would find the source paused, or park the delivery.
                self.next.retain(|next| !next.wakes_worker);
            }
            // The commands that resume a stopped order would park its deliveries.
            let is_first = is_waiting || *cause == DelayCause::Removed;
            self.next.insert(if is_first { 0 } else { self.next.len() }, ends_it);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{
        protocol::{
            format::{FORMAT, attribute as a},
            keys::outage_row,
            outage::DestinationId,
            table::Row,
        },
        sources::Sources,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn row() -> Row {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
        row.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)
    }

    /// Returns the status of an order of the source `shop`, and its commands. `None` for `fields` removes the source
    /// from the document.
    fn delayed(fields: Option<&str>, row: &Row) -> (OrderStatus, Vec<String>) {
        let state = EntityState::parse(row).unwrap();
        let name = if fields.is_some() { "shop" } else { "other" };
        let fields = fields.unwrap_or_default();
        let document = format!("[sources.{name}]\nprovider = 'shopify'\nhandler = 'h'\n{fields}");
        let sources = Sources::parse(&document).unwrap();
        let source = sources.get("shop").map(|source| &**source);
        let delay = SourceDelay::of(&SourceName::parse("shop").unwrap(), source, &[], &state, NOW);
        let status = OrderStatus::of(Some(&state), None, None, NOW).with_delay(delay.as_ref(), NOW);
        let next = status.next.iter().map(|next| next.line("", &state.entity)).collect();
        (status, next)
    }

    #[test]
    fn order_status_suggests_resuming_its_paused_source() {
        let next = |row: &Row| {
            let (status, next) = delayed(Some("paused = true"), row);
            assert!(status.summary().contains("The sources document pauses the source shop"), "{status:?}");
            next
        };
        assert_eq!(next(&row()), ["serializer source resume shop"]);
        let failed = row().with(a::ATTEMPTS, 1_u32).with(a::LAST_ERROR, "no").with(a::RETRY_AT, 1_004_000_u32);
        assert_eq!(next(&failed), ["serializer source resume shop", "serializer show shop/order/1 3"]);
        assert!(!delayed(Some("paused = true"), &failed).0.summary().contains("The next attempt"));
        let on_hold = next(&row().with(a::HOLD, 940_000_u32));
        assert_eq!(on_hold[1..], ["serializer resume shop/order/1", "serializer source resume shop"]);
        let (seen, _) = delayed(Some("paused = true"), &row().with(a::HANDOVER, 1_900_000_u32));
        assert_eq!(seen.summary(), "2 deliveries wait. A worker looks again in 15 min. The source shop is paused.");
    }

    #[test]
    fn order_status_names_the_outage_of_its_destination() {
        let document =
            "[sources.shop]\nprovider = 'shopify'\nhandler = 'h'\n[sources.other]\nprovider = 'shopify'\nhandler = 'h'";
        let sources = Sources::parse(document).unwrap();
        let shop = sources.get("shop").unwrap();
        let row = outage_row(shop.destination().id()).to_row().with(a::VERSION, FORMAT).with(a::DUE, 1_008_000_u32);
        let row = row.with(a::DESTINATION, "the handler of shop").with(a::DOWN_SINCE, 940_000_u32);
        let row =
            row.with(a::ERROR, "refused").with(a::NONCE, "1").with(a::FAILED_AT, 1_u32).with(a::FAILED_ORDER, "x");
        let outages = [Outage::parse(&row).unwrap().unwrap()];
        let state = EntityState::parse(&self::row()).unwrap();
        let said = |name: &str| {
            let source = sources.get(name).map(|source| &**source);
            let delay = SourceDelay::of(&SourceName::parse(name).unwrap(), source, &outages, &state, NOW);
            OrderStatus::of(Some(&state), None, None, NOW).with_delay(delay.as_ref(), NOW).summary()
        };
        let plain = "2 deliveries wait to be handled.";
        let held_back =
            "It is held back since 00:15 UTC, because the handler of shop is down; the next probe is due in 8.0 s.";
        assert_eq!(said("shop"), format!("{plain} {held_back}"));
        assert_eq!(said("other"), plain);
    }

    #[test]
    fn outage_is_not_tried_while_all_its_sources_are_paused() {
        let tries = |paused: &[&str], destination: &str| {
            let source = |name: &str| {
                let url =
                    "forward = { url = 'https://shop.example/', secret = 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3' }";
                let paused = paused.contains(&name);
                format!("[sources.{name}]\nprovider = 'shopify'\nhandler = 'forward'\n{url}\npaused = {paused}\n")
            };
            let sources = Sources::parse(&["a", "b"].map(source).concat()).unwrap();
            let row = outage_row(&DestinationId::of("forward", destination)).to_row().with(a::VERSION, FORMAT);
            let row = row.with(a::DESTINATION, destination).with(a::DOWN_SINCE, 940_000_u32);
            let row = row.with(a::ERROR, "refused").with(a::NONCE, "1").with(a::DUE, 1_008_000_u32);
            let row = row.with(a::FAILED_AT, 1_u32).with(a::FAILED_ORDER, "x");
            let outage = Outage::parse(&row).unwrap().unwrap();
            SourceDelays { sources: Ok(Some(Arc::new(sources))), outages: Vec::new() }.tries(&outage)
        };
        let shop = "https://shop.example/";
        assert_eq!([tries(&[], shop), tries(&["a"], shop)], [Tries::Probe; 2]);
        assert_eq!(tries(&["a", "b"], shop), Tries::Paused);
        assert_eq!(tries(&[], "https://former.example/"), Tries::Unused);
    }

    #[test]
    fn order_status_names_linger_or_removal_of_its_source() {
        let row = row().with(a::PENDING_SINCE, 990_000_u32);
        let said = |fields| delayed(fields, &row).0.summary();
        let lingers = "deliver = { up_to = 5 }\nlinger = '30s'";
        assert_eq!(
            said(Some(lingers)),
            "2 deliveries wait to be handled. The `linger` of the source shop collects deliveries for 20.0 s more."
        );
        let plain = "2 deliveries wait to be handled.";
        assert_eq!(said(Some("deliver = { up_to = 2 }\nlinger = '30s'")), plain, "the group is full");
        assert_eq!(said(Some("deliver = { up_to = 5 }\nlinger = '10s'")), plain, "its time is over");
        assert_eq!(said(Some("")), plain);
        let removed = "The source shop is not in the sources document, so the next worker parks its deliveries.";
        assert_eq!(said(None), format!("{plain} {removed}"));
        let add = "serializer source add shop --provider PROVIDER --handler HANDLER";
        assert_eq!(delayed(None, &row).1, [add]);
        for stopped in [row.clone().with(a::HOLD, 940_000_u32), row.with(a::BLOCKED, "attempts")] {
            let (status, next) = delayed(None, &stopped);
            assert!(status.summary().contains("so an order that is resumed parks its deliveries"), "{status:?}");
            assert_eq!(next[0], add);
        }
    }
}
