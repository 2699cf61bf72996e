//! Prepares tables that were restored from a backup for use.
//!
//! For each entity, the restore parks the waiting deliveries and writes the receipts to rows of
//! their own. Then one write advances the entity's numbers beyond all numbers given out since the
//! backup, and marks the row as restored. After a crash, the same call continues with the rows that
//! are not marked.

mod report;

use std::time::Duration;

use futures_util::{StreamExt, future::try_join_all, stream};
pub use report::{JobReport, Newest, RestoreFindings, RestoreReport};
use tokio::sync::Mutex;

use super::{Operator, OperatorError, PAGE, PATIENCE, Parked, TRIES, acts::LOG_RETENTION};
use crate::{
    engine::{
        drain::{
            page::{InboxPage, WaitingDelivery},
            park::Parking,
            plan::{DeliveryGroup, Drain, Front, Memory, SettleRequest},
            spill::spill_dropped,
        },
        store::StoreError,
    },
    protocol::{
        attempt::Retries,
        delivery::InboxItem,
        entity::{EntityKey, Sequence},
        format::{CorruptRow, attribute as a},
        inbox::{Settle, Settled, Void, Voided},
        keys::{action_row, delivery_range, entity_row, restore_row},
        lease::Lease,
        maintain::{
            AdvanceNumbers, BeginRestore, BegunRestore, EndRestore, ForceAcquire, ForceAcquired, LogAction, LogOutcome,
            NextRestore, NumbersAdvanced, OperatorAction, Reason, RecordFindings, RestoreRecord,
        },
        receipt::{Settlement, Spilled},
        state::EntityState,
        table::TableName,
        tick::JobState,
    },
    time::Timestamp,
};

/// The start of the error text of deliveries that a restore has parked.
pub const RESTORED: &str = "restored";

const VERB: &str = "restore";

const AT_ONCE: usize = 32;

/// The length of the leases that a restore takes. Parking one delivery takes less time.
const LEASE: Duration = Duration::from_secs(60);

fn waited_at(restoring: &RestoreRecord) -> String {
    format!("{RESTORED}: the delivery waited at {}", restoring.as_of)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// The entity was restored, with these findings.
    Raised(RestoreReport),
    Already,
    /// A sequence was claimed since the backup, so the tables are in use or were not restored.
    /// Nothing was changed.
    InUse,
    Gone,
}

impl Operator {
    pub async fn restoring(&self) -> Result<Option<RestoreRecord>, OperatorError> {
        let row = self.store.get(&restore_row(), PATIENCE).await?;
        Ok(row.as_ref().map(RestoreRecord::parse).transpose()?)
    }

    /// Begins a restore of tables that were copied at the time `as_of`, or continues an earlier
    /// restore.
    pub async fn begin_restore(&self, as_of: Timestamp) -> Result<NextRestore, OperatorError> {
        loop {
            let seen = self.restoring().await?;
            match RestoreRecord::next(seen.clone(), as_of) {
                NextRestore::Begin => {}
                next => return Ok(next),
            }
            let env = self.store.env();
            let restoring = RestoreRecord { nonce: env.nonce(), as_of, begun: env.now(), ended: None, found: None };
            let begin = BeginRestore { seen: seen.as_ref(), restoring: &restoring };
            match self.store.run(&begin, PATIENCE).await? {
                BegunRestore::Begun => return Ok(NextRestore::GoOn(restoring)),
                BegunRestore::Elsewhere => {}
            }
        }
    }

