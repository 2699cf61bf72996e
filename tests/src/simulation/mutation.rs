//! Mutations: the protocol with one rule left out, between the real code and its store or queue.

mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::Duration,
};

use webhook_serializer::{
    engine::queue,
    protocol::{
        attempt::Retries,
        entity::EntityKey,
        format::{FORMAT, attribute as a},
        keys::delivery_row,
        state::BlockReason,
        table::{
            Action, Change, Comparison, Condition, Key, Operand, Page, Range, Row, TableName, Value, Write, Written,
        },
    },
};

use tokio::sync::Notify;

use crate::rules::{ViolatedRule, change_write, ends_lease};

use super::{
    destination::{claims_probe, ends_outage, is_outage},
    node::{Node, is_worker},
    world::{entity_number, key},
};
use writes::*;
pub use writes::{entity_of, is_claim, is_put, waits, without_period, written_start};

pub fn is_of_a_restore(rule: ViolatedRule) -> bool {
    matches!(
        rule,
        ViolatedRule::RestoreKeepsTokens
            | ViolatedRule::RestoreKeepsSequences
            | ViolatedRule::RestoreKeepsLeases
            | ViolatedRule::RestoreForgets
            | ViolatedRule::RestoreParksNothing
            | ViolatedRule::RestoreStopsAtTheTail
            | ViolatedRule::RestoreRunsTicksAgain
            | ViolatedRule::RestoreResumesBlocked
    )
}

#[derive(Debug, Default)]
struct Notes {
    suppressed: BTreeSet<EntityKey>,
    keep: BTreeSet<EntityKey>,
    charged: BTreeSet<EntityKey>,
    holders: BTreeMap<EntityKey, String>,
    /// The current append has met a tombstone.
    voided: bool,
    /// The append's last claim owes a wake-up.
    owes: bool,
    /// The append has claimed a sequence and not yet put its delivery.
    putting: bool,
}

#[derive(Debug)]
pub struct Mutator {
    mutation: Option<ViolatedRule>,
    notes: Mutex<Notes>,
    put: Notify,
}

