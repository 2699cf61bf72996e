//! Tables that were restored from a backup, made ready to be taken into use.
//!
//! The order's rows are gone through one by one. Of each, what waited is set
//! aside for a person, and its memory written beside it; then one write raises
//! it above all that was given out since the backup. Killed anywhere, the same
//! call goes on: a row that was raised says so.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, future::try_join_all, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{LOOKS, Operator, OperatorError, PAGE, PATIENCE, acts::TOLD_FOR};
use crate::{
    engine::{
        drain::{
            aside::Aside,
            page::{Page, Waiting},
            plan::{Drain, Ending, Group, InFront, Memory},
        },
        store::StoreError,
    },
    protocol::{
        attempt::Retries,
        delivery::Item,
        entity::{EntityKey, Sequence, SourceName},
        format::{CorruptRow, attribute as a},
        inbox::{Settle, Settled, Void, Voided},
        keys::{action_row, delivery_range, entity_row, restore_row},
        lease::Lease,
        maintain::{
            AdvanceNumbers, BeginRestore, BegunRestore, EndRestore, ForceAcquire, ForceAcquired, LogAction, LogOutcome,
            NextRestore, NumbersAdvanced, OperatorAction, Reason, RecordFindings, RestoreRecord,
        },
        receipt::{Recent, Settlement},
        state::EntityState,
        table::TableName,
        tick::JobState,
    },
    time::Timestamp,
};

/// How the error of what a restore sets aside begins.
pub const RESTORED: &str = "restored";

/// What an act of it is called.
const VERB: &str = "restore";

/// So many entities are restored side by side. Each is some calls one after the
/// other.
const AT_ONCE: usize = 32;

/// Longer than one delivery takes to be set aside.
const LEASE: Duration = Duration::from_secs(60);

/// How the error of what this restore sets aside begins.
fn waited_at(restoring: &RestoreRecord) -> String {
    format!("{RESTORED}: it waited at {}", restoring.as_of)
}

/// What became of an entity of the backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// It goes on above all that was given out.
    Raised(Told),
    /// It did before: nothing was changed.
    Already,
    /// Something was claimed on it after the backup and before it was restored;
    /// nothing was changed.
    InUse,
    /// It has no row any more.
    Gone,
}

/// What a restore found of an entity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// How many deliveries waited, and are set aside.
    pub set_aside: u64,
    /// How many waited that were repeats of what had been applied or set aside.
    pub repeats: u64,
    /// How many places were claimed and hold nothing: if they were filled, it was
    /// after the backup.
    pub lost: u64,
    /// How many waited that had been applied, and stay so: a person wanted them run
    /// again, or that table was copied a moment later.
    pub applied_before: u64,
    /// It was blocked, and is on hold now.
    pub is_on_hold: bool,
    /// Somebody had its lease.
    pub was_held: bool,
    /// The newest that each of its sources had sent, of those at the end of its
    /// inbox.
    pub newest: BTreeMap<SourceName, Newest>,
    /// It is a job.
    pub job: Option<ToldOfJob>,
}

/// The newest delivery of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newest {
    /// By whose rules it came.
    pub provider: Option<String>,
    /// When it was accepted.
    pub received_at: Timestamp,
}

/// What a restore found of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToldOfJob {
    /// The newest tick that the backup knows of.
    pub last_tick: Option<Timestamp>,
    /// One that was at work then.
    pub at_work: Option<Timestamp>,
    /// Somebody had asked for a run.
    pub was_requested: bool,
}

/// What a restore found that no row tells any more once it is raised.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// The newest delivery of each source.
    pub newest: BTreeMap<SourceName, Newest>,
    /// The jobs, by their keys.
    pub jobs: BTreeMap<String, ToldOfJob>,
}

impl Found {
    /// What the runs of `restoring` found so far.
    pub fn by(restoring: &RestoreRecord) -> Self {
        let found = restoring.found.as_deref().and_then(|found| serde_json::from_str(found).ok());
        found.unwrap_or_default()
    }

    /// Takes in what was found of one entity. Whether that is news.
    pub fn take_in(&mut self, key: &str, told: &Told) -> bool {
        let before = self.clone();
        for (source, newest) in &told.newest {
            let known = self.newest.entry(source.clone()).or_insert_with(|| newest.clone());
            if known.received_at < newest.received_at {
                *known = newest.clone();
            }
        }
        if let Some(job) = &told.job {
            self.jobs.entry(key.to_owned()).or_insert_with(|| job.clone());
        }
        *self != before
    }
}

