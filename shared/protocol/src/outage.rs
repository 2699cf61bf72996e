//! Outages of destinations, each in one row that all processes share.
//!
//! A process that finds a destination down reports that. From then on, one start at a time, the probe,
//! tries the destination: a process must claim it first. The first success ends the outage.
//!
//! The row only delays starts. Without it, as after a lost write, deliveries follow their own waits.

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    entity::EntityKey,
    format::{CorruptRow, FORMAT, attribute as a, check_format, readable, shortened},
    keys::outage_row,
    operation::{Operation, has_nonce},
    table::{Action, Change, Condition, Row, Write, Written},
    time::{Nonce, Timestamp},
};

/// The most bytes of an error that the row keeps.
const LONGEST_ERROR: usize = 200;

/// The retention of the row after its last write.
const RETENTION: Duration = Duration::from_secs(7 * 86_400);

/// The longest time that a claimed or planned probe keeps other processes from claiming one. A later probe was
/// planned by a wrong clock.
pub const LONGEST_PROBE: Duration = Duration::from_secs(16 * 60);

/// Identifies a destination: 128 bits of the hash of its kind and its address, which may contain a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DestinationId(String);

impl DestinationId {
    pub fn of(kind: &str, address: &str) -> Self {
        let digest = Sha256::digest(format!("{kind}\0{address}"));
        Self(URL_SAFE_NO_PAD.encode(&digest[..16]))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DestinationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A destination that is down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    pub destination: DestinationId,
    /// The destination's name for people, without secrets.
    pub name: String,
    pub since: Timestamp,
    /// The newest failed start's error.
    pub error: String,
    /// The nonce of the report or of the newest claim.
    pub nonce: Nonce,
    /// The earliest time of the next probe.
    pub due: Timestamp,
    /// The newest failed start. `None` while a claimed probe has not been reported.
    pub failed: Option<FailedStart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStart {
    pub at: Timestamp,
    /// The hash of the entity's key.
    order: String,
}

impl Outage {
    /// Returns the outage that the row shows. `None` if the destination is not down.
    pub fn parse(row: &Row) -> Result<Option<Self>, CorruptRow> {
        check_format(row)?;
        let Some(since) = row.number(a::DOWN_SINCE) else { return Ok(None) };
        let text = |name| row.text(name).ok_or(CorruptRow::Attribute(name));
        Ok(Some(Self {
            destination: DestinationId(text(a::ITEM)?.to_owned()),
            name: text(a::DESTINATION)?.to_owned(),
            since: Timestamp::from_millis(since),
            error: text(a::ERROR)?.to_owned(),
            nonce: Nonce::from_stored(text(a::NONCE)?),
            due: Timestamp::from_millis(row.number(a::DUE).ok_or(CorruptRow::Attribute(a::DUE))?),
            failed: match (row.number(a::FAILED_AT), row.text(a::FAILED_ORDER)) {
                (Some(at), Some(order)) => {
                    Some(FailedStart { at: Timestamp::from_millis(at), order: order.to_owned() })
                }
                _ => None,
            },
        }))
    }

    /// Says that the destination is down, and since when. The sentence has no full stop.
    pub fn headline(&self) -> String {
        format!("{} is down since {} UTC", self.name, &self.since.to_string()[11..16])
    }

    /// Returns the earliest time of the next probe. `None` while a probe runs.
    pub fn next_probe(&self) -> Option<Timestamp> {
        self.failed.as_ref().map(|_| self.due)
    }

    /// Returns whether `entity` may claim the next probe at `now`.
    ///
    /// The entity that failed last may itself be the cause, so it waits for as long again.
    pub fn is_probe_due(&self, entity: &EntityKey, now: Timestamp) -> bool {
        let again = match &self.failed {
            Some(failed) if failed.order == entity.hash() => self.due.since(failed.at),
            _ => Duration::ZERO,
        };
        self.due + again <= now || self.due > now + LONGEST_PROBE
    }
}

fn outage_of(row: Option<&Row>) -> Result<Option<Outage>, CorruptRow> {
    row.map_or(Ok(None), Outage::parse)
}

fn time(name: &'static str, at: Timestamp) -> Change {
    Change::set(name, at.as_millis())
}

fn update(destination: &DestinationId, condition: Condition, now: Timestamp, changes: Vec<Change>) -> Write {
    let kept = [Change::set(a::VERSION, FORMAT), Change::set(a::PURGE_AT, (now + RETENTION).as_secs_rounded_up())];
    Write {
        key: outage_row(destination),
        condition: Condition::All(vec![readable(), condition]),
        action: Action::Update(kept.into_iter().chain(changes).collect()),
    }
}

/// Reports that a destination is down, unless the row says so already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportDown<'a> {
    pub destination: &'a DestinationId,
    pub name: &'a str,
    pub error: &'a str,
    pub nonce: &'a Nonce,
    /// The entity whose start failed.
    pub entity: &'a EntityKey,
    pub now: Timestamp,
    /// The earliest time of the first probe.
    pub due: Timestamp,
}

impl Operation for ReportDown<'_> {
    /// The outage that the row then shows. `None` if another process has ended it.
    type Outcome = Option<Outage>;