    /// Restores all entities. Returns whether all of them are restored.
    ///
    /// This method reports each entity's result to `goes_on`, and stops if `goes_on` returns `false`. Once all entities
    /// are restored, this method records that the restore has ended. After a stop or an error, call it again to
    /// continue. A corrupt row is reported to `goes_on` only.
    pub async fn restore_all(
        &self,
        restoring: &RestoreRecord,
        even_if_used: bool,
        mut goes_on: impl FnMut(&str, &Result<Restored, OperatorError>) -> bool,
    ) -> Result<bool, OperatorError> {
        let mut is_whole = true;
        let found = &Mutex::new(RestoreFindings::by(restoring));
        let mut pass = self.pass(TableName::Entities);
        while let Some(rows) = pass.page().await? {
            // The keys are owned, so that the future can be spawned.
            let keys: Vec<String> = rows.iter().filter_map(|row| row.text(a::ENTITY).map(str::to_owned)).collect();
            let restored = keys.into_iter().map(|key| async move {
                let restored = match EntityKey::parse(&key) {
                    Ok(entity) => self.restore_noting(restoring, &entity, even_if_used, found).await,
                    Err(error) => Err(CorruptRow::from(error).into()),
                };
                (key, restored)
            });
            let mut restored = stream::iter(restored).buffer_unordered(AT_ONCE);
            while let Some((key, restored)) = restored.next().await {
                if let Err(error) = &restored
                    && !matches!(error, OperatorError::InUse | OperatorError::Store(StoreError::Corrupt(_)))
                {
                    return Err(error.clone());
                }
                is_whole &= matches!(restored, Ok(Restored::Raised(_) | Restored::Already | Restored::Gone));
                if !goes_on(&key, &restored) {
                    return Ok(false);
                }
            }
        }
        if is_whole {
            let now = self.store.env().now();
            self.store.run(&EndRestore { restoring, now }, PATIENCE).await?;
        }
        Ok(is_whole)
    }

    /// Restores one entity.
    ///
    /// The entity's waiting deliveries are parked, because they may have been applied after the
    /// backup. A job's ticks that were due before the restore began are not run. After a crash, call
    /// the function again to continue.
    ///
    /// If `even_if_used` is set, the function also restores an entity for which the restored tables
    /// have accepted deliveries. These deliveries are parked, too.
    pub async fn restore(
        &self,
        restoring: &RestoreRecord,
        entity: &EntityKey,
        even_if_used: bool,
    ) -> Result<Restored, OperatorError> {
        let found = Mutex::new(RestoreFindings::by(restoring));
        self.restore_noting(restoring, entity, even_if_used, &found).await
    }

    /// Returns the report on an entity that an earlier run of this restore has finished.
    ///
    /// The report lacks the findings that [`RestoreFindings`] has. If a run was killed halfway through the
    /// entity, the report counts all parked deliveries, but its other counts cover only the time
    /// after the kill.
    pub async fn restored_before(
        &self,
        restoring: &RestoreRecord,
        entity: &EntityKey,
    ) -> Result<RestoreReport, OperatorError> {
        let row = self.store.get(&action_row(entity, &restoring.nonce), PATIENCE).await?;
        let Some(act) = row.as_ref().map(OperatorAction::parse).transpose()?.flatten() else {
            return Ok(RestoreReport::default());
        };
        let mut report = act.found.as_deref().and_then(RestoreReport::from_stored).unwrap_or_default();
        report.parked = report.parked.max(self.parked_so_far(restoring, entity).await?);
        Ok(report)
    }

    /// Counts the deliveries that any run of this restore has parked and that are still parked.
    async fn parked_so_far(&self, restoring: &RestoreRecord, entity: &EntityKey) -> Result<u64, OperatorError> {
        let by_this = |parked: &&Parked| parked.row.text(a::RESTORE) == Some(restoring.nonce.as_str());
        Ok(self.parked(entity).await?.iter().filter(by_this).count() as u64)
    }

    async fn restore_noting(
        &self,
        restoring: &RestoreRecord,
        entity: &EntityKey,
        even_if_used: bool,
        found: &Mutex<RestoreFindings>,
    ) -> Result<Restored, OperatorError> {
        let mut report = RestoreReport::default();
        for _ in 0..TRIES {
            let Some(row) = self.store.get(&entity_row(entity), PATIENCE).await? else { return Ok(Restored::Gone) };
            let state = EntityState::parse(&row)?;
            let now = self.store.env().now();
            if restoring.is_done(&state, now) {
                return Ok(Restored::Already);
            }
            if restoring.is_in_use(&state, now) && !even_if_used {
                return Ok(Restored::InUse);
            }
            let job = entity.is_kept_forever().then(|| JobState::parse(&row)).transpose()?;
            if self.restore_seen(restoring, &state, job.as_ref(), found, &mut report).await? {
                return Ok(Restored::Raised(report));
            }
        }
        Err(OperatorError::InUse)
    }

