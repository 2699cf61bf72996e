//! All orders at a glance: what does not move, what is parked, grouped by
//! source and by error. Pure; the rows come from elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use webhook_serializer::{
    operator::Parked,
    protocol::{
        entity::{EntityKey, Sequence, SourceName},
        format::attribute as a,
        keys::sequence_of,
        receipt::Recent,
        state::EntityState,
        table::Row,
    },
    time::Timestamp,
};

use crate::{
    output::duration,
    view::{order_status::Kind, throughput::Pace},
};

/// An order with something left to do.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Its row, but for what it remembers of settled places.
    pub state: EntityState,
    /// How it stood when it was looked at.
    pub kind: Kind,
    /// Who sent its next delivery, once that is known.
    pub source: Option<SourceName>,
    /// What that is about.
    pub topic: Option<String>,
}

impl Lane {
    /// Since when something waits; where nothing does, since when it is on hold.
    pub fn since(&self) -> Option<Timestamp> {
        self.state.pending_since.or(self.state.hold.since())
    }

    /// Why its next delivery failed last.
    pub fn error(&self) -> Option<&str> {
        self.state.last_error.as_deref()
    }

    /// Why it does not move, in a few words.
    pub fn why(&self, now: Timestamp) -> String {
        let state = &self.state;
        let error = self.error().unwrap_or("no error was recorded");
        let by = state.holder_info.as_ref().map_or("somebody", |info| info.as_str());
        let at = self.topic.as_ref().map(|topic| format!(" at {topic}")).unwrap_or_default();
        match (self.kind, &state.held) {
            (Kind::Blocked, _) => match state.blocked.map(|reason| reason.as_str()) {
                Some("attempts") | None => format!("stopped{at} after {}: {error}", times(state.attempts)),
                Some("expired") => format!("the place of {} is empty and may have expired", state.next()),
                Some(_) => format!("workers died{at} before its handler was started"),
            },
            (Kind::OnHold, _) => {
                let since = state.hold.since().map(|at| duration(now.since(at))).unwrap_or_default();
                format!("on hold for {since}")
            }
            (Kind::Failing | Kind::Unavailable, _) => {
                let again = state.retry_at.filter(|at| *at > now).map(|at| duration(at.since(now)));
                let again = again.map_or_else(|| "due".to_owned(), |wait| format!("again in {wait}"));
                if self.kind == Kind::Unavailable {
                    return format!("waited {}{at}, {again}: {error}", duration(state.retries.total()));
                }
                format!("failed{at} after {}, {again}: {error}", times(state.attempts))
            }
            (Kind::Held, Some(held)) => format!("held by {by} for {}", duration(held.expires_at.since(now))),
            (Kind::Abandoned, Some(held)) => {
                format!("its holder ({by}) died {} ago", duration(now.since(held.expires_at)))
            }
            (Kind::AtWork, _) if state.attempts > 0 => format!("at work{at}, failed before: {error}"),
            (Kind::AtWork, _) => format!("a worker is at work{at}"),
            _ => format!("waits for a worker{at}"),
        }
    }
}

fn times(attempts: u32) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}

/// A parked delivery, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Of which order.
    pub entity: EntityKey,
    /// Where it stood.
    pub sequence: Sequence,
    /// Who sent it.
    pub source: SourceName,
    /// What it is about.
    pub topic: String,
    /// When it was set aside.
    pub since: Option<Timestamp>,
    /// Why.
    pub error: String,
}

impl From<&Parked> for Aside {
    fn from(parked: &Parked) -> Self {
        Self {
            entity: parked.delivery().entity().clone(),
            sequence: parked.sequence,
            source: parked.delivery().source().clone(),
            topic: parked.delivery().topic().to_owned(),
            since: parked.parked_at,
            error: parked.error.clone(),
        }
    }
}

/// Which of them are wanted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only what this source sent.
    pub source: Option<SourceName>,
    /// Only what failed with an error that has this text in it.
    pub error: Option<String>,
}

impl Filter {
    /// Whether every order is wanted.
    pub fn takes_all(&self) -> bool {
        self.source.is_none() && self.error.is_none()
    }

