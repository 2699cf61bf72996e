//! The verdict on a run. It compares answered webhooks with the handlers' journal and their effects, in two
//! ways: by tokens, which need no clock; and by the auditor of `serializer`, which ignores tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    time::Duration,
};

use anyhow::Result;
use serializer::{
    local::handler_log::{LoggedRun, RunEnd},
    view::audit::{AuditVerdict, Sent},
};
use webhook_serializer::{
    protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        history::History,
        receipt::Receipt,
    },
    time::Timestamp,
};

use super::roles::{HandlerLine, HandlerStage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverKind {
    /// Refuses a smaller token than one it has seen.
    RemembersTokens,
    /// The negative control accepts every token.
    IgnoresTokens,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedEffect {
    pub times: u64,
    pub token: u64,
}

#[derive(Debug, Clone)]
pub struct ChaosReport {
    pub seed: u64,
    pub sent: Vec<Sent>,
    /// The ids of webhooks that were answered 202. A deferred delivery gets its sequence only when a worker
    /// appends it.
    pub deferred: BTreeSet<String>,
    pub lines: Vec<HandlerLine>,
    pub committed: BTreeMap<String, CommittedEffect>,
    pub receipts: BTreeMap<EntityKey, Vec<Receipt>>,
    pub faults: String,
}

pub(super) fn read_lines(journal: &Path) -> Result<Vec<HandlerLine>> {
    std::fs::read_to_string(journal)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Returns the effects that `receiver` accepts, in their order of arrival.
fn taken(lines: &[HandlerLine], receiver: ReceiverKind) -> impl Iterator<Item = &HandlerLine> {
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    lines.iter().filter(move |line| {
        if line.step != HandlerStage::Effect {
            return false;
        }
        let newest = newest.entry(&line.entity).or_default();
        let is_late = line.token < *newest;
        *newest = line.token.max(*newest);
        receiver == ReceiverKind::IgnoresTokens || !is_late
    })
}

/// Returns the effects that were accepted after the effect of a later delivery.
fn taken_late(lines: &[HandlerLine], receiver: ReceiverKind) -> Vec<&HandlerLine> {
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

pub(super) fn late_effects(lines: &[HandlerLine]) -> usize {
    taken_late(lines, ReceiverKind::IgnoresTokens).len()
}

impl ChaosReport {
    pub fn mistakes(&self, receiver: ReceiverKind) -> Vec<String> {
        let mut mistakes = Vec::new();
        let late = taken_late(&self.lines, receiver);
        let late = late.iter().map(|line| format!("a late effect of {} was taken, token {}", line.id, line.token));
        mistakes.extend(late);
        self.check_once(&mut mistakes);
        self.check_order(&mut mistakes);
        self.check_effects(receiver, &mut mistakes);
        let mut sent = self.sent.clone();
        sent.iter_mut().filter(|sent| self.is_deferred(sent)).for_each(|sent| sent.answered = None);
        let verdict = AuditVerdict::of(&sent, &self.committed_runs(), &BTreeSet::new());
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

    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    fn check_once(&self, mistakes: &mut Vec<String>) {
        for sent in &self.sent {
            let id = &sent.delivery_id;
            match self.committed.get(id).map_or(0, |committed| committed.times) {
                1 => {}
                0 => mistakes.push(format!("{id} was answered and is lost")),
                times => mistakes.push(format!("{id} was committed {times} times")),
            }
        }
    }

    /// Checks the order. If a delivery was answered before another one was sent, every start of the other has
    /// a greater token than the first one's commit.
    fn check_order(&self, mistakes: &mut Vec<String>) {
        let mut first_token: BTreeMap<&str, u64> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.step == HandlerStage::Start) {
            let first = first_token.entry(&line.id).or_insert(line.token);
            *first = line.token.min(*first);
        }
        let mut last: BTreeMap<&EntityKey, (&str, u64)> = BTreeMap::new();
        // An order has only one sender, which waits for each answer.
        for sent in &self.sent {
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

    /// Checks that each committed delivery also had its effect at the receiver, under the same token.
    fn check_effects(&self, receiver: ReceiverKind, mistakes: &mut Vec<String>) {
        let effects: BTreeSet<(&str, u64)> =
            taken(&self.lines, receiver).map(|line| (line.id.as_str(), line.token)).collect();
        for (id, committed) in &self.committed {
            if !effects.contains(&(id.as_str(), committed.token)) {
                mistakes.push(format!("{id} was committed, and its effect was not taken"));
            }
        }
    }

    /// Returns the starts that ended in a commit. Other starts may overlap with them.
    fn committed_runs(&self) -> Vec<LoggedRun> {
        let mut starts = BTreeMap::new();
        let mut runs = Vec::new();
        for line in &self.lines {
            if self.committed.get(&line.id).is_none_or(|committed| committed.token != line.token) {
                continue;
            }
            match (line.step, EntityKey::parse(&line.entity)) {
                (HandlerStage::Start, _) => {
                    starts.insert((&line.entity, line.token), line.at);
                }
                (HandlerStage::End, Ok(entity)) => runs.push(LoggedRun {
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
                    ending: RunEnd::Applied,
                }),
                _ => {}
            }
        }
        runs
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |step| self.lines.iter().filter(|line| line.step == step).count();
        let processes: BTreeSet<u32> = self.lines.iter().map(|line| line.process).collect();
        let refused = count(HandlerStage::Effect) - taken(&self.lines, ReceiverKind::RemembersTokens).count();
        write!(
            f,
            "seed {}: {} deliveries answered, {} of them 202, {} committed, {} starts in {} processes, {refused} effects \
             refused by their token, {} of them after a later delivery's; {}",
            self.seed,
            self.sent.len(),
            self.deferred.len(),
            self.committed.len(),
            count(HandlerStage::Start),
            processes.len(),
            late_effects(&self.lines),
            self.faults,
        )
    }
}
