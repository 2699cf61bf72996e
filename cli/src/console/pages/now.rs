//! The overview: counts of orders by state, and groups by source and error. Also the page that lists one state or
//! group.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;
use webhook_serializer::{alerts::alike, protocol::entity::EntityKey, time::Timestamp};

use super::{
    super::{
        ConsoleState,
        frame::{
            PageRequest, Tab, ago, badge, count, delivery_path, encoded, grouped, order_path, position, read, timed,
        },
        problem::Problem,
        reading::{ReadingDepth, StoreReading, Tables},
        request::Asked,
    },
    Shown, page_of, quoted, shown,
};
use crate::{
    output::command_line,
    view::{
        order_status::{Kind, SourceDelays},
        outage,
        overview::{OrderSummary, ParkedDelivery, StatusGroup},
    },
};

const FIRST: usize = 8;
const LISTED: usize = 200;

const OLDEST: usize = 5;

#[derive(Debug, Deserialize)]
pub(super) struct Depths {
    #[serde(default)]
    read: String,
}

impl Depths {
    fn depth(&self) -> ReadingDepth {
        if self.read == "all" { ReadingDepth::Whole } else { ReadingDepth::Free }
    }
}

pub(super) async fn page(
    State(shared): State<Arc<ConsoleState>>,
    Asked(depths): Asked<Depths>,
    request: PageRequest,
) -> Response {
    shown(now(&shared, &depths, &request).await, &shared, &request)
}

async fn now(shared: &ConsoleState, depths: &Depths, request: &PageRequest) -> Shown {
    let reading = shared.readings.get(&shared.watched, Tables::All, depths.depth()).await?;
    let delays = shared.delays().await?;
    let now = shared.watched.env.now();
    let seen = &reading.overview;
    let groups = seen.groups();
    let (urgent, quiet): (Vec<_>, Vec<_>) = groups.iter().partition(|group| group.kind.is_trouble());
    let count_of = |kind: Kind| if kind == Kind::Parked { seen.parked.len() } else { seen.count(kind) } as u64;
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Idle);
    let tiles: Vec<(Kind, u64)> = kinds.map(|kind| (kind, count_of(kind))).collect();
    let body = html! {
        h1 { (headline(&reading, urgent.is_empty())) }
        (destinations_down(&delays, now))
        (sources_paused(&delays, &shared.watched.option))
        ul.tiles aria-label="How many" {
            @for (kind, number) in tiles {
                li class=[(number == 0).then_some("zero")] {
                    a href={ "/group?state=" (encoded(kind.as_str())) } title=(kind.phrase()) {
                        strong { (at_least(&reading, kind)) (grouped(number)) } " " (badge(kind))
                        @if number > 0 && kind.phrase() != kind.as_str() { " " small { (kind.phrase()) } }
                    }
                }
            }
            li { span { strong { (at_least(&reading, Kind::Idle)) (grouped(seen.orders)) } " " span.badge.none { "orders" } } }
        }
        @if !urgent.is_empty() {
            h2 { "By source and error" }
            @for group in &urgent { (card(group, &reading, &delays, now)) }
        }
        @if !quiet.is_empty() {
            h2 { "In progress" }
            @for group in &quiet { (card(group, &reading, &delays, now)) }
        }
        (oldest(&reading, &delays, now))
        (read(&reading, "/?read=all"))
    };
    Ok(page_of("Now", Tab::Now, shared, &reading, depths.depth()).around(shared, request, &body))
}

fn destinations_down(delays: &SourceDelays, now: Timestamp) -> Markup {
    html! {
        @for outage in &delays.outages {
            p.error { (timed(&outage::sentence(outage, delays.tries(outage), now))) "." }
        }
    }
}

fn sources_paused(delays: &SourceDelays, option: &str) -> Markup {
    html! {
        @if let Err(reason) = &delays.sources { p.error { "Paused and removed sources are not known: " (reason) "." } }
        @for source in delays.paused() {
            p.why {
                "The source " strong { (source) } " is paused: its deliveries wait. "
                code { (command_line("source resume", option, &[source.as_str()])) } " ends the pause."
            }
        }
    }
}

