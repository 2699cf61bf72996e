//! The verdict on a run: what was sent and answered, against what the handlers
//! wrote down and what their effects came to. By tokens, which need no clock,
//! and by the auditor of `serializer`, which knows nothing of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    time::Duration,
};

use anyhow::Result;
use serializer::{
    local::handler_log::{Ending, Run},
    view::audit::{Sent, Verdict},
};
use webhook_serializer::{
    protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        history::History,
        receipt::Receipt,
    },
    time::Timestamp,
};

use super::{
    loss::PutBack,
    roles::{Line, What},
    unwell::{Breakers, Told, Window},
};

/// A system that handlers send effects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// It refuses what is sent under a smaller token than one it has seen.
    RemembersTokens,
    /// It takes whatever comes, as it comes: the negative control.
    IgnoresTokens,
}

/// What a delivery's commits came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) times: u64,
    pub(super) token: u64,
}

/// Everything there is to know about a run.
#[derive(Debug, Clone)]
pub struct Report {
    pub(super) seed: u64,
    pub(super) sent: Vec<Sent>,
    /// Of those, the ids that were answered 202: each has its place once it is taken up.
    pub(super) deferred: BTreeSet<String>,
    /// The ids of those that were sent again or put back after the tables were lost: each is
    /// in its place since then.
    pub(super) again: BTreeSet<String>,
    pub(super) lines: Vec<Line>,
    pub(super) committed: BTreeMap<String, Committed>,
    /// The ids of those that were set aside, and are so in the end.
    pub(super) set_aside: BTreeSet<String>,
    pub(super) receipts: BTreeMap<EntityKey, Vec<Receipt>>,
    pub(super) put_back: Option<PutBack>,
    pub(super) unwell: Window,
    /// What workers logged, in a run in which some are unwell.
    pub(super) told: Option<Told>,
    pub(super) faults: String,
}