    /// Restores the entity whose row was read as `seen`. Returns `false` if the row has changed
    /// since that read.
    async fn restore_seen(
        &self,
        restoring: &RestoreRecord,
        seen: &EntityState,
        job: Option<&JobState>,
        found: &Mutex<RestoreFindings>,
        report: &mut RestoreReport,
    ) -> Result<bool, OperatorError> {
        report.was_held |= seen.held.is_some();
        report.is_on_hold |= seen.blocked.is_some() && seen.hold.since().is_none();
        if let Some(job) = job {
            let at_work = job.unfinished();
            let was_requested = job.run_requested.is_some();
            report.job = Some(JobReport { last_tick: job.last_tick, at_work, was_requested });
        }
        let last = self.last_filled(seen, report).await?;
        self.note(restoring, seen.entity.as_str(), found, report).await?;
        let reason = self.reason.clone().unwrap_or_else(|| Reason::new("operator", ""));
        let entity = seen.entity.clone();
        let nonce = restoring.nonce.clone();
        let act = OperatorAction { entity, nonce, verb: VERB.into(), sequence: None, reason, ended: None, found: None };
        let waits = !seen.is_empty() || last > seen.tail;
        if waits || report.is_on_hold {
            let purge_at = self.store.env().now() + LOG_RETENTION;
            self.store.run(&LogAction { action: &act, purge_at }, PATIENCE).await?;
        }
        let empty = match waits {
            false => Some(seen.clone()),
            true => self.settle_all(restoring, seen, last, report).await?,
        };
        let Some(empty) = empty else { return Ok(false) };
        self.spill_all(&empty).await?;
        let now = self.store.env().now();
        let retention = self.retention;
        let raise = AdvanceNumbers { restoring, seen: &empty, job, now, retention };
        let NumbersAdvanced::Advanced(_) = self.store.run(&raise, PATIENCE).await? else { return Ok(false) };
        if seen.held.is_some() {
            // An earlier run may have crashed while it restored this entity.
            report.parked = report.parked.max(self.parked_so_far(restoring, &seen.entity).await?);
        }
        // A lease in the row may be left from an earlier run that crashed after its last settle.
        // Its outcome is then logged here.
        if report.is_worth_logging() || seen.held.is_some() {
            let found = report.to_stored();
            let log = LogOutcome { action: &act, outcome: &report.describe(), found: Some(&found) };
            self.store.run(&log, PATIENCE).await?;
        }
        Ok(true)
    }

    async fn note(
        &self,
        restoring: &RestoreRecord,
        key: &str,
        found: &Mutex<RestoreFindings>,
        report: &RestoreReport,
    ) -> Result<(), OperatorError> {
        // The lock is kept until the write has ended, so that concurrent findings do not overwrite each
        // other.
        let mut found = found.lock().await;
        let mut with = found.clone();
        if with.add(key, report) {
            let text = serde_json::to_string(&with).map_err(|error| StoreError::Invalid(error.to_string().into()))?;
            self.store.run(&RecordFindings { restoring, found: &text }, PATIENCE).await?;
            *found = with;
        }
        Ok(())
    }

    /// Returns the last filled sequence, and adds the newest delivery of each source to `report`.
    ///
    /// This sequence may be beyond `tail`, because the two tables are not copied at exactly the
    /// same moment.
    async fn last_filled(&self, seen: &EntityState, report: &mut RestoreReport) -> Result<Sequence, OperatorError> {
        let mut last = seen.head;
        let range = delivery_range(&seen.entity, seen.head, Sequence(u64::MAX), PAGE);
        let mut pages = self.store.pages(range, PATIENCE);
        while let Some(rows) = pages.next().await? {
            for row in &rows {
                let item = InboxItem::parse(&seen.entity, row)?;
                last = item.sequence();
                if let InboxItem::Delivery(unpacked) = item {
                    let head = unpacked.head();
                    let received_at = head.received_at();
                    let provider = head.provider().map(str::to_owned);
                    report.newest.insert(head.source().clone(), Newest { provider, received_at });
                }
            }
        }
        Ok(last)
    }