fn headline(reading: &StoreReading, is_well: bool) -> String {
    let seen = &reading.overview;
    let orders = |kind| (kind, seen.count(kind), ("order", "orders"));
    let counts = [
        orders(Kind::Blocked),
        (Kind::Parked, seen.parked.len(), ("delivery", "deliveries")),
        orders(Kind::OnHold),
        orders(Kind::Failing),
        orders(Kind::Unavailable),
        orders(Kind::Abandoned),
    ];
    let present = counts.into_iter().filter(|(_, count, _)| *count > 0);
    let parts: Vec<String> = present
        .map(|(kind, number, (one, many))| {
            format!("{}{} {}", at_least(reading, kind), count(number as u64, one, many), kind.phrase())
        })
        .collect();
    match (parts.is_empty(), is_well && (reading.unread.is_empty() || reading.knows_trouble())) {
        (true, true) => "No order is stopped or failing".to_owned(),
        (true, false) => "Nothing blocked or parked was found so far".to_owned(),
        (false, _) => parts.join(", "),
    }
}

/// Returns the words in front of a number that an incomplete reading counted.
fn at_least(reading: &StoreReading, kind: Kind) -> &'static str {
    if reading.is_part_of(kind) { "at least " } else { "" }
}

fn group_path(page: &str, group: &StatusGroup) -> String {
    let source = group.source.as_ref().map(|source| format!("&source={source}")).unwrap_or_default();
    let error = group.error.as_ref().map(|error| format!("&error={}", encoded(error))).unwrap_or_default();
    format!("/{page}?state={}{source}{error}", encoded(group.kind.as_str()))
}

fn card(group: &StatusGroup, reading: &StoreReading, delays: &SourceDelays, now: Timestamp) -> Markup {
    let selection = NowParameters {
        state: group.kind.as_str().to_owned(),
        source: Some(group.source.as_ref().map_or_else(String::new, ToString::to_string)),
        error: Some(group.error.clone().unwrap_or_default()),
        read: String::new(),
    };
    let entries = selection.entries(reading);
    let source = group.source.as_ref().map_or("source not read", |source| source.as_str());
    let least = at_least(reading, group.kind);
    let is_part = reading.is_part_of(group.kind);
    html! {
        details.card data-key=(group_path("group", group)) {
            summary data-row {
                (badge(group.kind))
                span.what {
                    span.source { (source) }
                    @if let Some(error) = &group.error { span.error { (error) } }
                }
                span.numbers {
                    span { (least) (count(group.orders, "order", "orders")) }
                    span { (least) (count(group.deliveries, "delivery", "deliveries")) (group.of_others()) }
                    @if let Some(oldest) = group.oldest { span { "oldest " (ago(oldest, now)) } }
                }
            }
            (listed(&entries[..entries.len().min(FIRST)], delays, now))
            p.actions {
                @if group.kind == Kind::Parked && !group.example.0.is_unrouted() {
                    a.button.main href=(group_path("redrive", group)) { "Redrive " (all(group.deliveries, is_part)) "…" }
                    " "
                }
                a.button href=(group_path("group", group)) { "List " (all(group.orders, is_part)) }
            }
        }
    }
}

fn all(count: u64, is_part: bool) -> String {
    match count {
        _ if is_part => "all".to_owned(),
        1 => "it".to_owned(),
        _ => format!("all {}", grouped(count)),
    }
}

#[derive(Clone, Copy)]
enum NowEntry<'a> {
    Order(&'a OrderSummary),
    Parked(&'a ParkedDelivery),
}

impl NowEntry<'_> {
    fn since(&self) -> Option<Timestamp> {
        match self {
            NowEntry::Order(lane) => lane.since(),
            NowEntry::Parked(aside) => aside.since,
        }
    }

    fn entity(&self) -> &EntityKey {
        match self {
            NowEntry::Order(lane) => &lane.state.entity,
            NowEntry::Parked(aside) => &aside.entity,
        }
    }
}

