//! Draws charts as inline SVG: an order's timeline, and figures over time.

use std::time::Duration;

use maud::{Markup, html};
use webhook_serializer::{protocol::delivery::InboxItem, time::Timestamp};

use super::frame::{at, delivery_path};
use crate::{
    output::duration,
    view::{
        position::marked,
        timeline::{Timeline, outcome, waited},
        tone::Tone,
    },
};

const WIDTH: f64 = 1000.0;

struct Bar {
    path: String,
    title: String,
    arrived: Option<u64>,
    started: Option<u64>,
    ended: u64,
    class: &'static str,
}

pub(super) fn timeline(timeline: &Timeline, now: Timestamp) -> Markup {
    let mut bars: Vec<Bar> = Vec::new();
    for (sequence, past) in &timeline.settled {
        let Some(receipt) = &past.receipt else { continue };
        let delivery = past.delivery.as_ref();
        let topic = delivery.map_or("", |delivery| delivery.topic());
        let wait = waited(past).map(|wait| format!(", waited {}", duration(wait))).unwrap_or_default();
        let took = receipt.took.map(|took| format!(", took {}", duration(took))).unwrap_or_default();
        let entity = delivery.map(|delivery| delivery.entity());
        bars.push(Bar {
            path: entity.map(|entity| delivery_path(entity, *sequence)).unwrap_or_default(),
            title: format!("{} {topic}: {}{wait}{took}; sequence {sequence}", marked(*sequence), outcome(past).text),
            arrived: delivery.map(|delivery| delivery.received_at().as_millis()),
            started: receipt.started_at().map(Timestamp::as_millis),
            ended: receipt.settled_at.as_millis(),
            class: Tone::from(receipt.settlement).class(),
        });
    }
    for item in &timeline.inspected.waiting {
        let InboxItem::Delivery(unpacked) = item else { continue };
        let delivery = unpacked.head();
        bars.push(Bar {
            path: delivery_path(delivery.entity(), delivery.sequence()),
            title: format!("{} {}: waiting", marked(delivery.sequence()), delivery.topic()),
            arrived: Some(delivery.received_at().as_millis()),
            started: None,
            ended: now.as_millis(),
            class: "waiting",
        });
    }
    // More bars would be too thin.
    let bars = &bars[bars.len().saturating_sub(40)..];
    let from = bars.iter().map(|bar| bar.arrived.or(bar.started).unwrap_or(bar.ended)).min();
    let to = bars.iter().map(|bar| bar.ended).max();
    let (Some(from), Some(to)) = (from, to) else { return html! {} };
    let length = (to - from).max(1) as f64;
    let x = |at: u64| (at.saturating_sub(from) as f64 / length * (WIDTH - 8.0)) + 2.0;
    let height = 12 * bars.len() + 8;
    html! {
        figure.timeline {
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label={ (bars.len()) " deliveries in " (duration(Duration::from_millis(to - from))) } {
                @for (row, bar) in bars.iter().enumerate() {
                    @let y = 12 * row + 4;
                    @let begun = bar.started.unwrap_or(bar.ended);
                    a href=[(!bar.path.is_empty()).then_some(&bar.path)] tabindex="-1" {
                        title { (bar.title) }
                        @if let Some(arrived) = bar.arrived {
                            rect.wait x=(fixed(x(arrived))) y=(y + 4) width=(fixed((x(begun) - x(arrived)).max(1.0))) height="2" {}
                        }
                        rect class=(bar.class) x=(fixed(x(begun))) y=(y) width=(fixed((x(bar.ended) - x(begun)).max(4.0))) height="10" rx="2" {}
                    }
                }
            }
            div.ends aria-hidden="true" {
                @for part in 0..=4_u32 { span { "+" (duration(Duration::from_millis(to - from) * part / 4)) } }
            }
            figcaption { "Time since " (at(Timestamp::from_millis(from))) ". A thin line is a wait, a bar a handler's run." }
        }
    }
}

fn fixed(number: f64) -> String {
    format!("{number:.1}")
}

#[derive(Debug, Clone)]
pub(super) struct PlotLine {
    pub(super) name: String,
    /// One value for each step; `None` for a step without data.
    pub(super) values: Vec<Option<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Seconds,
}

impl Unit {
    fn label(self, value: f64) -> String {
        match self {
            Self::Count => short(value),
            Self::Seconds => duration(Duration::from_secs_f64(value)),
        }
    }
}