impl Mutator {
    pub fn new(mutation: Option<ViolatedRule>) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { mutation, notes: Mutex::default(), put: Notify::new() })
    }

    fn is(&self, mutation: ViolatedRule) -> bool {
        self.mutation == Some(mutation)
    }

    fn notes<T>(&self, act: impl FnOnce(&mut Notes) -> T) -> T {
        act(&mut self.notes.lock().expect("no panic under the lock"))
    }

    pub fn outgoing(&self, write: &mut Write, row: impl FnOnce() -> Option<Row>) {
        let Some(mutation) = self.mutation else { return };
        let ends_lease = ends_lease(write);
        let entity = entity_of(&write.key);
        change_write(mutation, write);
        match mutation {
            ViolatedRule::StartWithoutTick if write.key.table == TableName::Entities => {
                drop_parts(&mut write.condition, &|part| {
                    let asks = |part: &Condition| matches!(part, Condition::Absent(name) if name == a::LAST_TICK);
                    matches!(part, Condition::Any(parts) if parts.iter().any(asks))
                });
            }
            ViolatedRule::CountAttemptWithoutStart if takes_over(write) && !changes(write, is_charge) => {
                let Some(row) = row() else { return };
                let pending = row.number(a::HEAD) < row.number(a::TAIL);
                if let Action::Update(changes) = &mut write.action
                    && row.text(a::KIND) == Some("drain")
                    && pending
                {
                    changes.push(Change::add(a::ATTEMPTS, 1));
                }
            }
            _ if is_of_a_restore(mutation) => outgoing_restore(mutation, write, row),
            ViolatedRule::BreakerWaitCountsAttempt | ViolatedRule::PostponedStartCountsAttempt if ends_lease => {
                let is_charged = entity.is_some_and(|entity| self.notes(|notes| notes.charged.remove(&entity)));
                if is_charged {
                    charge(write);
                }
            }
            ViolatedRule::RefusalBlocks if ends_lease => {
                let is_refused = entity.is_some_and(|entity| self.notes(|notes| notes.charged.remove(&entity)));
                if is_refused && let Action::Update(changes) = &mut write.action {
                    let is_wait = |name: &str| name == a::RETRY_AT || name == a::HANDOVER;
                    changes.retain(|change| !matches!(change, Change::Set(name, _) if is_wait(name)));
                    changes.push(Change::set(a::BLOCKED, BlockReason::Attempts.as_str()));
                }
            }
            ViolatedRule::EachAnswerResetsWait if ends_lease => forget_waits(write, row().as_ref()),
            ViolatedRule::HolderFromRequest => {
                let (Some(entity), Action::Update(changes)) = (entity, &mut write.action) else { return };
                for change in changes {
                    if let Change::Set(name, value) = change
                        && name == a::HOLDER
                        && let Value::S(holder) = value
                    {
                        self.notes(|notes| notes.holders.insert(entity.clone(), holder.clone()));
                        *value = Value::S(format!("request for {entity}"));
                    }
                }
            }
            _ => {}
        }
    }

    pub fn discards(&self, message: &queue::Message, node: u32) -> bool {
        self.is(ViolatedRule::DeferredOnce) && is_worker(node) && matches!(message, queue::Message::Deferred(_))
    }

    pub fn hidden_retry(&self, write: &Write) -> Option<Duration> {
        (self.is(ViolatedRule::RetryClaimWithoutDoubt) && is_claim(write)).then_some(Duration::from_millis(500))
    }

    pub fn invented_reply(&self, write: &Write) -> Option<Written> {
        let forgets = self.is(ViolatedRule::DropWithoutReceipt) || self.is(ViolatedRule::RestoreForgets);
        let goes_on = self.is(ViolatedRule::OutageOutlivesSuccess) && ends_outage(write);
        let is_left_out = goes_on
            || forgets && is_receipt(&write.key)
            || self.is(ViolatedRule::RestoreParksNothing) && is_parked_item(&write.key);
        is_left_out.then_some(Written::Landed(None))
    }

    pub fn batch(&self, rows: &mut Vec<Row>) {
        if self.is(ViolatedRule::ReceiptsUnread) {
            rows.retain(|row| row.text(a::ITEM).is_none_or(|item| !item.starts_with("r#")));
        }
        if self.is(ViolatedRule::RepeatsItself) {
            let receipts = rows.iter_mut().filter(|row| row.text(a::ITEM).is_some_and(|item| item.starts_with("r#")));
            receipts.for_each(|row| row.set(a::SEQUENCE, 0_u32));
        }
    }

    pub fn reply(&self, write: &Write, reply: &mut Written, node: &Node) {
        let Some(mutation) = self.mutation else { return };
        if write.key.table == TableName::Inbox {
            self.outage_reply(write, reply);
            if mutation == ViolatedRule::ForgetOwedAfterVoid && is_put(write) {
                let void = matches!(reply, Written::Refused(Some(row)) if row.get(a::VOID).is_some());
                self.notes(|notes| {
                    notes.voided |= void;
                    notes.putting = false;
                });
                self.put.notify_waiters();
            }
            return;
        }
        let Some(entity) = entity_of(&write.key) else { return };
        let (landed, row) = match reply {
            Written::Landed(Some(row)) => (true, row),
            Written::Refused(Some(row)) => (false, row),
            _ => return,
        };
        let number = |row: &Row, name| row.number(name).unwrap_or(0);
        let now = node.env.now().as_millis();
        let asks = sets(write, a::HOLDER);
        let runs = number(row, a::EXPIRES_AT) > now && number(row, a::EXPIRES_AT) <= now + 900_000;
        let held = row.text(a::HOLDER).is_some();
        match mutation {
            ViolatedRule::DeleteAtExpiredEmptyLease
                if asks
                    && !landed
                    && held
                    && !runs
                    && row.text(a::KIND) == Some("drain")
                    && number(row, a::HEAD) == number(row, a::TAIL) =>
            {
                for name in [a::HOLDER, a::KIND, a::EXPIRES_AT] {
                    row.remove(name);
                }
            }
            ViolatedRule::DropWhileDrained if asks && !landed && held && runs && row.text(a::KIND) == Some("drain") => {
                self.notes(|notes| notes.suppressed.insert(entity));
            }
            ViolatedRule::ForgetOwedAfterVoid if is_claim(write) => {
                let drained = held && runs && row.text(a::KIND) == Some("drain");
                let waits = number(row, a::RETRY_AT) > now || row.get(a::BLOCKED).is_some();
                self.notes(|notes| {
                    notes.owes = !(drained || waits);
                    notes.putting = true;
                });
            }
            ViolatedRule::ReleaseRecognisedWithoutToken if !landed && !held => {
                let released = changes(write, |change| matches!(change, Change::Remove(name) if name == a::HOLDER));
                let mut mine = None;
                find_parts(&write.condition, &mut |part| {
                    if let Condition::Compare(name, Comparison::Equal, Operand::Value(Value::N(token))) = part
                        && name == a::TOKEN
                    {
                        mine = u64::try_from(*token).ok();
                    }
                });
                if let Some(mine) = mine.filter(|_| released) {
                    let settles = sets(write, a::HEAD);
                    row.set(a::TOKEN, if settles { mine + 1 } else { mine });
                    if let Some(head) = set_to(write, a::HEAD) {
                        row.set(a::HEAD, head);
                    }
                }
            }
            ViolatedRule::HolderFromRequest => {
                let mine = self.notes(|notes| notes.holders.get(&entity).cloned());
                if let Some(mine) = mine.filter(|_| held) {
                    row.set(a::HOLDER, mine);
                }
            }
            _ => {}
        }
    }

    /// Changes the reply to a write about a destination's outage.
    fn outage_reply(&self, write: &Write, reply: &mut Written) {
        let is_unread = self.is(ViolatedRule::OutageUnread) && is_outage(&write.key);
        let is_taken = self.is(ViolatedRule::ProbeUnclaimed) && claims_probe(write);
        let (Written::Landed(row) | Written::Refused(row)) = &mut *reply;
        if let Some(row) = row.as_mut().filter(|_| is_unread) {
            row.remove(a::DOWN_SINCE);
        }
        if is_taken && matches!(reply, Written::Refused(Some(_))) {
            *reply = Written::Landed(match std::mem::replace(reply, Written::Landed(None)) {
                Written::Landed(row) | Written::Refused(row) => row,
            });
        }
    }

    pub fn read(&self, key: &Key, row: &mut Option<Row>) {
        if self.is(ViolatedRule::OutageUnread) && is_outage(key) {
            *row = None;
        }
        let delivery =
            key.sort.as_ref().is_some_and(|(_, item)| matches!(item, Value::S(item) if item.starts_with("d#")));
        if self.is(ViolatedRule::StepOverGaps) && row.is_none() && delivery {
            *row = Some(key.to_row().with(a::VERSION, FORMAT).with(a::VOID, 1_u32));
        }
    }

    pub fn page(&self, range: &Range, page: &mut Page) {
        if self.is(ViolatedRule::ReceiptsUnread) {
            page.rows.retain(|row| row.text(a::ITEM).is_none_or(|item| !item.starts_with("s#")));
        }
        for row in &mut page.rows {
            if self.is(ViolatedRule::DeferredSupersedes) {
                row.remove(a::APPENDED_AT);
            }
            if self.is(ViolatedRule::RepeatsWithinAPeriod)
                && let Some(id) = row.text(a::DELIVERY_ID).map(without_period)
            {
                row.set(a::DELIVERY_ID, id);
            }
        }
        if !self.is(ViolatedRule::StepOverGaps) || !range.from.starts_with("d#") {
            return;
        }
        let number = |item: &str| item.strip_prefix("d#").and_then(|text| text.parse::<u64>().ok());
        let (Some(from), Some(to), Value::S(entity)) = (number(&range.from), number(&range.to), &range.partition.1)
        else {
            return;
        };
        let Ok(entity) = EntityKey::parse(entity) else { return };
        let there: BTreeSet<u64> = page.rows.iter().filter_map(|row| number(row.text(a::ITEM)?)).collect();
        for sequence in (from..=to).take(range.limit as usize).filter(|sequence| !there.contains(sequence)) {
            let key = delivery_row(&entity, webhook_serializer::protocol::entity::Sequence(sequence));
            page.rows.push(key.to_row().with(a::VERSION, FORMAT).with(a::VOID, 1_u32));
        }
        page.rows.sort_by(|left, right| left.text(a::ITEM).cmp(&right.text(a::ITEM)));
    }

    pub fn handler_failed(&self, entity: &EntityKey) {
        if self.is(ViolatedRule::FailKeepsItsMessage) {
            self.notes(|notes| {
                notes.suppressed.insert(entity.clone());
                notes.keep.insert(entity.clone());
            });
        }
    }

    pub fn breaker_open(&self, entity: &EntityKey) {
        if self.is(ViolatedRule::BreakerWaitCountsAttempt) || self.is(ViolatedRule::RefusalBlocks) {
            self.notes(|notes| notes.charged.insert(key(entity_number(entity))));
        }
    }

    pub fn handler_not_now(&self, entity: &EntityKey) {
        if self.is(ViolatedRule::PostponedStartCountsAttempt) {
            self.notes(|notes| notes.charged.insert(entity.clone()));
        }
    }

    pub fn ignores_missing_copies(&self) -> bool {
        self.is(ViolatedRule::MissingCopyIsIgnored)
    }

    pub fn forgets_breakers(&self) -> bool {
        self.is(ViolatedRule::BreakerForgets)
    }

    /// Waits until the append has put its delivery. Only then may its wake-up be sent, because the mutation
    /// forgets a wake-up only after its put.
    pub async fn until_put(&self) {
        loop {
            let put = self.put.notified();
            if !self.notes(|notes| notes.putting) {
                return;
            }
            put.await;
        }
    }

    pub fn suppresses_wake_up(&self, entity: &EntityKey) -> bool {
        self.notes(|notes| {
            let forgotten = notes.voided && !notes.owes && self.is(ViolatedRule::ForgetOwedAfterVoid);
            notes.suppressed.remove(entity) || forgotten
        })
    }

    pub fn keeps(&self, entity: &EntityKey) -> bool {
        self.notes(|notes| notes.keep.remove(entity))
    }

    pub fn ignores_dates(&self) -> bool {
        self.is(ViolatedRule::OwnClockDecides)
    }

    pub fn erases_all(&self) -> bool {
        self.is(ViolatedRule::EraseRemovesNewer)
    }

    pub fn times(&self, times: u32) -> u32 {
        if self.is(ViolatedRule::RedeliveryAcquiresAtOnce) { 1 } else { times }
    }
}

