//! A diagram of events: each order has a lane with spans and marks on a common time axis. `terminal.rs` and `svg.rs`
//! draw the diagram.

pub mod svg;
pub mod terminal;

use std::{collections::BTreeMap, time::Duration};

use webhook_serializer::protocol::{
    entity::{EntityKey, FencingToken, Sequence},
    receipt::Settlement,
};

use super::{
    order_status::Kind,
    recording::{EventKind, RecordedEvent},
    tone::Tone,
};

/// A diagram with one lane for each order. The lanes are sorted by the orders' first events.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    pub lanes: Vec<Lane>,
    pub from: Duration,
    pub to: Duration,
    pub totals: LaneTotals,
}

#[derive(Debug, Clone)]
pub struct Lane {
    pub entity: EntityKey,
    pub spans: Vec<Span>,
    pub marks: Vec<Mark>,
    pub totals: LaneTotals,
}

#[derive(Debug, Clone)]
pub struct Span {
    /// The delivery's sequence. For a group, this is the last sequence.
    pub sequence: Sequence,
    pub name: String,
    pub from: Duration,
    /// The end of the span. A span that has not ended extends to the end of the diagram.
    pub to: Duration,
    pub is_open: bool,
    pub kind: LaneSpanKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneSpanKind {
    Waiting,
    /// The last attempt failed, and the delivery waits for the next attempt.
    Retrying,
    /// The holder died, and the order waits until the lease expires.
    Orphaned,
    Running,
}

#[derive(Debug, Clone)]
pub struct Mark {
    pub name: String,
    pub at: Duration,
    pub kind: MarkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    Repeat,
    Parked,
    Superseded,
    Blocked,
    Failed,
    TakenOver,
}

impl MarkKind {
    pub fn of(settlement: Settlement) -> Option<Self> {
        match settlement {
            Settlement::Repeat => Some(Self::Repeat),
            Settlement::Parked => Some(Self::Parked),
            Settlement::Superseded => Some(Self::Superseded),
            Settlement::Applied | Settlement::Void => None,
        }
    }

