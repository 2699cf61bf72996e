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
    audit::{Sent, Verdict},
    journal::{Ending, Run},
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
        let verdict = Verdict::of(&sent, &self.committed_runs(), &BTreeSet::new());
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

    /// How many handlers ended well while others were unwell.
    pub fn ended_meanwhile(&self) -> usize {
        self.lines.iter().filter(|line| line.what == What::End && self.unwell.contains(line.at)).count()
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
            match self.committed.get(&sent.delivery_id).map_or(0, |committed| committed.times) {
                _ if self.set_aside.contains(&sent.delivery_id) => {
                    mistakes.push(format!("{} was set aside", sent.delivery_id));
                }
                1 => {}
                0 => mistakes.push(format!("{} was answered and is lost", sent.delivery_id)),
                times => mistakes.push(format!("{} was committed {times} times", sent.delivery_id)),
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

    /// What is charged is a start, and each wrote a line. Where a holder vanished, one
    /// more may be charged, or is told to the handler: its own, which nobody saw.
    fn check_charges(&self, told: &Told, mistakes: &mut Vec<String>) {
        let mut started: BTreeMap<&str, u32> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.what == What::Start) {
            let started = started.entry(&line.id).or_default();
            *started += 1;
            let vanished = told.taken_over.get(&line.entity).copied().unwrap_or_default();
            if line.attempt > *started + vanished {
                let (id, attempt) = (&line.id, line.attempt);
                mistakes.push(format!("{id} was charged without a start: attempt {attempt} is start {started}"));
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