impl Told {
    /// Reads the counts that [`in_words`](Self::in_words) says.
    fn from_words(words: &str) -> Option<Self> {
        let (counts, on_hold) = words.split_once(';').map_or((words, ""), |(counts, on_hold)| (counts, on_hold));
        let numbers: Vec<u64> = counts.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
        let [set_aside, repeats, lost, applied_before] = numbers[..] else { return None };
        Some(Self { set_aside, repeats, lost, applied_before, is_on_hold: !on_hold.is_empty(), ..Self::default() })
    }

    fn is_worth_telling(&self) -> bool {
        self.set_aside + self.repeats + self.lost + self.applied_before > 0 || self.is_on_hold
    }

    fn in_words(&self) -> String {
        let on_hold = if self.is_on_hold { "; on hold, because it was blocked" } else { "" };
        let Self { set_aside, repeats, lost, applied_before, .. } = self;
        format!(
            "{set_aside} set aside, {repeats} known as repeats, {lost} lost, {applied_before} applied before{on_hold}"
        )
    }
}

impl Operator {
    /// The restore that these tables went through last, whether or not it has
    /// ended.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or the row cannot be read.
    pub async fn restoring(&self) -> Result<Option<RestoreRecord>, OperatorError> {
        let row = self.store.get(&restore_row(), PATIENCE).await?;
        Ok(row.as_ref().map(RestoreRecord::parse).transpose()?)
    }

    /// Begins to restore, or goes on with what was begun: what is to be done is
    /// returned with the restore that it is to be done under.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or the row cannot be read.
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