    /// Whether this source and this error are wanted.
    pub fn takes(&self, source: Option<&SourceName>, error: Option<&str>) -> bool {
        self.source.as_ref().is_none_or(|wanted| source == Some(wanted)) && self.takes_error(error)
    }

    /// Whether this error is wanted, whoever sent the delivery.
    pub fn takes_error(&self, error: Option<&str>) -> bool {
        let Some(wanted) = &self.error else { return true };
        error.is_some_and(|error| alike(error).contains(&alike(wanted)))
    }
}

/// An error's text without what tells one delivery's from another's: numbers
/// of four and more digits, such as ids and times, become `…`. A status such as
/// 503 stays.
pub fn alike(error: &str) -> String {
    let mut text = String::with_capacity(error.len());
    let mut digits = String::new();
    // One more, so that a number at the end is seen to end.
    for c in error.chars().map(Some).chain([None]) {
        match c {
            Some(digit) if digit.is_ascii_digit() => digits.push(digit),
            other => {
                if digits.len() >= 4 {
                    text.push('…');
                } else {
                    text.push_str(&digits);
                }
                digits.clear();
                text.extend(other);
            }
        }
    }
    text
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// How many orders have a row, those with nothing to do included.
    pub orders: u64,
    /// Those with something to do.
    pub lanes: Vec<Lane>,
    /// What is parked.
    pub aside: Vec<Aside>,
    /// The keys of rows that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
    /// How many rows of each format were met.
    pub formats: BTreeMap<u64, u64>,
    /// What was accepted and settled in the last minutes.
    pub pace: Pace,
    places: BTreeMap<(String, Sequence), usize>,
}

/// What a group has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// Orders that stand so.
    Orders(Kind),
    /// Parked deliveries.
    Parked,
}

impl What {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            What::Orders(kind) => kind.as_str(),
            What::Parked => "parked",
        }
    }

    /// The most urgent first.
    fn urgency(self) -> u8 {
        match self {
            What::Orders(Kind::Blocked) => 0,
            What::Parked => 1,
            What::Orders(kind) => 2 + kind as u8,
        }
    }
}

/// Orders or deliveries that stand alike, of one source, with one error.
#[derive(Debug, Clone)]
pub struct Group {
    /// How they stand.
    pub what: What,
    /// Who sent them; `None`: that is not known.
    pub source: Option<SourceName>,
    /// The error that they have in common, as [`alike`] shows it.
    pub error: Option<String>,
    /// How many orders.
    pub orders: u64,
    /// How many deliveries wait there, or are parked.
    pub deliveries: u64,
    /// Since when the oldest stands so.
    pub oldest: Option<Timestamp>,
    /// Whose it is, and its place.
    pub example: (EntityKey, Sequence),
}

impl Overview {
    /// Takes in a row of the table of orders.
    pub fn order(&mut self, row: &Row, now: Timestamp) {
        self.format(row);
        let state = match EntityState::parse(row) {
            // A job has a row as orders have, and no deliveries.
            Ok(state) if state.entity.is_kept_forever() => return,
            Ok(state) => state,
            Err(error) => return self.cannot_read(row, &error),
        };
        self.orders += 1;
        self.pace.order(&state);
        let kind = Kind::of(&state, now);
        // Somebody's lease on an order where nothing waits is nobody's trouble; one left behind is.
        if kind == Kind::Idle || (state.is_empty() && !matches!(kind, Kind::Abandoned | Kind::OnHold)) {
            return;
        }
        self.places.insert((state.entity.to_string(), state.next()), self.lanes.len());
        let state = EntityState { recent: Recent::default(), ..state };
        self.lanes.push(Lane { state, kind, source: None, topic: None });
    }

    /// Takes in a row of the table of deliveries; one that waits tells the source
    /// of an order that was taken in before.
    pub fn delivery(&mut self, row: &Row) {
        self.format(row);
        self.pace.delivery(row);
        match Parked::of(row) {
            Ok(Some(parked)) => return self.aside.push(Aside::from(&parked)),
            Ok(None) => {}
            Err(error) => return self.cannot_read(row, &error),
        }
        let (Some(entity), Some(sequence)) = (row.text(a::ENTITY), sequence_of(row)) else { return };
        let source = row.text(a::SOURCE).and_then(|source| SourceName::parse(source).ok());
        if let Some(source) = source {
            self.is_next(entity, sequence, source, row.text(a::TOPIC).unwrap_or_default());
        }
    }

