//! The page of figures: charts of the last minutes, the jobs, and the held leases.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;
use webhook_serializer::{
    jobs::roster,
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::{Receipt, Settlement},
        state::{EntityState, LeaseKind},
    },
    time::Timestamp,
};

use super::{
    super::{
        ConsoleState,
        frame::{PageRequest, Tab, ago, badge, order_path, read, timed},
        plot::{PlotLine, Unit, lines},
        reading::{ReadingDepth, StoreReading, Tables},
        request::Asked,
    },
    Shown, page_of, shown,
};
use crate::{
    output::duration,
    view::{
        job,
        order_status::Kind,
        recording::{EventKind, EventRecorder},
        throughput::LAG,
    },
};

const STEPS: usize = 60;
const SOURCES: usize = 6;

const LISTED: usize = 50;

#[derive(Debug, Deserialize)]
pub(super) struct FiguresParameters {
    minutes: Option<u64>,
    #[serde(default)]
    read: String,
}

pub(super) async fn page(
    State(shared): State<Arc<ConsoleState>>,
    Asked(parameters): Asked<FiguresParameters>,
    request: PageRequest,
) -> Response {
    shown(figures(&shared, &parameters, &request).await, &shared, &request)
}

async fn figures(shared: &ConsoleState, parameters: &FiguresParameters, request: &PageRequest) -> Shown {
    let default = if shared.watched.story.is_some() { 5 } else { 60 };
    let minutes = parameters.minutes.unwrap_or(default).clamp(1, 24 * 60);
    let length = Duration::from_secs(60 * minutes);
    let depth = if parameters.read == "all" { ReadingDepth::Whole } else { ReadingDepth::Free };
    let reading = shared.readings.get(&shared.watched, Tables::Orders, depth).await?;
    let listed = roster::listed(&shared.watched.store).await?;
    let now = shared.watched.env.now();
    let mut rates = RateSteps { steps: BTreeMap::new(), now: now.as_millis(), length, known_since: None };
    match &shared.watched.story {
        Some(story) => rates.add_recording(story),
        None => {
            let mut receipts = reading.orders.iter().flat_map(|state| state.recent.iter());
            let with_parked = match receipts.any(|receipt| receipt.settlement == Settlement::Parked) {
                true => shared.readings.with_parked(&shared.watched).await?,
                false => reading.clone(),
            };
            let parked = with_parked.overview.parked.iter();
            let parked_at = parked.filter_map(|one| Some(((&one.entity, one.sequence), one.since?))).collect();
            reading.orders.iter().for_each(|state| rates.add_row(state, &parked_at));
        }
    }
    let per = length / STEPS as u32;
    let deliveries = format!("deliveries in {}", duration(per));
    let failures = format!("attempts in {}", duration(per));
    let time = |step: &ChartStep| (step.times > 0).then(|| step.time.as_secs_f64() / f64::from(step.times));
    // Rows show how long handlers ran, but not when deliveries were accepted.
    let title = if shared.watched.story.is_some() { "Lag" } else { "Handler time" };
    // Rows do not show what was accepted.
    let accepted = shared
        .watched
        .story
        .as_ref()
        .map(|_| ("Accepted", &*deliveries, Unit::Count, rates.lines(|step| Some(f64::from(step.accepted)))));
    let others = [
        ("Settled", &*deliveries, Unit::Count, rates.lines(|step| Some(f64::from(step.settled)))),
        (title, "mean", Unit::Seconds, rates.lines(time)),
        ("Failed attempts", &*failures, Unit::Count, rates.lines(|step| Some(f64::from(step.failed)))),
    ];
    let plots: Vec<_> = accepted.into_iter().chain(others).collect();
    let body = html! {
        h1 { "The last " (minutes) " minutes" }
        p.actions {
            @for (minutes, name) in [(5, "5 min"), (15, "15 min"), (60, "1 h"), (360, "6 h"), (1440, "1 day")] {
                a.button href={ "/figures?minutes=" (minutes) } aria-current=[(Duration::from_secs(minutes * 60) == length).then_some("true")] { (name) } " "
            }
        }
        div.plots {
            @for (title, what, unit, of) in &plots {
                (lines(title, what, *unit, of, length))
            }
        }
        p.read {
            @if shared.watched.story.is_some() { "Lag is " (LAG) ", and here a mean; " code { "serializer status" } " shows the median and the longest. The counts begin with this process's start." }
            @else { "The counts come from the newest deliveries in the orders' rows, by the first part of the keys. " code { "serializer status" } " shows the lag, which is " (LAG) ". The stack's dashboard shows accepted webhooks and longer periods." }
        }
        (jobs_table(&listed, now))
        (held(&reading, now))
        (read(&reading, &format!("/figures?minutes={minutes}&read=all")))
    };
    Ok(page_of("Figures", Tab::Figures, shared, &reading, depth).around(shared, request, &body))
}