    fn write(&self) -> Write {
        let changes = vec![
            Change::set(a::DESTINATION, self.name),
            time(a::DOWN_SINCE, self.now),
            Change::set(a::ERROR, shortened(self.error, LONGEST_ERROR)),
            Change::set(a::NONCE, self.nonce.as_str()),
            time(a::DUE, self.due),
            time(a::FAILED_AT, self.now),
            Change::set(a::FAILED_ORDER, self.entity.hash()),
        ];
        update(self.destination, Condition::absent(a::DOWN_SINCE), self.now, changes)
    }

    /// Need not recognise an earlier try that landed: the row shows an outage either way.
    fn judge(&self, reply: Written) -> Result<Option<Outage>, CorruptRow> {
        match reply {
            Written::Landed(row) | Written::Refused(row) => outage_of(row.as_ref()),
        }
    }
}

/// Claims the next probe, so that no other process sends one until `due`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimProbe<'a> {
    pub destination: &'a DestinationId,
    pub seen: &'a Outage,
    pub nonce: &'a Nonce,
    pub now: Timestamp,
    /// The earliest time of another process's probe, if this one is never reported.
    pub due: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeClaimed {
    Claimed(Outage),
    /// Another process has claimed a probe, or the outage is over.
    Refused(Option<Outage>),
}

impl Operation for ClaimProbe<'_> {
    type Outcome = ProbeClaimed;

    fn write(&self) -> Write {
        let condition = Condition::All(vec![
            Condition::equal(a::DOWN_SINCE, self.seen.since.as_millis()),
            Condition::equal(a::NONCE, self.seen.nonce.as_str()),
        ]);
        let changes = vec![
            Change::set(a::NONCE, self.nonce.as_str()),
            time(a::DUE, self.due),
            Change::remove(a::FAILED_AT),
            Change::remove(a::FAILED_ORDER),
        ];
        update(self.destination, condition, self.now, changes)
    }

    /// Treats a refusal as success if the row has this claim's nonce, because then an earlier try of
    /// this write landed.
    fn judge(&self, reply: Written) -> Result<ProbeClaimed, CorruptRow> {
        let (is_mine, row) = match reply {
            Written::Landed(row) => (true, row),
            Written::Refused(row) => (has_nonce(&row, self.nonce), row),
        };
        Ok(match outage_of(row.as_ref())? {
            Some(outage) if is_mine => ProbeClaimed::Claimed(outage),
            other => ProbeClaimed::Refused(other),
        })
    }
}

/// Reports that a claimed probe failed, and plans the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportProbe<'a> {
    pub destination: &'a DestinationId,
    /// The claim's nonce.
    pub nonce: &'a Nonce,
    pub error: &'a str,
    /// The entity whose start failed.
    pub entity: &'a EntityKey,
    pub now: Timestamp,
    pub due: Timestamp,
}

impl Operation for ReportProbe<'_> {
    /// The outage that the row then shows. `None` if the outage is over.
    type Outcome = Option<Outage>;

    fn write(&self) -> Write {
        let condition =
            Condition::All(vec![Condition::exists(a::DOWN_SINCE), Condition::equal(a::NONCE, self.nonce.as_str())]);
        let changes = vec![
            Change::set(a::ERROR, shortened(self.error, LONGEST_ERROR)),
            time(a::DUE, self.due),
            time(a::FAILED_AT, self.now),
            Change::set(a::FAILED_ORDER, self.entity.hash()),
        ];
        update(self.destination, condition, self.now, changes)
    }

    /// Need not recognise an earlier try that landed: a second try meets the same condition, and changes
    /// nothing.
    fn judge(&self, reply: Written) -> Result<Option<Outage>, CorruptRow> {
        match reply {
            Written::Landed(row) | Written::Refused(row) => outage_of(row.as_ref()),
        }
    }
}

/// Reports that a destination is up again: ends the outage that the process has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportUp<'a> {
    pub destination: &'a DestinationId,
    pub seen: &'a Outage,
    pub now: Timestamp,
}