    /// The parts of a body have none, nor has what the scheduler keeps.
    fn format(&mut self, row: &Row) {
        if let Some(format) = row.number(a::VERSION) {
            *self.formats.entry(format).or_default() += 1;
        }
    }

    /// Takes in what stands at a place: where that is an order's next, its source
    /// is known from then on.
    pub fn is_next(&mut self, entity: &str, sequence: Sequence, source: SourceName, topic: &str) {
        if let Some(lane) = self.places.get(&(entity.to_owned(), sequence)).and_then(|at| self.lanes.get_mut(*at)) {
            lane.source = Some(source);
            lane.topic = Some(topic.to_owned());
        }
    }

    fn cannot_read(&mut self, row: &Row, error: &impl ToString) {
        self.unreadable.push((row.text(a::ENTITY).unwrap_or_default().to_owned(), error.to_string()));
    }

    /// The next places of those of `lanes` whose source is not known yet.
    pub fn unknown(&self, lane: impl Fn(&Lane) -> bool) -> Vec<(EntityKey, Sequence)> {
        let unknown = self.lanes.iter().filter(|one| one.source.is_none() && !one.state.is_empty() && lane(one));
        unknown.map(|lane| (lane.state.entity.clone(), lane.state.next())).collect()
    }

    /// How many orders stand so.
    pub fn count(&self, kind: Kind) -> usize {
        self.lanes.iter().filter(|lane| lane.kind == kind).count()
    }

    /// The groups, the most urgent first, then the largest.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups = Groups::default();
        for lane in &self.lanes {
            let (entity, next) = (&lane.state.entity, lane.state.next());
            let group = groups.of(What::Orders(lane.kind), lane.source.as_ref(), lane.error(), (entity, next));
            group.add(entity, next, lane.state.waiting(), lane.since());
        }
        for one in &self.aside {
            let at = (&one.entity, one.sequence);
            let group = groups.of(What::Parked, Some(&one.source), Some(&one.error), at);
            group.add(&one.entity, one.sequence, 1, one.since);
        }
        let mut groups: Vec<Group> = groups.0.into_values().map(|gathered| gathered.group).collect();
        groups.sort_by_key(|group| (group.what.urgency(), std::cmp::Reverse(group.deliveries)));
        groups
    }
}

/// What those of a group have in common.
type Alike = (u8, Option<SourceName>, Option<String>);

/// A group, and whose the deliveries are that were added to it.
struct Gathered<'a> {
    group: Group,
    orders: BTreeSet<&'a EntityKey>,
}

#[derive(Default)]
struct Groups<'a>(BTreeMap<Alike, Gathered<'a>>);

impl<'a> Groups<'a> {
    /// The group of this; a new one begins with what stands `at` a place.
    fn of(
        &mut self,
        what: What,
        source: Option<&SourceName>,
        error: Option<&str>,
        at: (&EntityKey, Sequence),
    ) -> &mut Gathered<'a> {
        let alike = (what.urgency(), source.cloned(), error.map(alike));
        self.0.entry(alike).or_insert_with_key(|(_, source, error)| Gathered {
            group: Group {
                what,
                source: source.clone(),
                error: error.clone(),
                orders: 0,
                deliveries: 0,
                oldest: None,
                example: (at.0.clone(), at.1),
            },
            orders: BTreeSet::new(),
        })
    }
}

