//! Delays that come from an order's source: its pause, its linger, its removal or its destination's outage.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use webhook_serializer::{
    protocol::{entity::SourceName, outage::Outage, state::EntityState},
    sources::{REFRESH, Source, Sources},
    time::Timestamp,
};

use super::{Kind, NextCommand, OrderStatus};
use crate::{output::duration, view::outage};

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

    /// Says since when the destination is down, why, and when it is tried next. The sentence has no full stop.
    pub fn of_outage(&self, outage: &Outage, now: Timestamp) -> String {
        let all = self.sources.iter().flatten().flat_map(|sources| sources.iter());
        let mut own = all.filter(|source| *source.destination().id() == outage.destination).peekable();
        let is_paused = own.peek().is_some() && own.all(|source| source.is_paused);
        outage::sentence(outage, is_paused, now)
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
        let is_waiting = matches!(self.kind, Kind::Waiting | Kind::Failing | Kind::Unavailable);
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
            DelayCause::Removed => {
                format!("The source {source} is not in the sources document, so the next worker parks its deliveries")
            }
        });
        let ends_delay = match cause {
            DelayCause::Paused { .. } => Some(("source resume", &[][..], "ends the pause of its source")),
            DelayCause::Removed => {
                Some(("source add", &["--provider", "PROVIDER", "--handler", "HANDLER"][..], "adds its source again"))
            }
            DelayCause::Lingers(_) | DelayCause::Down(_) => None,
        };
        if let Some((command, arguments, purpose)) = ends_delay {
            let resume = NextCommand { source: Some(source.clone()), ..NextCommand::new(command, arguments, purpose) };
            if is_waiting {
                // A worker that these commands wake would find the source paused, or park the delivery.
                self.next.retain(|next| !next.wakes_worker);
                self.next.insert(0, resume);
            } else {
                self.next.push(resume);
            }
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
        let tried = |paused: &[&str]| {
            let source = |name: &str| {
                let url =
                    "forward = { url = 'https://shop.example/', secret = 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3' }";
                let paused = paused.contains(&name);
                format!("[sources.{name}]\nprovider = 'shopify'\nhandler = 'forward'\n{url}\npaused = {paused}\n")
            };
            let sources = Sources::parse(&["a", "b"].map(source).concat()).unwrap();
            let row = outage_row(sources.get("a").unwrap().destination().id()).to_row().with(a::VERSION, FORMAT);
            let row = row.with(a::DESTINATION, "https://shop.example").with(a::DOWN_SINCE, 940_000_u32);
            let row = row.with(a::ERROR, "refused").with(a::NONCE, "1").with(a::DUE, 1_008_000_u32);
            let row = row.with(a::FAILED_AT, 1_u32).with(a::FAILED_ORDER, "x");
            let outage = Outage::parse(&row).unwrap().unwrap();
            SourceDelays { sources: Ok(Some(Arc::new(sources))), outages: Vec::new() }.of_outage(&outage, NOW)
        };
        for paused in [&[][..], &["a"]] {
            assert!(tried(paused).ends_with("; the next probe is due in 8.0 s"), "{paused:?}: {}", tried(paused));
        }
        assert!(
            tried(&["a", "b"]).ends_with("; nothing tries it while its sources are paused"),
            "{}",
            tried(&["a", "b"])
        );
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
    }
}
