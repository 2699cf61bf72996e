//! The report of a restore: what it changed, what it could not restore, and the operator's next steps.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use serializer::{
    output::{Table, counted, duration, this_command},
    say,
};
use webhook_serializer::{
    functions::scheduler::{ALERTS, SWEEP},
    operator::{JobReport, Newest, Operator, OperatorError, RESTORED, RestoreFindings, RestoreReport, Restored},
    protocol::{
        entity::{EntityKey, JOBS},
        maintain::RestoreRecord,
    },
    providers::rule_of,
    time::Timestamp,
};

use super::{NAMED, list_parked};
use crate::commands::target::Deployment;

/// The report asks the operator to compare deliveries with the senders' records from this long before the backup on,
/// because a delivery that was in transit at the time of the backup may be missing from the tables.
const IN_TRANSIT: Duration = Duration::from_secs(60);

const AT_ONCE: usize = 32;

#[derive(Debug, Default)]
pub struct RestoreSummary {
    orders: u64,
    already: Vec<EntityKey>,
    parked: u64,
    parked_orders: u64,
    repeats: u64,
    lost: BTreeMap<String, u64>,
    applied_before: BTreeMap<String, u64>,
    on_hold: Vec<String>,
    found: RestoreFindings,
    stay: BTreeMap<String, String>,
}

impl RestoreSummary {
    pub fn add(&mut self, key: &str, restored: &Result<Restored, OperatorError>) {
        match restored {
            Ok(Restored::Raised(told)) => self.raise(key, told),
            Ok(Restored::Already) => self.already.extend(EntityKey::parse(key)),
            Ok(Restored::Gone) => {}
            Ok(Restored::InUse) => self.stays(key, "its row changed between the backup and the restore"),
            Err(OperatorError::InUse) => self.stays(key, "another process changes its row"),
            Err(error) => self.stays(key, &error.to_string()),
        }
    }

    fn stays(&mut self, key: &str, why: &str) {
        self.stay.insert(key.to_owned(), why.to_owned());
    }

    fn raise(&mut self, key: &str, told: &RestoreReport) {
        self.found.add(key, told);
        self.count(key, told);
    }