fn listed(entries: &[NowEntry<'_>], delays: &SourceDelays, now: Timestamp) -> Markup {
    html! {
        table.rows {
            thead { tr { th { "Order" } th { "State" } th.n { "Since" } th { "Reason" } } }
            tbody {
                @for entry in entries {
                    @match entry {
                        NowEntry::Order(lane) => {
                            tr {
                                td.key { a data-row href=(order_path(&lane.state.entity)) { (lane.state.entity) } }
                                td { (badge(lane.kind)) @if lane.state.waiting() > 0 { " " span.dim { (lane.state.waiting()) "\u{a0}waiting" } } }
                                td.n { @if let Some(since) = lane.since() { (ago(since, now)) } }
                                td { (timed(&reason(lane, delays, now))) }
                            }
                        }
                        NowEntry::Parked(one) => {
                            tr {
                                td.key { a data-row href=(delivery_path(&one.entity, one.sequence)) { (one.entity) " " (position(one.sequence)) } }
                                td { (badge(Kind::Parked)) " " span.dim { (one.topic) } }
                                td.n { @if let Some(since) = one.since { (ago(since, now)) } }
                                td { (one.error) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn reason(lane: &OrderSummary, delays: &SourceDelays, now: Timestamp) -> String {
    let next = lane.source.as_ref().filter(|_| !lane.state.is_empty());
    let delay = next.and_then(|source| delays.of_order(source, &lane.state, now));
    lane.status(None, now).with_delay(delay.as_ref(), now).summary()
}

fn oldest(reading: &StoreReading, delays: &SourceDelays, now: Timestamp) -> Markup {
    let mut entries: BTreeMap<(Timestamp, &EntityKey), NowEntry<'_>> = BTreeMap::new();
    for lane in &reading.overview.lanes {
        entries.extend(lane.since().map(|since| ((since, &lane.state.entity), NowEntry::Order(lane))));
    }
    let oldest: Vec<NowEntry<'_>> = entries.into_values().take(OLDEST).collect();
    html! {
        @if !oldest.is_empty() {
            h2 { "Waiting longest" }
            (listed(&oldest, delays, now))
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct NowParameters {
    #[serde(default)]
    state: String,
    source: Option<String>,
    error: Option<String>,
    #[serde(default)]
    read: String,
}

impl NowParameters {
    fn includes(&self, source: Option<&str>, error: Option<&str>) -> bool {
        // An empty value selects entries without a source.
        self.source.as_deref().is_none_or(|wanted| source.unwrap_or_default() == wanted)
            && self.error.as_deref().is_none_or(|wanted| error.map(alike).unwrap_or_default() == wanted)
    }

    fn entries<'a>(&self, reading: &'a StoreReading) -> Vec<NowEntry<'a>> {
        let seen = &reading.overview;
        let lanes = seen.lanes.iter().filter(|lane| {
            lane.kind.as_str() == self.state
                && self.includes(lane.source.as_ref().map(|source| source.as_str()), lane.error())
        });
        let aside = seen.parked.iter().filter(|one| {
            self.state == Kind::Parked.as_str() && self.includes(Some(one.source.as_str()), Some(&one.error))
        });
        let mut entries: Vec<NowEntry<'a>> = lanes.map(NowEntry::Order).chain(aside.map(NowEntry::Parked)).collect();
        entries.sort_by(|left, right| (left.since(), left.entity()).cmp(&(right.since(), right.entity())));
        entries
    }
}

pub(super) async fn group(
    State(shared): State<Arc<ConsoleState>>,
    Asked(selection): Asked<NowParameters>,
    request: PageRequest,
) -> Response {
    shown(one_group(&shared, &selection, &request).await, &shared, &request)
}

async fn one_group(shared: &ConsoleState, selection: &NowParameters, request: &PageRequest) -> Shown {
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.as_str() == selection.state) else {
        let kinds: Vec<&str> = Kind::ALL.into_iter().map(Kind::as_str).collect();
        return Err(Problem::Malformed(format!(
            "No order state is called {}. The states are {}.",
            quoted(&selection.state),
            kinds.join(", ")
        )));
    };
    let depth = Depths { read: selection.read.clone() }.depth();
    let reading = shared.readings.get(&shared.watched, Tables::All, depth).await?;
    let now = shared.watched.env.now();
    let entries = selection.entries(&reading);
    let query = |name: &str, value: &Option<String>| {
        value.as_ref().map(|value| format!("&{name}={}", encoded(value))).unwrap_or_default()
    };
    let query = format!(
        "?state={}{}{}",
        encoded(&selection.state),
        query("source", &selection.source),
        query("error", &selection.error)
    );
    let delays = match kind {
        Kind::Parked => SourceDelays { sources: Ok(None), outages: Vec::new() },
        _ => shared.delays().await?,
    };
    let (one, many) = if kind == Kind::Parked { ("delivery", "deliveries") } else { ("order", "orders") };
    let counted = format!("{}{}", at_least(&reading, kind), count(entries.len() as u64, one, many));
    let body = html! {
        h1 { (badge(kind)) " " (counted) @if kind.phrase() != kind.as_str() { " " (kind.phrase()) } }
        @if kind == Kind::Unavailable { (destinations_down(&delays, now)) }
        @if let Some(source) = selection.source.as_ref().filter(|source| !source.is_empty()) { p { "Sent by " strong { (source) } } }
        @if let Some(error) = selection.error.as_ref().filter(|error| !error.is_empty()) { p.error { (error) } }
        @if kind == Kind::Parked && entries.iter().any(|entry| !entry.entity().is_unrouted()) {
            p { a.button.main href={ "/redrive" (query) } { "Redrive " (all(entries.len() as u64, reading.is_part_of(kind))) "…" } }
        }
        @if entries.is_empty() {
            p { "This list is empty " @if reading.is_part_of(kind) { "so far." } @else { "now." } }
        } @else {
            (listed(&entries[..entries.len().min(LISTED)], &delays, now))
        }
        @if entries.len() > LISTED { p { "and " (grouped((entries.len() - LISTED) as u64)) " newer ones." } }
        (read(&reading, &format!("/group{query}&read=all")))
    };
    Ok(page_of(&format!("{} orders", selection.state), Tab::Now, shared, &reading, depth)
        .around(shared, request, &body))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use webhook_serializer::{
        operator::Estimate,
        protocol::{
            attempt::{FailureClass, Retries},
            entity::Sequence,
            format::{FORMAT, attribute as a},
            keys::parked_row,
            table::Row,
        },
    };

    use super::*;
    use crate::view::{overview::Overview, summary::summary};

    fn reading(unread: &[&'static str]) -> StoreReading {
        let mut overview = Overview::default();
        let order = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
        overview.order(&order.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32).with(a::BLOCKED, "attempts"), NOW);
        for sequence in [1, 2, 3] {
            let row = parked_row(&EntityKey::parse("shop/order/1").unwrap(), Sequence(sequence)).to_row();
            let row = row.with(a::VERSION, FORMAT).with(a::NONCE, "1").with(a::SOURCE, "shop").with(a::TOPIC, "t");
            let row = row.with(a::DELIVERY_ID, "1").with(a::RECEIVED_AT, 1_u32).with(a::BODY_BYTES, 0_u32);
            overview.delivery(&row.with(a::ENCODING, "plain").with(a::ERROR, "bad"));
        }
        let unread = unread.iter().map(|what| (*what, Estimate::About(2_000))).collect();
        StoreReading {
            at: NOW,
            took: Duration::ZERO,
            orders: Vec::new(),
            overview,
            units: 1_000,
            unread,
            knows_held: false,
            knows_waits: false,
            no_index: None,
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    /// Promise: `status` and the console use the same words for a state.
    #[test]
    fn headline_and_status_use_the_same_words() {
        let order = |number: u32| {
            let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, format!("shop/order/{number}"));
            row.with(a::TAIL, 4_u32).with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)
        };
        let unavailable = Retries::default().after(FailureClass::Unavailable, Duration::from_secs(9));
        let failed = |number| order(number).with(a::LAST_ERROR, "no").with(a::RETRY_AT, 1_004_000_u32);
        let lost = order(5).with(a::HOLDER, "h").with(a::KIND, "drain").with(a::HOLDER_INFO, "worker 3");
        let mut reading = reading(&[]);
        for row in [
            order(2).with(a::HOLD, 940_000_u32),
            failed(3).with(a::ATTEMPTS, 1_u32),
            failed(4).with(a::RETRIES, unavailable.to_stored().unwrap()),
            lost.with(a::EXPIRES_AT, 900_000_u32),
        ] {
            reading.overview.order(&row, NOW);
        }
        let headline = headline(&reading, false);
        let status = summary(&reading.overview, true, true);
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_trouble() && *kind != Kind::Leased);
        for kind in kinds {
            assert!(headline.contains(kind.phrase()), "{kind:?}: {headline}");
            assert!(status.contains(kind.phrase()), "{kind:?}: {status}");
        }
        assert!(status.contains("1 is blocked, 1 is "), "{status}");
        reading.overview.order(&order(6).with(a::BLOCKED, "attempts").with(a::HOLD, 940_000_u32), NOW);
        let both = summary(&reading.overview, true, true);
        assert!(both.contains("2 are blocked (1 also on hold)"), "{both}");
    }

    #[test]
    fn numbers_of_an_incomplete_reading_are_lower_bounds() {
        let told = |unread: &[&'static str]| headline(&reading(unread), false);
        assert_eq!(told(&[]), "1 order blocked, 3 deliveries parked");
        assert_eq!(told(&["the parked deliveries"]), "1 order blocked, at least 3 deliveries parked");
        let both = told(&["the orders", "the parked deliveries"]);
        assert_eq!(both, "at least 1 order blocked, at least 3 deliveries parked");
        let reading = reading(&["the parked deliveries"]);
        let groups = reading.overview.groups();
        let delays = SourceDelays { sources: Ok(None), outages: Vec::new() };
        let parked = groups.iter().find(|group| group.kind == Kind::Parked).unwrap();
        let card = card(parked, &reading, &delays, NOW).into_string();
        assert!(card.contains(">at least 3 deliveries<") && card.contains("Redrive all…"), "{card}");
    }
}
