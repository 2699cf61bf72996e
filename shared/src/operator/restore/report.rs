//! The findings of a restore, about one entity and about all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    protocol::{entity::SourceName, maintain::RestoreRecord},
    time::Timestamp,
};

/// The findings about one entity. Those that are serialized are stored in the operations log, for a
/// later run of the restore.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RestoreReport {
    /// The number of waiting deliveries that were parked.
    pub parked: u64,
    pub repeats: u64,
    /// The number of claimed sequences that held no item. A delivery that was stored there after
    /// the backup is lost.
    pub lost: u64,
    /// The number of waiting deliveries that had already been applied. Either they were rewound, or
    /// the inbox table was copied a moment later than the table of entities.
    pub applied_before: u64,
    /// Set if the entity was blocked, and is now on hold instead.
    pub is_on_hold: bool,
    /// Set if the entity had a lease at the time of the backup.
    #[serde(skip)]
    pub was_held: bool,
    #[serde(skip)]
    pub newest: BTreeMap<SourceName, Newest>,
    #[serde(skip)]
    pub job: Option<JobReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    pub provider: Option<String>,
    pub received_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobReport {
    /// The newest tick that the backup records.
    pub last_tick: Option<Timestamp>,
    /// The tick that was running at the time of the backup.
    pub at_work: Option<Timestamp>,
    pub was_requested: bool,
}

/// The findings that a restore must store, because the restored rows do not show them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RestoreFindings {
    pub newest: BTreeMap<SourceName, Newest>,
    pub jobs: BTreeMap<String, JobReport>,
}

impl RestoreFindings {
    /// Returns the findings that all runs of this restore have stored so far.
    pub fn by(restoring: &RestoreRecord) -> Self {
        let found = restoring.found.as_deref().and_then(|found| serde_json::from_str(found).ok());
        found.unwrap_or_default()
    }

    /// Adds the findings about one entity. Returns whether they changed anything.
    pub fn add(&mut self, key: &str, report: &RestoreReport) -> bool {
        let before = self.clone();
        for (source, newest) in &report.newest {
            let known = self.newest.entry(source.clone()).or_insert_with(|| newest.clone());
            if known.received_at < newest.received_at {
                *known = newest.clone();
            }
        }
        if let Some(job) = &report.job {
            self.jobs.entry(key.to_owned()).or_insert_with(|| job.clone());
        }
        *self != before
    }
}

impl RestoreReport {
    pub(super) fn to_stored(&self) -> String {
        serde_json::to_string(self).expect("counts are JSON")
    }

    pub(super) fn from_stored(stored: &str) -> Option<Self> {
        serde_json::from_str(stored).ok()
    }

    pub(super) fn is_worth_logging(&self) -> bool {
        self.parked + self.repeats + self.lost + self.applied_before > 0 || self.is_on_hold
    }

    pub(super) fn describe(&self) -> String {
        let on_hold = if self.is_on_hold { "; on hold, because it was blocked" } else { "" };
        let Self { parked, repeats, lost, applied_before, .. } = self;
        format!(
            "{parked} parked, {repeats} recognised as repeats, {lost} lost, {applied_before} applied before{on_hold}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_restore_report_is_read_unchanged() {
        for is_on_hold in [false, true] {
            let report = RestoreReport {
                parked: 1,
                repeats: 2,
                lost: 3,
                applied_before: 4,
                is_on_hold,
                ..RestoreReport::default()
            };
            assert_eq!(RestoreReport::from_stored(&report.to_stored()), Some(report));
        }
    }

    #[test]
    fn restore_findings_keep_newest_delivery_of_each_source() {
        let mut found = RestoreFindings::default();
        let source = SourceName::parse("shop").unwrap();
        for (received_at, is_change, newest) in [(2, true, 2), (3, true, 3), (1, false, 3)] {
            let delivery = Newest { provider: None, received_at: Timestamp::from_secs(received_at) };
            let report = RestoreReport { newest: [(source.clone(), delivery)].into(), ..RestoreReport::default() };
            assert_eq!(found.add("shop/order/1", &report), is_change, "{received_at}");
            assert_eq!(found.newest[&source].received_at, Timestamp::from_secs(newest), "{received_at}");
        }
    }
}