impl Operation for ReportUp<'_> {
    /// A later outage that the row shows. `None` if the destination is up.
    type Outcome = Option<Outage>;

    fn write(&self) -> Write {
        let condition = Condition::equal(a::DOWN_SINCE, self.seen.since.as_millis());
        let removed = [a::DOWN_SINCE, a::ERROR, a::DUE, a::FAILED_AT, a::FAILED_ORDER].map(Change::remove);
        update(self.destination, condition, self.now, removed.into())
    }

    /// Need not recognise an earlier try that landed: the row shows no outage either way.
    fn judge(&self, reply: Written) -> Result<Option<Outage>, CorruptRow> {
        match reply {
            Written::Landed(_) => Ok(None),
            Written::Refused(row) => outage_of(row.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::MemoryTable, table::Table};

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);
    const SECOND: Duration = Duration::from_secs(1);

    fn order(name: &str) -> EntityKey {
        EntityKey::parse(&format!("shop/{name}")).expect("a key")
    }

    fn at_of(outage: &Outage) -> Option<Timestamp> {
        outage.failed.as_ref().map(|failed| failed.at)
    }

    fn nonce(number: u128) -> Nonce {
        Nonce::from_parts(NOW, number)
    }

    struct Shared(MemoryTable, DestinationId);

    impl Shared {
        fn new() -> Self {
            Self(MemoryTable::new(), DestinationId::of("forward", "https://example.com/"))
        }

        fn run<O: Operation>(&self, operation: &O) -> O::Outcome {
            let reply =
                futures_util::FutureExt::now_or_never(self.0.write(&operation.write())).expect("it is in memory");
            operation.judge(reply.expect("memory answers")).expect("the row is readable")
        }

        fn down(&self, number: u128, error: &str) -> Option<Outage> {
            let nonce = nonce(number);
            let due = NOW + 5 * SECOND;
            let destination = &self.1;
            let name = "https://example.com";
            let entity = &order("a");
            self.run(&ReportDown { destination, name, error, nonce: &nonce, entity, now: NOW, due })
        }

        fn claim(&self, seen: &Outage, number: u128) -> ProbeClaimed {
            let nonce = nonce(number);
            self.run(&ClaimProbe { destination: &self.1, seen, nonce: &nonce, now: NOW, due: NOW + 20 * SECOND })
        }

        fn up(&self, seen: &Outage) -> Option<Outage> {
            self.run(&ReportUp { destination: &self.1, seen, now: NOW })
        }
    }

    #[test]
    fn first_report_of_an_outage_stays() {
        let shared = Shared::new();
        let first = shared.down(1, "connection refused").expect("it is down");
        assert_eq!((first.since, &*first.error, at_of(&first)), (NOW, "connection refused", Some(NOW)));
        assert_eq!(shared.down(2, "no answer"), Some(first));
    }

    #[test]
    fn probe_is_claimed_once_and_a_repeated_claim_is_recognised() {
        let shared = Shared::new();
        let seen = shared.down(1, "connection refused").expect("it is down");
        let ProbeClaimed::Claimed(claimed) = shared.claim(&seen, 2) else { panic!("nobody else claims") };
        assert_eq!((claimed.due, at_of(&claimed)), (NOW + 20 * SECOND, None));
        assert_eq!(shared.claim(&seen, 2), ProbeClaimed::Claimed(claimed.clone()));
        assert_eq!(shared.claim(&seen, 3), ProbeClaimed::Refused(Some(claimed)));
    }

    #[test]
    fn only_the_newest_claim_reports_its_probe() {
        let shared = Shared::new();
        let seen = shared.down(1, "connection refused").expect("it is down");
        shared.claim(&seen, 2);
        let report = |number| {
            let nonce = nonce(number);
            let due = NOW + 9 * SECOND;
            let destination = &shared.1;
            let error = "timed out";
            let entity = &order("b");
            shared.run(&ReportProbe { destination, nonce: &nonce, error, entity, now: NOW + SECOND, due })
        };
        assert_eq!(report(3).map(|outage| outage.error), Some("connection refused".to_owned()));
        let after = report(2).expect("it is down");
        assert_eq!((&*after.error, after.due, at_of(&after)), ("timed out", NOW + 9 * SECOND, Some(NOW + SECOND)));
    }

    #[test]
    fn late_end_of_an_outage_leaves_the_next_one() {
        let shared = Shared::new();
        let first = shared.down(1, "connection refused").expect("it is down");
        assert_eq!((shared.up(&first), shared.up(&first)), (None, None));
        let again = ReportDown {
            destination: &shared.1,
            name: "https://example.com",
            error: "refused",
            nonce: &nonce(2),
            entity: &order("a"),
            now: NOW + SECOND,
            due: NOW + 6 * SECOND,
        };
        let second = shared.run(&again).expect("it is down");
        assert_eq!(shared.up(&first), Some(second.clone()));
        assert_eq!(shared.claim(&first, 3), ProbeClaimed::Refused(Some(second)));
    }

    #[test]
    fn probe_planned_far_ahead_is_due() {
        let shared = Shared::new();
        let outage = shared.down(1, "refused").expect("it is down");
        let due = |seconds| outage.is_probe_due(&order("b"), NOW + seconds * SECOND);
        assert_eq!([4, 5].map(due), [false, true]);
        let due = |seconds| outage.is_probe_due(&order("a"), NOW + seconds * SECOND);
        assert_eq!([9, 10].map(due), [false, true], "it failed last");
        let planned = Outage { due: NOW + LONGEST_PROBE + SECOND, ..outage.clone() };
        assert!(planned.is_probe_due(&order("a"), NOW), "by a clock that is wrong");
    }
}