/// Changes a write of a restore, as `mutation` says.
fn outgoing_restore(mutation: ViolatedRule, write: &mut Write, row: impl FnOnce() -> Option<Row>) {
    let number = |name| row().and_then(|row| row.number(name)).unwrap_or(0);
    match mutation {
        ViolatedRule::RestoreKeepsTokens if raises(write) || seizes(write) => {
            let token = number(a::TOKEN);
            set(write, a::TOKEN, token + 1);
        }
        ViolatedRule::RestoreKeepsSequences if raises(write) => {
            let head = number(a::HEAD);
            set(write, a::HEAD, head);
            set(write, a::TAIL, head);
        }
        ViolatedRule::RestoreKeepsLeases if raises(write) => leave(write, &[a::HOLDER, a::KIND, a::EXPIRES_AT]),
        ViolatedRule::RestoreStopsAtTheTail if seizes(write) => {
            let tail = number(a::TAIL);
            set(write, a::TAIL, tail);
        }
        ViolatedRule::RestoreRunsTicksAgain if raises(write) => {
            leave(write, &[a::LAST_TICK, a::LAST_RESULT, a::TICK, a::STARTS, a::RUN_REQUESTED]);
        }
        ViolatedRule::RestoreResumesBlocked if raises(write) => leave(write, &[a::HOLD]),
        _ => {}
    }
}

/// Makes the write count one attempt more.
fn charge(write: &mut Write) {
    match (set_to(write, a::ATTEMPTS), &mut write.action) {
        (Some(Value::N(attempts)), _) => set(write, a::ATTEMPTS, attempts as u64 + 1),
        (_, Action::Update(changes)) => changes.push(Change::add(a::ATTEMPTS, 1)),
        _ => {}
    }
}

/// Makes the write forget all waits except the newest one.
fn forget_waits(write: &mut Write, row: Option<&Row>) {
    let before = row.map(waits).unwrap_or_default();
    let Action::Update(changes) = &mut write.action else { return };
    for change in changes {
        if let Change::Set(name, Value::B(bytes)) = change
            && name == a::RETRIES
            && let Some(retries) = Retries::from_stored(bytes)
        {
            let newest = retries.waited(retries.class).saturating_sub(before.waited(retries.class));
            let forgetful = Retries::default().after(retries.class, newest).to_stored();
            *bytes = forgetful.unwrap_or_else(|| bytes.clone());
        }
    }
}