    pub async fn add_earlier_runs(
        &mut self,
        operator: &Operator,
        restoring: &RestoreRecord,
    ) -> Result<(), OperatorError> {
        let orders = self.already.iter().filter(|entity| !entity.is_kept_forever()).cloned();
        let told = orders.map(|entity| async move {
            let told = operator.restored_before(restoring, &entity).await;
            told.map(|told| (entity, told))
        });
        let mut told = stream::iter(told.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some((entity, told)) = told.try_next().await? {
            self.count(entity.as_str(), &told);
        }
        let earlier = RestoreFindings::by(restoring);
        for (key, job) in earlier.jobs {
            // The earlier run recorded the job's state as it was before the restore.
            self.found.jobs.insert(key, job);
        }
        self.found.add("", &RestoreReport { newest: earlier.newest, ..RestoreReport::default() });
        Ok(())
    }

    fn count(&mut self, key: &str, told: &RestoreReport) {
        self.orders += u64::from(!key.starts_with(JOBS));
        self.parked += told.parked;
        self.parked_orders += u64::from(told.parked > 0);
        self.repeats += told.repeats;
        if told.lost > 0 {
            self.lost.insert(key.to_owned(), told.lost);
        }
        if told.applied_before > 0 {
            self.applied_before.insert(key.to_owned(), told.applied_before);
        }
        if told.is_on_hold {
            self.on_hold.push(key.to_owned());
        }
    }

    pub fn raised(&self) -> u64 {
        self.orders + self.found.jobs.len() as u64
    }

    fn jobs(&self) -> impl Iterator<Item = (&str, &JobReport)> {
        self.found.jobs.iter().map(|(key, job)| (key.trim_start_matches(JOBS), job))
    }

    pub fn json(&self, restoring: &RestoreRecord, is_whole: bool) -> serde_json::Value {
        let sources = self.found.newest.iter().map(|(source, newest)| {
            let from = from(restoring);
            let horizon = horizon(newest);
            json!({
                "source": source, "provider": newest.provider, "newest": newest.received_at.to_string(),
                "reconcile_from": from.to_string(), "retried_for_s": horizon.map(|horizon| horizon.as_secs()),
            })
        });
        let jobs = self.jobs().map(|(name, job)| {
            json!({
                "job": name, "last_tick": job.last_tick.map(|tick| tick.to_string()),
                "at_work": job.at_work.map(|tick| tick.to_string()), "run_requested": job.was_requested,
            })
        });
        json!({
            "as_of": restoring.as_of.to_string(), "begun": restoring.begun.to_string(), "whole": is_whole,
            "orders": self.orders, "already": self.already.len(), "set_aside": self.parked, "repeats": self.repeats,
            "lost": self.lost, "applied_before": self.applied_before, "on_hold": self.on_hold, "not_restored": self.stay,
            "sources": sources.collect::<Vec<_>>(), "jobs": jobs.collect::<Vec<_>>(),
        })
    }

    pub fn print(&self, restoring: &RestoreRecord, is_whole: bool, deployment: &Deployment) {
        say!("{} restored to {}.", counted(self.orders, "order", "orders"), restoring.as_of);
        if !self.already.is_empty() {
            say!(
                "{} restored by an earlier run; the numbers below include them.",
                counted(self.already.len() as u64, "row was", "rows were")
            );
        }
        if !self.lost.is_empty() {
            say!(
                "{} claimed but empty in the backup: {}. Ask the senders whether webhooks of these orders are missing.",
                counted(self.lost.values().sum(), "sequence was", "sequences were"),
                listed(self.lost.keys()),
            );
        }
        if !self.applied_before.is_empty() {
            say!(
                "{} waiting to run again after a `rewind`, or applied while the backup copied the tables: {}. The restore \
                 counts them as applied. If you had rewound one of these orders, rewind it again.",
                counted(self.applied_before.values().sum(), "delivery was", "deliveries were"),
                listed(self.applied_before.keys()),
            );
        }
        if !self.stay.is_empty() {
            say!();
            say!("NOT restored:");
            self.stay.iter().take(NAMED).for_each(|(key, why)| say!("  {key}: {why}"));
            if self.stay.len() > NAMED {
                say!("  and {} more", self.stay.len() - NAMED);
            }
        }
        if !is_whole {
            say!();
            say!("The restore is not complete. Keep the functions off, and run the same command again.");
        }
        let steps = [
            self.to_decide(restoring, deployment),
            self.to_run(restoring, deployment),
            self.to_let_go_on(deployment),
            self.to_reconcile(restoring),
        ];
        let steps: Vec<String> = steps.into_iter().flatten().collect();
        if !steps.is_empty() {
            say!();
            say!("Next steps (docs/runbooks/restore.md):");
        }
        for (number, step) in (1..).zip(steps) {
            say!();
            say!("{number}. {step}");
        }
    }

    fn to_decide(&self, restoring: &RestoreRecord, deployment: &Deployment) -> Option<String> {
        (self.parked > 0).then(|| {
            format!(
                "{} of {} waited at {} and may have been applied since, so the restore parked them. Before functions \
                 use these tables, redrive what must run again; it then runs before newer \
                 deliveries:\n     {}\n     {}",
                counted(self.parked, "delivery", "deliveries"),
                counted(self.parked_orders, "order", "orders"),
                restoring.as_of,
                list_parked(deployment),
                deployment.line("redrive", &["--error", RESTORED]),
            )
        })
    }

    fn to_run(&self, restoring: &RestoreRecord, deployment: &Deployment) -> Option<String> {
        // The scheduler's own jobs are left out: they run each minute and miss nothing.
        let jobs: Vec<_> = self.jobs().filter(|(name, _)| ![SWEEP, ALERTS].contains(name)).collect();
        let mut table = Table::new(&["   job", "last recorded tick", "at that time"]);
        for (name, job) in &jobs {
            let at_work = job.at_work.map(|tick| format!("the tick of {tick} was running"));
            let asked = job.was_requested.then(|| "a run was requested".to_owned());
            table.row([
                format!("   {name}"),
                job.last_tick.map(|tick| tick.to_string()).unwrap_or_default(),
                at_work.into_iter().chain(asked).collect::<Vec<_>>().join("; "),
            ]);
        }
        (!jobs.is_empty()).then(|| {
            format!(
                "Jobs skip their ticks up to {}, because the backup does not show if they ran. `{} jobs run \
                 NAME{}` runs one.\n{}",
                restoring.begun,
                this_command(),
                deployment.option,
                table.to_string().trim_end(),
            )
        })
    }

    fn to_let_go_on(&self, deployment: &Deployment) -> Option<String> {
        (!self.on_hold.is_empty()).then(|| {
            format!(
                "These orders were blocked and are on hold now: {}. `{}` lets one continue.",
                listed(self.on_hold.iter()),
                deployment.line("resume", &["ORDER"])
            )
        })
    }

    fn to_reconcile(&self, restoring: &RestoreRecord) -> Option<String> {
        let mut table = Table::new(&["   source", "newest that was read", ">repeats for"]);
        for (source, newest) in &self.found.newest {
            let repeats = match horizon(newest) {
                None => "not known".to_owned(),
                Some(Duration::ZERO) => "never".to_owned(),
                Some(horizon) => duration(horizon),
            };
            table.row([format!("   {source}"), newest.received_at.to_string(), repeats]);
        }
        (!table.is_empty()).then(|| {
            format!(
                "Ask each sender for all webhooks that it sent from {} until the functions run again, including \
                 retries of earlier ones. Deliveries that were applied by {} are recognised as repeats; later ones are \
                 applied once more. Only deliveries that waited or were the last of their order were read, so other \
                 sources may be missing here.\n{}",
                from(restoring),
                restoring.as_of,
                table.to_string().trim_end(),
            )
        })
    }
}

fn from(restoring: &RestoreRecord) -> Timestamp {
    let millis = restoring.as_of.as_millis().saturating_sub(IN_TRANSIT.as_millis() as u64);
    Timestamp::from_millis(millis)
}

fn horizon(newest: &Newest) -> Option<Duration> {
    rule_of(newest.provider.as_deref()?)?.reads.horizon
}

fn listed<'a>(keys: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = keys.len().saturating_sub(NAMED);
    let named = keys.take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}