impl<'a> Gathered<'a> {
    fn add(&mut self, entity: &'a EntityKey, sequence: Sequence, deliveries: u64, since: Option<Timestamp>) {
        self.orders.insert(entity);
        let group = &mut self.group;
        group.orders = self.orders.len() as u64;
        group.deliveries += deliveries;
        if since.is_some_and(|since| group.oldest.is_none_or(|oldest| since < oldest)) {
            group.oldest = since;
            group.example = (entity.clone(), sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        format::FORMAT,
        keys::{delivery_row, parked_row},
        table::Key,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn order(key: &str) -> Row {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, key);
        row.with(a::TAIL, 4_u32).with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)
    }

    fn blocked(key: &str, since: u64, error: &str) -> Row {
        order(key).with(a::BLOCKED, "attempts").with(a::PENDING_SINCE, since).with(a::LAST_ERROR, error)
    }

    fn key(entity: &str) -> EntityKey {
        EntityKey::parse(entity).unwrap()
    }

    fn delivery(at: &Key, source: &str) -> Row {
        let row = at.to_row().with(a::VERSION, FORMAT).with(a::NONCE, "1");
        let row = row.with(a::SOURCE, source).with(a::DELIVERY_ID, "1").with(a::TOPIC, "t").with(a::RECEIVED_AT, 1_u32);
        row.with(a::BODY_BYTES, 0_u32).with(a::ENCODING, "plain")
    }

    fn parked(entity: &str, sequence: u64, source: &str, error: &str, since: u64) -> Row {
        let row = delivery(&parked_row(&key(entity), Sequence(sequence)), source);
        row.with(a::ERROR, error).with(a::PARKED_AT, since)
    }

    #[test]
    fn errors_that_differ_in_an_id_are_alike_and_a_status_tells_them_apart() {
        assert_eq!(alike("order 450789469 took 10000 ms: 503"), "order … took … ms: 503");
        let wants = |error: &str| Filter { error: Some(error.into()), ..Filter::default() };
        assert!(wants("order … took").takes(None, Some("order 1042 took 5 ms")));
        assert!(wants("order 1041 took").takes(None, Some("order 1042 took 5 ms")));
        assert!(!wants("503").takes(None, Some("it answered 502")) && !wants("x").takes(None, None));
    }

    #[test]
    fn what_stands_alike_is_one_group_with_its_oldest_and_the_most_urgent_comes_first() {
        let mut seen = Overview::default();
        seen.order(&order("shop/order/9").with(a::PENDING_SINCE, 7_u32), NOW);
        for row in [blocked("shop/order/1", 300, "no 1001"), blocked("shop/order/2", 200, "no 1002")] {
            seen.order(&row, NOW);
        }
        seen.order(&order("shop/order/3").with(a::HEAD, 4_u32), NOW);
        seen.order(&order("cron/sweep"), NOW);
        for entity in ["shop/order/1", "shop/order/2", "shop/order/9"] {
            // Only what stands in front tells the source.
            seen.delivery(&delivery(&delivery_row(&key(entity), Sequence(4)), "other"));
            seen.delivery(&delivery(&delivery_row(&key(entity), Sequence(3)), "shop"));
        }
        for (sequence, since) in [(1, 90), (2, 80)] {
            seen.delivery(&parked("shop/order/3", sequence, "shop", "bad", since));
        }
        assert_eq!((seen.orders, seen.lanes.len(), seen.count(Kind::Blocked)), (4, 3, 2));
        let told: Vec<String> = seen
            .groups()
            .iter()
            .map(|group| {
                let source = group.source.as_ref().map_or("?", SourceName::as_str);
                let error = group.error.as_deref().unwrap_or("-");
                let oldest = group.oldest.map_or(0, Timestamp::as_millis);
                let (entity, sequence) = &group.example;
                let what = group.what.as_str();
                format!("{what} {source} {error} {} {} {oldest} {entity} {sequence}", group.orders, group.deliveries)
            })
            .collect();
        assert_eq!(
            told,
            [
                "blocked shop no … 2 4 200 shop/order/2 3",
                "parked shop bad 1 2 80 shop/order/3 2",
                "waiting shop - 1 2 7 shop/order/9 3",
            ]
        );
    }

    #[test]
    fn a_row_that_cannot_be_read_hides_no_other() {
        let mut seen = Overview::default();
        seen.order(&order("shop/order/1").with(a::VERSION, FORMAT + 1), NOW);
        seen.order(&order("shop/order/2"), NOW);
        assert_eq!((seen.orders, seen.lanes.len(), seen.unreadable.len()), (1, 1, 1));
        assert_eq!(seen.unreadable[0].0, "shop/order/1");
    }
}