    pub fn sign(self) -> (char, Tone) {
        match self {
            Self::Repeat => ('=', Settlement::Repeat.into()),
            Self::Parked => ('P', Settlement::Parked.into()),
            Self::Superseded => ('–', Settlement::Superseded.into()),
            Self::Blocked => ('B', Kind::Blocked.into()),
            Self::Failed => ('!', Kind::Failing.into()),
            Self::TakenOver => ('»', Kind::Abandoned.into()),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneTotals {
    pub accepted: usize,
    pub settled: usize,
    pub applied: usize,
    pub repeats: usize,
    pub parked: usize,
    pub superseded: usize,
    pub retries: usize,
}

impl LaneTotals {
    fn add(&mut self, other: LaneTotals) {
        self.accepted += other.accepted;
        self.settled += other.settled;
        self.applied += other.applied;
        self.repeats += other.repeats;
        self.parked += other.parked;
        self.superseded += other.superseded;
        self.retries += other.retries;
    }
}

#[derive(Default)]
struct Draft {
    waiting: BTreeMap<Sequence, (String, Duration)>,
    /// The sequence, name, start and kind of the span that has not ended.
    open: Option<(Sequence, String, Duration, LaneSpanKind)>,
    /// The token of the handler start that is running, and the names of its deliveries.
    start: Option<(FencingToken, Vec<String>)>,
    spans: Vec<Span>,
    marks: Vec<Mark>,
    totals: LaneTotals,
}

impl Draft {
    fn close(&mut self, at: Duration) {
        self.start = None;
        if let Some((sequence, name, from, kind)) = self.open.take() {
            self.spans.push(Span { sequence, name, from, to: at, is_open: false, kind });
        }
    }

    fn mark(&mut self, happening: &RecordedEvent, kind: MarkKind) {
        self.marks.push(Mark { name: happening.name.clone(), at: happening.at, kind });
    }

    fn take_in(&mut self, happening: &RecordedEvent) {
        let at = happening.at;
        match (&happening.what, happening.sequence) {
            (EventKind::Accepted, Some(sequence)) => {
                self.totals.accepted += 1;
                // A worker may report a start before ingest reports the acceptance.
                if self.open.as_ref().is_none_or(|(open, ..)| *open < sequence) {
                    self.waiting.insert(sequence, (happening.name.clone(), at));
                }
            }
            (EventKind::Started(_, token), Some(sequence)) => {
                self.end_waiting(sequence, at);
                match (&mut self.open, &mut self.start) {
                    // All deliveries of a group share one bar.
                    (Some((last, name, ..)), Some((start, names))) if start == token => {
                        *last = sequence;
                        names.push(happening.name.clone());
                        *name = names.join(" ");
                    }
                    _ => {
                        self.close(at);
                        self.open = Some((sequence, happening.name.clone(), at, LaneSpanKind::Running));
                        self.start = Some((*token, vec![happening.name.clone()]));
                    }
                }
            }
            (EventKind::Failed { .. }, Some(sequence)) => {
                self.close(at);
                self.totals.retries += 1;
                self.mark(happening, MarkKind::Failed);
                self.open = Some((sequence, happening.name.clone(), at, LaneSpanKind::Retrying));
            }
            (EventKind::Settled(settlement), Some(sequence)) => {
                self.close(at);
                self.end_waiting(sequence, at);
                self.totals.settled += 1;
                match settlement {
                    Settlement::Applied => self.totals.applied += 1,
                    Settlement::Void => {}
                    Settlement::Repeat => self.totals.repeats += 1,
                    Settlement::Parked => self.totals.parked += 1,
                    Settlement::Superseded => self.totals.superseded += 1,
                }
                if let Some(kind) = MarkKind::of(*settlement) {
                    self.mark(happening, kind);
                }
            }
            (EventKind::Blocked(_), _) => {
                self.close(at);
                self.mark(happening, MarkKind::Blocked);
            }
            (EventKind::TakenOver(_), _) => {
                if let Some((.., kind)) = &mut self.open {
                    *kind = LaneSpanKind::Orphaned;
                }
                self.close(at);
                self.mark(happening, MarkKind::TakenOver);
            }
            _ => {}
        }
    }

    fn end_waiting(&mut self, sequence: Sequence, at: Duration) {
        if let Some((name, from)) = self.waiting.remove(&sequence) {
            self.spans.push(Span { sequence, name, from, to: at, is_open: false, kind: LaneSpanKind::Waiting });
        }
    }

    fn at(&self, entity: &EntityKey, to: Duration) -> Lane {
        let mut spans = self.spans.clone();
        let open = self.open.iter().map(|(sequence, name, from, kind)| (sequence, name, from, *kind));
        let waiting = self.waiting.iter().map(|(sequence, (name, from))| (sequence, name, from, LaneSpanKind::Waiting));
        spans.extend(open.chain(waiting).map(|(sequence, name, from, kind)| Span {
            sequence: *sequence,
            name: name.clone(),
            from: *from,
            to,
            is_open: true,
            kind,
        }));
        spans.sort_by_key(|span| (span.from, span.kind));
        Lane { entity: entity.clone(), spans, marks: self.marks.clone(), totals: self.totals }
    }
}

#[derive(Default)]
pub struct Drawing {
    order: Vec<EntityKey>,
    drafts: BTreeMap<EntityKey, Draft>,
}

impl Drawing {
    pub fn take_in(&mut self, happening: &RecordedEvent) {
        if !self.drafts.contains_key(&happening.entity) {
            self.order.push(happening.entity.clone());
        }
        self.drafts.entry(happening.entity.clone()).or_default().take_in(happening);
    }

    pub fn lane(&self, entity: &EntityKey, now: Duration) -> Option<Lane> {
        let lane = self.drafts.get(entity)?.at(entity, now);
        (lane.totals != LaneTotals::default()).then_some(lane)
    }
}

impl Picture {
    pub fn of(happenings: &[RecordedEvent], now: Duration) -> Self {
        let mut drawing = Drawing::default();
        happenings.iter().for_each(|happening| drawing.take_in(happening));
        let from = happenings.first().map_or(now, |first| first.at);
        let lanes: Vec<Lane> = drawing.order.iter().filter_map(|entity| drawing.lane(entity, now)).collect();
        let mut totals = LaneTotals::default();
        lanes.iter().for_each(|lane| totals.add(lane.totals));
        Self { lanes, from, to: now.max(from), totals }
    }

    /// Returns the length of the time axis, at least a millisecond.
    pub fn length(&self) -> Duration {
        (self.to - self.from).max(Duration::from_millis(1))
    }
}

pub fn label(entity: &EntityKey, width: usize) -> String {
    let text = entity.as_str();
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    // Keeps the end of the key, which tells orders apart.
    let end: String = text.chars().skip(count + 1 - width).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(at: u64, sequence: u64, what: EventKind) -> RecordedEvent {
        RecordedEvent {
            at: Duration::from_millis(at),
            entity: EntityKey::parse("n/a").unwrap(),
            sequence: Some(Sequence(sequence)),
            name: format!("RA{sequence}"),
            what,
        }
    }

    #[test]
    fn lane_shows_waits_and_runs_of_retried_delivery() {
        let picture = Picture::of(
            &[
                happening(0, 1, EventKind::Accepted),
                happening(10, 1, EventKind::Started(1, FencingToken(1))),
                happening(
                    30,
                    1,
                    EventKind::Failed { attempt: 1, wait: Duration::from_millis(20), error: String::new() },
                ),
                happening(50, 1, EventKind::Started(2, FencingToken(2))),
                happening(70, 1, EventKind::Settled(Settlement::Applied)),
            ],
            Duration::from_millis(80),
        );
        let spans: Vec<(LaneSpanKind, u128, u128)> =
            picture.lanes[0].spans.iter().map(|span| (span.kind, span.from.as_millis(), span.to.as_millis())).collect();
        assert_eq!(
            spans,
            [
                (LaneSpanKind::Waiting, 0, 10),
                (LaneSpanKind::Running, 10, 30),
                (LaneSpanKind::Retrying, 30, 50),
                (LaneSpanKind::Running, 50, 70)
            ]
        );
        assert_eq!(
            picture.totals,
            LaneTotals { accepted: 1, settled: 1, applied: 1, retries: 1, ..LaneTotals::default() }
        );
    }

    #[test]
    fn lane_marks_handler_start_of_dead_worker_as_orphaned() {
        let mut taken_over = happening(90, 1, EventKind::TakenOver(FencingToken(2)));
        taken_over.sequence = None;
        let picture = Picture::of(
            &[
                happening(0, 1, EventKind::Accepted),
                happening(10, 1, EventKind::Started(1, FencingToken(1))),
                taken_over,
            ],
            Duration::from_millis(100),
        );
        assert_eq!(picture.lanes[0].spans[1].kind, LaneSpanKind::Orphaned);
        assert_eq!(picture.lanes[0].marks[0].kind, MarkKind::TakenOver);
    }

    #[test]
    fn totals_of_lanes_count_each_settlement_outcome() {
        let of = |(sequence, settlement)| happening(sequence, sequence, EventKind::Settled(settlement));
        let settlements = [Settlement::Applied, Settlement::Repeat, Settlement::Parked, Settlement::Superseded];
        let happenings: Vec<RecordedEvent> = (1..).zip(settlements).map(of).collect();
        let picture = Picture::of(&happenings, Duration::from_millis(80));
        let totals =
            LaneTotals { settled: 4, applied: 1, repeats: 1, parked: 1, superseded: 1, ..LaneTotals::default() };
        assert_eq!((picture.totals, picture.lanes[0].totals), (totals, totals));
    }

    #[test]
    fn long_key_is_truncated_at_the_start() {
        let entity = EntityKey::parse("shopify/order/450789469").unwrap();
        assert_eq!(label(&entity, 10), "…450789469");
        assert_eq!(label(&entity, 40), "shopify/order/450789469");
    }
}
