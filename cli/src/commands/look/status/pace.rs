//! Shows how many deliveries of each source were accepted and settled in the last minutes, and their lag.

use std::collections::BTreeMap;

use console::style;
use serde_json::{Value, json};
use serializer::{
    output::{self, Table, duration},
    say,
    view::throughput::{LAG, Paced, WINDOW},
};
use webhook_serializer::{protocol::entity::SourceName, time::Timestamp};

use crate::commands::survey::{PARKED, Survey};

#[derive(Debug, Default)]
struct SourceFigures {
    paced: Paced,
    waiting: u64,
    oldest: Option<Timestamp>,
}

fn figures(survey: &Survey) -> Vec<(Option<SourceName>, SourceFigures)> {
    let mut figures: BTreeMap<Option<SourceName>, SourceFigures> = BTreeMap::new();
    for (source, paced) in survey.overview.pace.by_source() {
        figures.entry(source).or_default().paced = paced;
    }
    for lane in survey.overview.lanes.iter().filter(|lane| !lane.state.is_empty()) {
        let mut add = |source: Option<&SourceName>, deliveries: u64, oldest: Option<Timestamp>| {
            let one = figures.entry(source.cloned()).or_default();
            one.waiting += deliveries;
            one.oldest = one.oldest.into_iter().chain(oldest).min();
        };
        for (source, waiting) in &lane.waiting {
            add(Some(source), waiting.deliveries, waiting.oldest);
        }
        let read: u64 = lane.waiting.values().map(|waiting| waiting.deliveries).sum();
        // The others were not read, or were not written yet.
        if read < lane.state.waiting() {
            add(None, lane.state.waiting() - read, lane.since().filter(|_| lane.waiting.is_empty()));
        }
    }
    let mut figures: Vec<_> = figures.into_iter().collect();
    figures.sort_by_key(|(source, _)| source.is_none());
    figures
}

/// The state of the estimates of rates and lag, which need the rows of all deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rates {
    /// The rows were read, at least in part.
    Known,
    /// Not with the option --no-parked.
    LeftOut,
    /// Reading them would have taken more than a command spends without being asked.
    TooDear,
}

/// Prints rates and lag by source.
pub fn print(survey: &Survey, rates: Rates, now: Timestamp) {
    let pace = &survey.overview.pace;
    let window = duration(WINDOW);
    if rates != Rates::Known {
        if pace.settled() > 0 {
            let at_least = if pace.is_at_least() { "at least " } else { "" };
            let unknown = match rates {
                Rates::LeftOut => "With --no-parked, lag and accepted deliveries are unknown.",
                _ => "With --yes, all deliveries are read too, for lag and accepted deliveries.",
            };
            say!("In the last {window} {at_least}{} settled. {unknown}", some(pace.settled()));
        }
        return;
    }
    let figures = figures(survey);
    if figures.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["source", ">accepted", ">settled", ">median lag", ">longest lag", ">waiting", ">oldest waiting"]);
    for (source, SourceFigures { paced, waiting, oldest }) in &figures {
        let (median, longest) =
            paced.lag.map(|(median, longest)| (duration(median), duration(longest))).unwrap_or_default();
        table.row([
            source.as_ref().map_or("?", SourceName::as_str).to_owned(),
            paced.accepted.to_string(),
            paced.settled.to_string(),
            median,
            longest,
            waiting.to_string(),
            oldest.map(|at| duration(now.since(at))).unwrap_or_default(),
        ]);
    }
    say!();
    output::print(table);
    let part = if survey.unread.contains(&PARKED) {
        "at least this many, because not all rows were read"
    } else {
        "an estimate"
    };
    let words = format!("accepted and settled count the last {window} ({part}); lag is {LAG}");
    say!("{}", style(words).dim());
}

fn some(count: u64) -> String {
    if count == 1 { "1 delivery was".to_owned() } else { format!("{count} deliveries were") }
}

pub fn as_json(survey: &Survey, deliveries: bool) -> Value {
    let pace = &survey.overview.pace;
    let is_at_least = if deliveries { survey.unread.contains(&PARKED) } else { pace.is_at_least() };
    let mut value = json!({
        "seconds": WINDOW.as_secs(), "settled": pace.settled(), "is_at_least": is_at_least, "sources": null,
    });
    if deliveries {
        let one = |(source, figures): &(Option<SourceName>, SourceFigures)| {
            let millis =
                figures.paced.lag.map(|(median, longest)| (median.as_millis() as u64, longest.as_millis() as u64));
            json!({
                "source": source, "accepted": figures.paced.accepted, "settled": figures.paced.settled,
                "lag_median_ms": millis.map(|lag| lag.0), "lag_longest_ms": millis.map(|lag| lag.1),
                "waiting": figures.waiting, "oldest_waiting": figures.oldest,
            })
        };
        value["sources"] = figures(survey).iter().map(one).collect();
    }
    value
}