/// The journal's lines, in the order in which they were written.
pub(super) fn read_lines(journal: &Path) -> Result<Vec<Line>> {
    std::fs::read_to_string(journal)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The source that an order's webhooks come from.
pub(super) fn source_of(entity: &str) -> &str {
    entity.split('/').next().unwrap_or_default()
}

/// What `receiver` takes, in the order in which it comes.
fn taken(lines: &[Line], receiver: Receiver) -> impl Iterator<Item = &Line> {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    lines.iter().filter(move |line| {
        if line.what != What::Effect {
            return false;
        }
        let newest = newest.entry(&line.entity).or_default();
        let is_late = line.token < *newest;
        *newest = line.token.max(*newest);
        receiver == Receiver::IgnoresTokens || !is_late
    })
}

/// The effects that `receiver` took of a delivery after one of a later delivery.
fn taken_late(lines: &[Line], receiver: Receiver) -> Vec<&Line> {
    let mut furthest: BTreeMap<&str, u64> = BTreeMap::new();
    taken(lines, receiver)
        .filter(|line| {
            let furthest = furthest.entry(&line.entity).or_default();
            let is_late = line.sequence < *furthest;
            *furthest = line.sequence.max(*furthest);
            is_late
        })
        .collect()
}

/// How many effects came after one of a later delivery.
pub(super) fn late_effects(lines: &[Line]) -> usize {
    taken_late(lines, Receiver::IgnoresTokens).len()
}

/// How many handlers ended after another had ended for the same delivery under a
/// greater token.
pub(super) fn late_ends(lines: &[Line]) -> usize {
    let mut greatest: BTreeMap<&str, u64> = BTreeMap::new();
    let ends = lines.iter().filter(|line| line.what == What::End);
    let late = ends.filter(|line| {
        let greatest = greatest.entry(&line.id).or_default();
        let is_late = line.token < *greatest;
        *greatest = line.token.max(*greatest);
        is_late
    });
    late.count()
}

impl Report {
    /// What is wrong, where effects are sent to `receiver`.
    pub fn mistakes(&self, receiver: Receiver) -> Vec<String> {
        let mut mistakes = self.mistakes_beside_set_aside(receiver);
        mistakes.extend(self.set_aside.iter().map(|id| format!("{id} was set aside")));
        mistakes
    }

    /// How many deliveries were set aside, and are so in the end.
    pub fn set_aside(&self) -> usize {
        self.set_aside.len()
    }

    /// What is wrong besides that deliveries were set aside, which need not be committed.
    pub fn mistakes_beside_set_aside(&self, receiver: Receiver) -> Vec<String> {
        let mut mistakes = Vec::new();
        let late = taken_late(&self.lines, receiver);
        let late = late.iter().map(|line| format!("a late effect of {} was taken, token {}", line.id, line.token));
        mistakes.extend(late);
        self.check_once(&mut mistakes);
        self.check_order(&mut mistakes);
        if let Some(told) = &self.told {
            self.check_charges(told, &mut mistakes);
        }
        self.check_effects(receiver, &mut mistakes);
        let mut sent = self.sent.clone();
        let is_elsewhere = |sent: &&mut Sent| self.is_deferred(sent) || self.is_again(sent);
        sent.iter_mut().filter(is_elsewhere).for_each(|sent| sent.answered = None);
        let verdict = Verdict::of(&sent, &self.committed_runs(), &self.set_aside);
        if !verdict.is_clean() {
            mistakes.push(format!("the journal: {verdict}"));
        }
        for (entity, receipts) in &self.receipts {
            for mistake in History::of(receipts.clone()).mistakes {
                mistakes.push(format!("receipts of {entity}: {mistake}"));
            }
        }
        mistakes
    }

    fn is_deferred(&self, sent: &Sent) -> bool {
        self.deferred.contains(&sent.delivery_id)
    }

    fn is_again(&self, sent: &Sent) -> bool {
        self.again.contains(&sent.delivery_id)
    }

    /// The part of it that is about orders of these sources.
    pub fn of(&self, sources: &[&str]) -> Self {
        let mut part = self.clone();
        let is_of = |entity: &str| sources.contains(&source_of(entity));
        part.sent.retain(|sent| is_of(sent.entity.as_str()));
        part.lines.retain(|line| is_of(&line.entity));
        part.receipts.retain(|entity, _| is_of(entity.as_str()));
        let ids: BTreeSet<&str> = part.sent.iter().map(|sent| sent.delivery_id.as_str()).collect();
        part.committed.retain(|id, _| ids.contains(id.as_str()));
        for some in [&mut part.deferred, &mut part.again, &mut part.set_aside] {
            some.retain(|id| ids.contains(id.as_str()));
        }
        part
    }

    /// How often breakers opened and closed of those whose handlers were unwell.
    pub fn breakers(&self) -> Breakers {
        self.told.as_ref().map(|told| told.breakers).unwrap_or_default()
    }

    /// How many handlers were started and ended well while others were unwell.
    pub fn ended_meanwhile(&self) -> usize {
        self.ended_in(&self.unwell)
    }

    /// How many did so in the second half of that time: breakers have opened by then.
    pub fn ended_in_second_half(&self) -> usize {
        self.ended_in(&self.unwell.second_half())
    }

    /// One that asked before the window whether it is open may end within it.
    fn ended_in(&self, window: &Window) -> usize {
        let within = |what| {
            let lines = self.lines.iter().filter(move |line| line.what == what && window.contains(line.at));
            lines.map(|line| (line.entity.as_str(), line.token)).collect::<BTreeSet<_>>()
        };
        within(What::Start).intersection(&within(What::End)).count()
    }

    /// What the restore of lost tables came to, if there was one.
    pub fn put_back(&self) -> Option<PutBack> {
        self.put_back
    }

    /// How many deliveries were sent again or put back after the tables were lost.
    pub fn again(&self) -> usize {
        self.again.len()
    }

    /// How many deliveries were answered 202.
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    fn check_once(&self, mistakes: &mut Vec<String>) {
        for sent in &self.sent {
            let id = &sent.delivery_id;
            match (self.committed.get(id).map_or(0, |committed| committed.times), self.set_aside.contains(id)) {
                (1, false) | (0, true) => {}
                (0, false) => mistakes.push(format!("{id} was answered and is lost")),
                (times, false) => mistakes.push(format!("{id} was committed {times} times")),
                (times, true) => mistakes.push(format!("{id} was committed {times} times, and is set aside")),
            }
        }
    }

    /// Answered before the other was sent: every start of the other has a
    /// greater token than the commit of the first.
    fn check_order(&self, mistakes: &mut Vec<String>) {
        let mut first_token: BTreeMap<&str, u64> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.what == What::Start) {
            let first = first_token.entry(&line.id).or_insert(line.token);
            *first = line.token.min(*first);
        }
        let mut last: BTreeMap<&EntityKey, (&str, u64)> = BTreeMap::new();
        // One sender per order, which sends the next when the last was answered.
        for sent in self.sent.iter().filter(|sent| !self.is_again(sent)) {
            let id = sent.delivery_id.as_str();
            let (Some(committed), Some(first)) = (self.committed.get(id), first_token.get(id)) else { continue };
            if let Some((before, token)) = last.get(&sent.entity)
                && first <= token
            {
                mistakes.push(format!("{id} was started before {before} was settled"));
            }
            if !self.is_deferred(sent) {
                last.insert(&sent.entity, (id, committed.token));
            }
        }
    }

    /// Each attempt has a token of its own: one under which the delivery was started, or whose
    /// holder vanished with it in front. It is there once nothing before it is started any more.
    fn check_charges(&self, told: &Told, mistakes: &mut Vec<String>) {
        let mut starts: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.what == What::Start) {
            starts.entry(&line.entity).or_default().push(line);
        }
        for (entity, starts) in starts {
            let vanished = told.vanished.get(entity);
            for line in &starts {
                let before =
                    starts.iter().filter(|other| other.sequence < line.sequence).map(|other| other.token).max();
                let own = starts.iter().filter(|other| other.id == line.id).map(|other| other.token);
                let of_vanished = vanished.into_iter().flatten().copied().filter(|token| Some(*token) > before);
                let tokens: BTreeSet<u64> = own.chain(of_vanished).filter(|token| *token <= line.token).collect();
                if line.attempt as usize > tokens.len() {
                    let Line { id, attempt, token, .. } = line;
                    mistakes.push(format!(
                        "{id} was charged without a start: attempt {attempt}, under {token}, of {tokens:?}"
                    ));
                }
            }
        }
    }

    /// What is committed has had its effect at the receiver too, under the
    /// token of the commit.
    fn check_effects(&self, receiver: Receiver, mistakes: &mut Vec<String>) {
        let effects: BTreeSet<(&str, u64)> =
            taken(&self.lines, receiver).map(|line| (line.id.as_str(), line.token)).collect();
        for (id, committed) in &self.committed {
            if !effects.contains(&(id.as_str(), committed.token)) {
                mistakes.push(format!("{id} was committed, and its effect was not taken"));
            }
        }
    }

    /// The starts that ended in a commit, as the auditor takes them. Others may
    /// overlap with them: a frozen holder goes on.
    fn committed_runs(&self) -> Vec<Run> {
        let mut starts = BTreeMap::new();
        let mut runs = Vec::new();
        for line in &self.lines {
            if self.committed.get(&line.id).is_none_or(|committed| committed.token != line.token) {
                continue;
            }
            match (line.what, EntityKey::parse(&line.entity)) {
                (What::Start, _) => {
                    starts.insert((&line.entity, line.token), line.at);
                }
                (What::End, Ok(entity)) => runs.push(Run {
                    entity,
                    delivery_id: line.id.clone(),
                    sequence: Sequence(line.sequence),
                    token: FencingToken(line.token),
                    attempt: line.attempt,
                    received_at: Timestamp::from_millis(0),
                    started_at: Timestamp::from_millis(0),
                    started: Duration::from_millis(
                        starts.get(&(&line.entity, line.token)).copied().unwrap_or_default(),
                    ),
                    ended: Duration::from_millis(line.at),
                    ending: Ending::Applied,
                }),
                _ => {}
            }
        }
        runs
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts = self.lines.iter().filter(|line| line.what == What::Start).count();
        let attempts = self.lines.iter().map(|line| line.attempt).max();
        let processes: BTreeSet<u32> = self.lines.iter().map(|line| line.process).collect();
        let refused = self.lines.iter().filter(|line| line.what == What::Effect).count()
            - taken(&self.lines, Receiver::RemembersTokens).count();
        write!(
            f,
            "seed {}: {} deliveries answered, {} of them 202, {} committed, {starts} starts in {} processes, {refused} effects refused \
             by their token, {} of them after a later delivery's; {} set aside, at most {} attempts of one; {:?}; {:?}; {}",
            self.seed,
            self.sent.len(),
            self.deferred.len(),
            self.committed.len(),
            processes.len(),
            late_effects(&self.lines),
            self.set_aside.len(),
            attempts.unwrap_or_default(),
            self.breakers(),
            self.put_back,
            self.faults,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an order: a delivery, named by its place.
    fn line(what: What, sequence: u64, token: u64, attempt: u32, at: u64) -> Line {
        let (entity, id) = ("unwell/1".to_owned(), sequence.to_string());
        Line { what, entity, id, sequence, token, attempt, process: 1, at }
    }

    /// A run of which only these are known; some are unwell from 100 to 200 ms.
    fn report(lines: Vec<Line>) -> Report {
        Report {
            seed: 0,
            sent: Vec::new(),
            deferred: BTreeSet::new(),
            again: BTreeSet::new(),
            lines,
            committed: BTreeMap::new(),
            set_aside: BTreeSet::new(),
            receipts: BTreeMap::new(),
            put_back: None,
            unwell: Window::between(100, 200),
            told: None,
            faults: String::new(),
        }
    }

    /// Whether it is objected to that the second delivery's second start, under token 9, is
    /// this attempt, if the holders of these tokens of this order vanished.
    fn is_objected_to(attempt: u32, order: &str, vanished: &[u64]) -> bool {
        let start = |sequence, token, attempt| line(What::Start, sequence, token, attempt, 0);
        let told = Told {
            vanished: BTreeMap::from([(order.to_owned(), vanished.iter().copied().collect())]),
            ..Told::default()
        };
        let report = Report { told: Some(told), ..report(vec![start(1, 4, 1), start(2, 6, 1), start(2, 9, attempt)]) };
        let mistakes = report.mistakes(Receiver::RemembersTokens);
        assert!(mistakes.iter().all(|mistake| mistake.starts_with("2 was charged without a start")), "{mistakes:?}");
        !mistakes.is_empty()
    }

    #[test]
    fn attempt_without_a_cause_is_reported() {
        assert!(!is_objected_to(2, "unwell/1", &[]));
        assert!(is_objected_to(3, "unwell/1", &[]));
        assert!(!is_objected_to(3, "unwell/1", &[8]));
        assert!(is_objected_to(4, "unwell/1", &[8]));
        assert!(!is_objected_to(4, "unwell/1", &[7, 8]));
        let of_others = [
            ("of another order", "unwell/2", [8]),
            ("with the one before in front", "unwell/1", [3]),
            ("which had started the one before", "unwell/1", [4]),
            ("which had started it, and is counted", "unwell/1", [6]),
            ("later", "unwell/1", [10]),
        ];
        for (which, order, vanished) in of_others {
            assert!(is_objected_to(3, order, &vanished), "a holder that vanished: {which}");
        }
    }

    #[test]
    fn run_that_ended_in_between_started_in_between() {
        let run = |token, from, to| [line(What::Start, 1, token, 1, from), line(What::End, 1, token, 1, to)];
        let report = report([run(1, 99, 110), run(2, 110, 151), run(3, 160, 170), run(4, 190, 200)].concat());
        assert_eq!((report.ended_meanwhile(), report.ended_in_second_half()), (2, 1));
    }

    #[test]
    fn committed_and_parked_delivery_is_reported() {
        let id = || "1".to_owned();
        let entity = EntityKey::parse("failing/1").unwrap();
        let sent = Sent { entity, delivery_id: id(), sent: Duration::ZERO, answered: Some(Duration::ZERO) };
        let lost = Report { sent: vec![sent], ..report(Vec::new()) };
        let set_aside = Report { set_aside: BTreeSet::from([id()]), ..lost.clone() };
        let committed = BTreeMap::from([(id(), Committed { times: 1, token: 1 })]);
        let both = Report { committed, ..set_aside.clone() };
        let [lost, others, both] =
            [lost, set_aside.clone(), both].map(|report| report.mistakes_beside_set_aside(Receiver::RemembersTokens));
        assert!(lost[0].contains("is lost"), "{lost:?}");
        assert_eq!(others, Vec::<String>::new());
        assert_eq!(set_aside.mistakes(Receiver::RemembersTokens), ["1 was set aside"]);
        assert!(both[0].contains("was committed 1 times, and is set aside"), "{both:?}");
    }
}