pub(super) fn lines(title: &str, what: &str, unit: Unit, lines: &[PlotLine], length: Duration) -> Markup {
    const HEIGHT: f64 = 160.0;
    let top = lines.iter().flat_map(|line| line.values.iter().flatten()).copied().fold(0.0, f64::max);
    let top = if top > 0.0 { rounded_up(top) } else { 1.0 };
    // A label at half of an odd count would not be a whole number.
    let half = Some(top / 2.0).filter(|half| unit == Unit::Seconds || half.fract() == 0.0);
    let steps = lines.iter().map(|line| line.values.len()).max().unwrap_or(1).max(2) - 1;
    let x = |step: usize| 4.0 + (400.0 - 8.0) * step as f64 / steps as f64;
    let y = |value: f64| HEIGHT - 4.0 - (HEIGHT - 12.0) * value / top;
    let last = |line: &PlotLine| line.values.iter().rev().flatten().next().map(|value| unit.label(*value));
    let is_empty = lines.iter().all(|line| line.values.iter().flatten().next().is_none());
    html! {
        figure.plot {
            figcaption { strong { (title) } span.dim { (what) } }
            @if is_empty {
                p.dim { "no data" }
            } @else {
                div.graph {
                    div.y aria-hidden="true" {
                        span { (unit.label(top)) }
                        span { @if let Some(half) = half { (unit.label(half)) } }
                        span { "0" }
                    }
                    svg viewBox={ "0 0 400 " (HEIGHT) } role="img" aria-label={ (title) ", " (what) ", the last " (duration(length)) } preserveAspectRatio="none" {
                        line.grid x1="0" x2="400" y1=(y(0.0)) y2=(y(0.0)) {}
                        line.grid x1="0" x2="400" y1=(y(top / 2.0)) y2=(y(top / 2.0)) {}
                        line.grid x1="0" x2="400" y1=(y(top)) y2=(y(top)) {}
                        @for (number, line) in lines.iter().enumerate() {
                            path class={ "line c" (number % 6) } d=(path(line, x, y)) {}
                        }
                    }
                }
                div.ends aria-hidden="true" { span { "−" (duration(length)) } span { "now" } }
                ul.names {
                    @for (number, line) in lines.iter().enumerate() {
                        li title="the newest value" { i class={ "c" (number % 6) } {} (line.name) " " span.dim { (last(line).as_deref().unwrap_or("no data")) } }
                    }
                }
            }
        }
    }
}

fn path(line: &PlotLine, x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut is_down = false;
    for (step, value) in line.values.iter().enumerate() {
        if let Some(value) = value {
            let verb = if is_down { 'L' } else { 'M' };
            path.push_str(&format!("{verb}{:.1} {:.1}", x(step), y(*value)));
        }
        is_down = value.is_some();
        // A path of no length would hide a single point.
        if is_down && line.values.get(step + 1).is_none_or(Option::is_none) {
            path.push_str("h0.1");
        }
    }
    path
}

/// Rounds a value up to the next of the numbers …, 0.5, 1, 2, 5, 10, 20, …
fn rounded_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let of = value / power;
    power
        * if of <= 1.0 {
            1.0
        } else if of <= 2.0 {
            2.0
        } else if of <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn short(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_axis_ends_at_a_round_number() {
        assert_eq!([0.03, 1.0, 1.2, 4.9, 51.0, 230.0].map(rounded_up), [0.05, 1.0, 2.0, 5.0, 100.0, 500.0]);
    }

    #[test]
    fn chart_without_data_says_no_data() {
        let line = |values| [PlotLine { name: "shopify".to_owned(), values }];
        let drawn = |values| lines("Lag", "mean", Unit::Seconds, &line(values), Duration::from_secs(300)).into_string();
        let empty = drawn(vec![None, None]);
        assert!(empty.contains("no data") && !empty.contains("<svg") && !empty.contains('0'), "{empty}");
        let zero = drawn(vec![None, Some(0.0)]);
        assert!(zero.contains("<svg") && zero.contains(">0 ms<") && !zero.contains("no data"), "{zero}");
        let some = drawn(vec![Some(0.03), None]);
        for label in [">50 ms<", ">25 ms<", ">−5 min<", ">now<"] {
            assert!(some.contains(label), "{label}: {some}");
        }
    }

    #[test]
    fn chart_line_stops_where_data_is_missing() {
        let line = PlotLine { name: String::new(), values: vec![Some(1.0), Some(2.0), None, Some(3.0)] };
        let path = path(&line, |step| step as f64, |value| value);
        assert_eq!(path, "M0.0 1.0L1.0 2.0h0.1M3.0 3.0h0.1");
    }
}