#[derive(Debug, Clone, Copy, Default)]
struct ChartStep {
    accepted: u32,
    settled: u32,
    failed: u32,
    time: Duration,
    times: u32,
}

struct RateSteps {
    steps: BTreeMap<String, [ChartStep; STEPS]>,
    now: u64,
    length: Duration,
    /// The time since which all events are counted, in milliseconds since the Unix epoch. Earlier steps of the chart
    /// have no values. `None` if the counts come from the orders' rows.
    known_since: Option<u64>,
}

impl RateSteps {
    fn at(&mut self, source: &str, at: u64) -> Option<&mut ChartStep> {
        let length = self.length.as_millis() as u64;
        let from = self.now.saturating_sub(length);
        let step = at.checked_sub(from)? * STEPS as u64 / length.max(1);
        let steps = self.steps.entry(source.to_owned()).or_insert([ChartStep::default(); STEPS]);
        steps.get_mut(usize::try_from(step).ok()?.min(STEPS - 1))
    }

    fn add_recording(&mut self, story: &EventRecorder) {
        let offset = self.now.saturating_sub(story.now().as_millis() as u64);
        self.known_since = Some(story.began().as_millis() as u64 + offset);
        let mut accepted: BTreeMap<(EntityKey, _), u64> = BTreeMap::new();
        for happening in story.since(0) {
            let at = happening.at.as_millis() as u64 + offset;
            let source = story.source(&happening.entity);
            let source = source.as_ref().map_or("?", |source| source.as_str());
            let place = (happening.entity.clone(), happening.sequence);
            if happening.what == EventKind::Accepted {
                accepted.insert(place.clone(), at);
            }
            let Some(step) = self.at(source, at) else { continue };
            match happening.what {
                EventKind::Accepted => step.accepted += 1,
                EventKind::Failed { .. } => step.failed += 1,
                EventKind::Settled(settlement) => {
                    step.settled += 1;
                    if settlement == Settlement::Parked {
                        step.failed += 1;
                    }
                    if let Some(since) = accepted.remove(&place) {
                        step.time += Duration::from_millis(at.saturating_sub(since));
                        step.times += 1;
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds an order's receipts. `parked_at` has the times at which the deliveries that are still parked were parked.
    fn add_row(&mut self, state: &EntityState, parked_at: &HashMap<(&EntityKey, Sequence), Timestamp>) {
        let source = state.entity.as_str().split('/').next().unwrap_or_default();
        for receipt in state.recent.iter() {
            // A rewind settles parked deliveries again.
            let failed_at = parked_at.get(&(&state.entity, receipt.sequence)).unwrap_or(&receipt.settled_at);
            if let Some(step) = self.at(source, failed_at.as_millis()) {
                step.failed += failed_attempts(receipt);
            }
            let Some(step) = self.at(source, receipt.settled_at.as_millis()) else { continue };
            step.settled += 1;
            if let Some(took) = receipt.took {
                step.time += took;
                step.times += 1;
            }
        }
    }

    /// Returns the index of the first step whose counts are known. Rows keep only the newest receipts, so the counts of
    /// earlier steps may be too low.
    fn first_known(&self, steps: &[ChartStep; STEPS]) -> usize {
        let Some(since) = self.known_since else {
            return steps.iter().position(|step| step.settled > 0).unwrap_or(STEPS);
        };
        let length = self.length.as_millis() as u64;
        let at = since.saturating_sub(self.now.saturating_sub(length)) * STEPS as u64 / length.max(1);
        usize::try_from(at).unwrap_or(STEPS)
    }

    fn lines(&self, value: impl Fn(&ChartStep) -> Option<f64>) -> Vec<PlotLine> {
        let mut busiest: Vec<_> = self.steps.iter().collect();
        busiest.sort_by_key(|(_, steps)| std::cmp::Reverse(steps.iter().map(|step| step.settled).sum::<u32>()));
        busiest.truncate(SOURCES);
        busiest.sort_by_key(|(name, _)| *name);
        let line = |(name, steps): (&String, &[ChartStep; STEPS])| {
            let first = self.first_known(steps);
            let value = |(at, step): (usize, &ChartStep)| value(step).filter(|_| at >= first);
            PlotLine { name: name.clone(), values: steps.iter().enumerate().map(value).collect() }
        };
        busiest.into_iter().map(line).collect()
    }
}

/// Returns the number of failed attempts that ended with this settlement.
fn failed_attempts(receipt: &Receipt) -> u32 {
    match receipt.settlement {
        Settlement::Parked => receipt.attempts,
        // A rewound delivery that is settled again without a start keeps its earlier attempts.
        Settlement::Applied if receipt.took.is_some() => receipt.attempts.saturating_sub(1),
        _ => 0,
    }
}

fn jobs_table(listed: &[roster::Listed], now: Timestamp) -> Markup {
    html! {
        h2 { "Jobs" }
        @if listed.is_empty() {
            p { "There are no jobs. A scheduler registers its jobs in its first minute." }
        } @else {
            table.rows {
                thead { tr { th { "Job" } th { "Schedule" } th { "Last" } th { "Result" } th { "Next" } th { "Holder" } } }
                tbody {
                    @for job in listed {
                        tr {
                            td.key { (job.name) }
                            td { code { (job::schedule(job)) } }
                            td { (timed(&job::last(job))) }
                            td { (job::result(job)) }
                            td { (timed(&job::next(job, now))) }
                            td { (job::holder(job, now)) }
                        }
                    }
                }
            }
        }
    }
}

fn held(reading: &StoreReading, now: Timestamp) -> Markup {
    let held: Vec<_> = reading.orders.iter().filter_map(|state| Some((state, state.held.as_ref()?))).collect();
    html! {
        h2 { "Leases held" }
        @if held.is_empty() {
            p { "None." }
        } @else {
            table.rows {
                thead { tr { th { "Order" } th { "Holder" } th { "Kind" } th.n { "Left" } th.n { "Token" } } }
                tbody {
                    @for (state, held) in held.iter().take(LISTED) {
                        tr {
                            td.key { a data-row href=(order_path(&state.entity)) { (state.entity) } }
                            td { (state.holder_info.as_ref().map_or("unknown", |info| info.as_str())) }
                            td { @if held.kind == LeaseKind::Drain { "drain" } @else { "exclusive" } }
                            td.n {
                                @if held.expires_at > now { (duration(held.expires_at.since(now))) }
                                @else { (badge(Kind::Abandoned)) " " (ago(held.expires_at, now)) " ago" }
                            }
                            td.n { (state.token) }
                        }
                    }
                }
            }
            @if held.len() > LISTED { p { "and " (held.len() - LISTED) " more." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        entity::FencingToken,
        format::{FORMAT, attribute as a},
        table::Row,
    };

    use super::*;

    const MINUTE: u64 = 60_000;

    /// Returns the failed attempts of each minute of the last hour that has some. The order's receipts are of the
    /// given outcomes, attempts, settle times and run times, both in minutes.
    fn failed(receipts: &[(Settlement, u32, u64, Option<u64>)], parked_at: &[(u64, u64)]) -> Vec<(usize, u32)> {
        let minutes = |minutes: u64| Timestamp::from_millis(minutes * MINUTE);
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TOKEN, 9_u32);
        let last = receipts.len() as u32;
        let mut state = EntityState::parse(&row.with(a::TAIL, last).with(a::HEAD, last)).unwrap();
        for (sequence, (settlement, attempts, settled_at, took)) in (1..).map(Sequence).zip(receipts) {
            let receipt = Receipt {
                sequence,
                identity: None,
                settlement: *settlement,
                token: FencingToken(9),
                attempts: *attempts,
                settled_at: minutes(*settled_at),
                took: took.map(|took| Duration::from_millis(took * MINUTE)),
            };
            state.recent = state.recent.with(receipt, Duration::ZERO);
        }
        let parked_at = parked_at.iter().map(|(sequence, at)| ((&state.entity, Sequence(*sequence)), minutes(*at)));
        let length = Duration::from_millis(60 * MINUTE);
        let mut rates = RateSteps { steps: BTreeMap::new(), now: 60 * MINUTE, length, known_since: None };
        rates.add_row(&state, &parked_at.collect());
        let steps = rates.steps["shop"].iter().enumerate().map(|(at, step)| (at, step.failed));
        steps.filter(|(_, failed)| *failed > 0).collect()
    }

    #[test]
    fn every_attempt_of_a_parked_delivery_failed() {
        assert_eq!(failed(&[(Settlement::Parked, 3, 20, None)], &[(1, 20)]), [(20, 3)]);
        assert_eq!(failed(&[(Settlement::Parked, 1, 20, None)], &[]), [(20, 1)]);
        assert_eq!(failed(&[(Settlement::Applied, 3, 20, Some(1))], &[]), [(20, 2)]);
        assert!(failed(&[(Settlement::Parked, 0, 20, None)], &[]).is_empty(), "skipped before its first attempt");
    }

    #[test]
    fn rewind_counts_no_attempt_from_before_it() {
        let rewound = [
            (Settlement::Applied, 2, 50, Some(1)),
            (Settlement::Parked, 3, 50, None),
            (Settlement::Applied, 4, 51, None),
        ];
        assert_eq!(failed(&rewound, &[(2, 10)]), [(10, 3), (50, 1)]);
    }
}