    /// Restores every entity of the backup, some side by side, and tells what became
    /// of each: whoever listens may say to stop. Whether all are restored; then that
    /// is written down. Else ask again: what is done is not done again.
    ///
    /// # Errors
    ///
    /// The store could not be reached. A row that cannot be read is told, and the
    /// others are restored.
    pub async fn restore_all(
        &self,
        restoring: &RestoreRecord,
        even_if_used: bool,
        mut goes_on: impl FnMut(&str, &Result<Restored, OperatorError>) -> bool,
    ) -> Result<bool, OperatorError> {
        let mut is_whole = true;
        let found = &Mutex::new(Found::by(restoring));
        let mut pass = self.pass(TableName::Entities);
        while let Some(rows) = pass.page().await? {
            // Owned, so that whoever restores can be a task of its own.
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

    /// Restores one entity of the backup. What waited is parked: it may have been
    /// applied since. Of a job, no tick up to the restore is due any more. Asked
    /// twice, or again after it was killed, it goes on, or finds it done.
    ///
    /// `even_if_used`: also where something was accepted on these tables since.
    /// What waits from then is set aside, too.
    ///
    /// # Errors
    ///
    /// The store could not be reached, a row cannot be read, or somebody else keeps
    /// changing it ([`OperatorError::InUse`]).
    pub async fn restore(
        &self,
        restoring: &RestoreRecord,
        entity: &EntityKey,
        even_if_used: bool,
    ) -> Result<Restored, OperatorError> {
        let found = Mutex::new(Found::by(restoring));
        self.restore_noting(restoring, entity, even_if_used, &found).await
    }

    /// Reports an entity that an earlier run of this restore raised, except for what
    /// [`Found`] holds. If that run was killed halfway through the entity, the report
    /// counts all parked deliveries, and of the rest only those after the kill.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or a row cannot be read.
    pub async fn restored_before(&self, restoring: &RestoreRecord, entity: &EntityKey) -> Result<Told, OperatorError> {
        let row = self.store.get(&action_row(entity, &restoring.nonce), PATIENCE).await?;
        let Some(act) = row.as_ref().map(OperatorAction::parse).transpose()?.flatten() else {
            return Ok(Told::default());
        };
        let mut told = act.ended.as_deref().and_then(Told::from_words).unwrap_or_default();
        told.set_aside = told.set_aside.max(self.set_aside_so_far(restoring, entity).await?);
        Ok(told)
    }

    /// How many deliveries of an entity this restore has set aside in all of its
    /// runs, and nobody has put back.
    async fn set_aside_so_far(&self, restoring: &RestoreRecord, entity: &EntityKey) -> Result<u64, OperatorError> {
        let error = waited_at(restoring);
        Ok(self.parked(entity).await?.iter().filter(|one| one.error.starts_with(&error)).count() as u64)
    }

    async fn restore_noting(
        &self,
        restoring: &RestoreRecord,
        entity: &EntityKey,
        even_if_used: bool,
        found: &Mutex<Found>,
    ) -> Result<Restored, OperatorError> {
        let mut told = Told::default();
        for _ in 0..LOOKS {
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
            if self.restore_seen(restoring, &state, job.as_ref(), found, &mut told).await? {
                return Ok(Restored::Raised(told));
            }
        }
        Err(OperatorError::InUse)
    }

    /// Whether nobody came in between.
    async fn restore_seen(
        &self,
        restoring: &RestoreRecord,
        seen: &EntityState,
        job: Option<&JobState>,
        found: &Mutex<Found>,
        told: &mut Told,
    ) -> Result<bool, OperatorError> {
        told.was_held |= seen.held.is_some();
        told.is_on_hold |= seen.blocked.is_some() && seen.hold.since().is_none();
        if let Some(job) = job {
            let (at_work, was_requested) = (job.unfinished(), job.run_requested.is_some());
            told.job = Some(ToldOfJob { last_tick: job.last_tick, at_work, was_requested });
        }
        let last = self.last_filled(seen, told).await?;
        self.note(restoring, seen.entity.as_str(), found, told).await?;
        let reason = self.reason.clone().unwrap_or_else(|| Reason::new("operator", ""));
        let (entity, nonce) = (seen.entity.clone(), restoring.nonce.clone());
        let act = OperatorAction { entity, nonce, verb: VERB.into(), sequence: None, reason, ended: None };
        let waits = !seen.is_empty() || last > seen.tail;
        if waits || told.is_on_hold {
            let purge_at = self.store.env().now() + TOLD_FOR;
            self.store.run(&LogAction { action: &act, purge_at }, PATIENCE).await?;
        }
        let empty = match waits {
            false => Some(seen.clone()),
            true => self.settle_all(restoring, seen, last, told).await?,
        };
        let Some(empty) = empty else { return Ok(false) };
        self.spill_all(&empty).await?;
        let (now, retention) = (self.store.env().now(), self.retention);
        let raise = AdvanceNumbers { restoring, seen: &empty, job, now, retention };
        let is_raised = matches!(self.store.run(&raise, PATIENCE).await?, NumbersAdvanced::Advanced(_));
        if is_raised && seen.held.is_some() {
            // An earlier run may have been killed at it.
            told.set_aside = told.set_aside.max(self.set_aside_so_far(restoring, &seen.entity).await?);
        }
        // Of one that was killed behind its last settle, too.
        if is_raised && (told.is_worth_telling() || seen.held.is_some()) {
            self.store.run(&LogOutcome { action: &act, outcome: &told.in_words() }, PATIENCE).await?;
        }
        Ok(is_raised)
    }

    /// Notes what no row tells any more once this one is raised.
    async fn note(
        &self,
        restoring: &RestoreRecord,
        key: &str,
        found: &Mutex<Found>,
        told: &Told,
    ) -> Result<(), OperatorError> {
        // Until it is written: another entity's must not be overtaken by it.
        let mut found = found.lock().await;
        let mut with = found.clone();
        if with.take_in(key, told) {
            let text = serde_json::to_string(&with).map_err(|error| StoreError::Invalid(error.to_string()))?;
            self.store.run(&RecordFindings { restoring, found: &text }, PATIENCE).await?;
            *found = with;
        }
        Ok(())
    }

    /// The last place of the inbox at which anything stands, which may be behind
    /// `tail`: the two tables are copies of about the same moment.
    async fn last_filled(&self, seen: &EntityState, told: &mut Told) -> Result<Sequence, OperatorError> {
        let (mut from, mut last) = (seen.head, seen.head);
        loop {
            let range = delivery_range(&seen.entity, from, Sequence(u64::MAX), PAGE);
            let page = self.store.query(&range, PATIENCE).await?;
            for row in &page.rows {
                let item = Item::parse(&seen.entity, row)?;
                last = item.sequence();
                if let Item::Delivery(unpacked) = item {
                    let (head, received_at) = (unpacked.head(), unpacked.head().received_at());
                    let provider = head.provider().map(str::to_owned);
                    told.newest.insert(head.source().clone(), Newest { provider, received_at });
                }
            }
            if !page.more || page.rows.is_empty() {
                return Ok(last);
            }
            from = last.next();
        }
    }

    /// Settles what waits, each by itself; the row afterwards. `None`: somebody came
    /// in between.
    async fn settle_all(
        &self,
        restoring: &RestoreRecord,
        seen: &EntityState,
        last: Sequence,
        told: &mut Told,
    ) -> Result<Option<EntityState>, OperatorError> {
        let env = self.store.env();
        let (holder, now) = (env.nonce(), env.now());
        let seize = ForceAcquire { restoring, seen, last, holder: &holder, now, length: LEASE };
        let ForceAcquired::Granted(mut lease, state) = self.store.run(&seize, PATIENCE).await? else { return Ok(None) };
        let memory = Memory { capacity: Recent::capacity(&seen.entity), retention: self.retention };
        let mut drain = Drain::granted(state, memory);
        while !drain.state().is_empty() {
            let settlement = match drain.in_front() {
                InFront::Settled(settlement) => settlement,
                InFront::Void => Settlement::Void,
                InFront::Nothing => {
                    self.look_ahead(&mut drain, told).await?;
                    continue;
                }
                // Remembered at this very place: that table was copied a moment later, or a person had it run again.
                InFront::Delivery(waiting) if drain.before(waiting.unpacked.head()).is_some() => Settlement::Applied,
                InFront::Delivery(waiting) => {
                    self.set_aside(restoring, drain.state(), waiting).await?;
                    Settlement::Parked
                }
            };
            let Some(next) = self.settle_one(&lease, &mut drain, settlement).await? else { return Ok(None) };
            lease = next;
            match settlement {
                Settlement::Parked => told.set_aside += 1,
                Settlement::Repeat => told.repeats += 1,
                Settlement::Applied => told.applied_before += 1,
                _ => {}
            }
        }
        Ok(Some(drain.state().clone()))
    }

    /// Reads on; gives the next place up where nothing stands there.
    async fn look_ahead(&self, drain: &mut Drain, told: &mut Told) -> Result<(), OperatorError> {
        let (entity, next, tail) = (drain.state().entity.clone(), drain.state().next(), drain.state().tail);
        // Receipts, too: the table that has them may have been copied a moment later.
        let page = Page::read(&self.store, &entity, next, tail, true).await?;
        drain.read(page);
        if matches!(drain.in_front(), InFront::Nothing) {
            let purge_at = self.store.env().now() + self.retention;
            let void = Void { entity: &entity, sequence: next, purge_at };
            if matches!(self.store.run(&void, PATIENCE).await?, Voided::Void) {
                told.lost += 1;
                drain.voided();
            }
        }
        Ok(())
    }

    async fn set_aside(
        &self,
        restoring: &RestoreRecord,
        state: &EntityState,
        waiting: &Waiting,
    ) -> Result<(), OperatorError> {
        let failed = state.last_error.as_ref().map(|error| format!("; it had failed: {error}")).unwrap_or_default();
        let error = format!("{}, and may have been applied since{failed}", waited_at(restoring));
        let aside = Aside { error: &error, run_before: None, kept_for: self.parked_retention };
        Ok(aside.set(&self.store, waiting).await?)
    }

    /// Settles the place in front. `None`: somebody has taken the lease.
    async fn settle_one(
        &self,
        lease: &Lease,
        drain: &mut Drain,
        settlement: Settlement,
    ) -> Result<Option<Lease>, OperatorError> {
        let now = self.store.env().now();
        let attempts = if settlement == Settlement::Parked { drain.tried(Group::ONE) } else { 0 };
        let ending = Ending {
            settlement,
            group: Group::ONE,
            token: lease.token(),
            attempts,
            took: None,
            at: now,
            carried: Retries::default(),
        };
        let decision = drain.decision(ending, now, None);
        for receipt in drain.to_spill(&decision) {
            self.spill(&drain.state().entity, &receipt).await?;
        }
        let settle = Settle { lease, decision: &decision, now, length: LEASE, hands_over: false };
        Ok(match self.store.run(&settle, PATIENCE).await? {
            Settled::Settled(lease, state) => {
                drain.settled(state, &decision);
                Some(lease)
            }
            Settled::Lost => None,
        })
    }

    /// Gives all that the row remembers rows of their own: it forgets them when it
    /// is raised.
    async fn spill_all(&self, state: &EntityState) -> Result<(), OperatorError> {
        try_join_all(state.recent.iter().map(|receipt| self.spill(&state.entity, receipt))).await.map(drop)
    }
}