    /// Settles the waiting items one by one, and returns the row afterwards. Returns `None` if another
    /// process has changed the row.
    async fn settle_all(
        &self,
        restoring: &RestoreRecord,
        seen: &EntityState,
        last: Sequence,
        report: &mut RestoreReport,
    ) -> Result<Option<EntityState>, OperatorError> {
        let env = self.store.env();
        let holder = env.nonce();
        let now = env.now();
        let seize = ForceAcquire { restoring, seen, last, holder: &holder, now, length: LEASE };
        let ForceAcquired::Granted(mut lease, state) = self.store.run(&seize, PATIENCE).await? else { return Ok(None) };
        // The inbox table may have been copied a moment later, so it may hold receipts although the row does not say so.
        let state = EntityState { spilled: Spilled::ANYWHERE, ..state };
        let mut drain = Drain::granted(state, Memory::of(&seen.entity, self.retention));
        while !drain.state().is_empty() {
            let settlement = match drain.front_item() {
                Front::Settled(settlement) => settlement,
                Front::Tombstone => Settlement::Void,
                Front::Unread => {
                    self.read_on(&mut drain, report).await?;
                    continue;
                }
                // The delivery has a receipt, so it was applied. Either it was rewound, or the inbox table was
                // copied a moment later.
                Front::Delivery(waiting) if drain.before(waiting.unpacked.head()).is_some() => Settlement::Applied,
                Front::Delivery(waiting) => {
                    self.park_waiting(restoring, drain.state(), waiting).await?;
                    Settlement::Parked
                }
            };
            let Some(next) = self.settle_one(&lease, &mut drain, settlement).await? else { return Ok(None) };
            lease = next;
            match settlement {
                Settlement::Parked => report.parked += 1,
                Settlement::Repeat => report.repeats += 1,
                Settlement::Applied => report.applied_before += 1,
                _ => {}
            }
        }
        Ok(Some(drain.state().clone()))
    }

    /// Reads the next page of waiting items. If the next sequence is empty, writes a tombstone there.
    async fn read_on(&self, drain: &mut Drain, report: &mut RestoreReport) -> Result<(), OperatorError> {
        let entity = drain.state().entity.clone();
        let next = drain.state().next();
        let tail = drain.state().tail;
        let page = InboxPage::read(&self.store, &entity, next, tail, drain.unread()).await?;
        drain.read(page);
        if matches!(drain.front_item(), Front::Unread) {
            let purge_at = self.store.env().now() + self.retention;
            let void = Void { entity: &entity, sequence: next, purge_at };
            if matches!(self.store.run(&void, PATIENCE).await?, Voided::Void) {
                report.lost += 1;
                drain.tombstone_written();
            }
        }
        Ok(())
    }

    async fn park_waiting(
        &self,
        restoring: &RestoreRecord,
        state: &EntityState,
        waiting: &WaitingDelivery,
    ) -> Result<(), OperatorError> {
        let failed = state.last_error.as_ref().map(|error| format!("; it had failed: {error}")).unwrap_or_default();
        let error = format!("{}, and may have been applied since{failed}", waited_at(restoring));
        let restore = Some(&restoring.nonce);
        let parking = Parking { error: &error, run_before: None, restore, kept_for: self.parked_retention };
        Ok(parking.park(&self.store, waiting).await?)
    }

    async fn settle_one(
        &self,
        lease: &Lease,
        drain: &mut Drain,
        settlement: Settlement,
    ) -> Result<Option<Lease>, OperatorError> {
        let now = self.store.env().now();
        let attempts = if settlement == Settlement::Parked { drain.tried(DeliveryGroup::ONE) } else { 0 };
        let request = SettleRequest {
            settlement,
            group: DeliveryGroup::ONE,
            token: lease.token(),
            attempts,
            took: None,
            at: now,
            carried: Retries::default(),
        };
        let mut decision = drain.decision(request, now, None);
        spill_dropped(&self.store, drain, &mut decision, self.retention, PATIENCE).await?;
        let settle = Settle { lease, decision: &decision, now, length: LEASE, hands_over: false };
        Ok(match self.store.run(&settle, PATIENCE).await? {
            Settled::Settled(lease, state) => {
                drain.settled(state, &decision);
                Some(lease)
            }
            Settled::Lost => None,
        })
    }

    /// Writes all receipts in the entity's row to rows of their own, because the restore drops them
    /// from the entity's row.
    async fn spill_all(&self, state: &EntityState) -> Result<(), OperatorError> {
        try_join_all(state.recent.iter().map(|receipt| self.spill(&state.entity, receipt))).await.map(drop)
    }
}
