//! Random sequences of the project's operations, under current and outdated leases and rows, beside
//! arbitrary writes of handlers.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use proptest::{
    collection::vec,
    test_runner::{Config, TestCaseError, TestRunner},
};
use tests::testbed;
use webhook_serializer::{
    protocol::{
        attempt::{FailureClass, Retries},
        delivery::{Envelope, PutPart},
        entity::{EntityKey, FencingToken, Identity, Sequence},
        inbox::{
            Block, Claim, Commit, Decision, Fail, MarkStart, Park, Put, RetryNow, Rewind, Settle, SettleAndRelease,
            Settled, SettledAndReleased, Settling, Skip, Spill, Unblock, Void,
        },
        keys::{entity_row, inbox_range, key_of, part_row, restore_row, sweep_position_row},
        lease::{
            Acquire, Acquired, ForceRelease, HandOver, LONGEST_YIELD, Lease, MarkHandOver, Release, ReleaseEmpty,
            Renew, Renewed, RequestYield, TakeOver,
        },
        maintain::{
            self, AdvancePosition, BegunRestore, ExpireAgain, ExtendRetention, ForceAcquired, Forget, KeepForever,
            ListJob, NumbersAdvanced, Position, PositionAdvanced, Reason, Remove, RemovePart, RestoreRecord, SweepTurn,
            Verb,
        },
        operation::Operation,
        receipt::{Receipt, Settlement},
        state::{BlockReason, EntityState, EventTimes, HolderInfo},
        table::{Range, Row, Table, TableName, Transacted, Write, Written},
    },
    time::{Nonce, Timestamp},
};

use crate::{
    endpoint::{Dynamo, START, is_skipped, on_dynamodb, times},
    generate::{Act, Kind, Loose, Names, Place as RowPlace, Step, step},
    pair::Pair,
};

enum Last {
    Nothing,
    Write(Write),
    Transaction(Vec<Write>, String),
}

/// The numbers of landed and refused writes of each operation.
type Landed = BTreeMap<Option<Kind>, (u32, u32)>;

/// One case, with what it has seen so far.
struct Case<'a> {
    number: u64,
    pair: Pair<'a>,
    names: Names,
    now: Timestamp,
    drawn: u128,
    leases: Vec<Lease>,
    states: Vec<EntityState>,
    granted: BTreeMap<EntityKey, FencingToken>,
    claimed: Vec<(EntityKey, Sequence, Nonce)>,
    /// Inbox rows, current or outdated.
    rows: Vec<Row>,
    positions: Vec<Position>,
    restores: Vec<RestoreRecord>,
    /// The last entry of the operations log.
    act: Option<Nonce>,
    transactions: u32,
    last_transaction: Option<String>,
    last: Last,
    has_tokens: bool,
    doing: Option<Kind>,
    landed: Landed,
}

fn pick<T: Clone>(met: &[T], back: usize) -> Option<T> {
    met.iter().rev().take(4).cycle().nth(back).cloned()
}

impl<'a> Case<'a> {
    fn new(dynamo: &'a Dynamo) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let number = CASES.fetch_add(1, Relaxed);
        let case = format!("case{number}");
        Self {
            number,
            pair: Pair::new(dynamo),
            names: Names { effects: dynamo.effects.clone(), case },
            now: START,
            drawn: 0,
            leases: Vec::new(),
            states: Vec::new(),
            granted: BTreeMap::new(),
            claimed: Vec::new(),
            rows: Vec::new(),
            positions: Vec::new(),
            restores: Vec::new(),
            act: None,
            transactions: 0,
            last_transaction: None,
            last: Last::Nothing,
            has_tokens: !is_skipped("client-tokens"),
            doing: None,
            landed: Landed::new(),
        }
    }

    fn entity(&self, number: u8) -> EntityKey {
        EntityKey::parse(&format!("{}/o{number}", self.names.case)).expect("a key")
    }

    fn nonce(&mut self) -> Nonce {
        self.drawn += 1;
        Nonce::from_parts(self.now, self.drawn)
    }

    fn writes(&self, loose: &[Loose]) -> Vec<Write> {
        loose.iter().map(|loose| self.names.write(loose)).collect()
    }

    async fn run<O: Operation>(&mut self, operation: &O) -> Result<Option<O::Outcome>, String> {
        let write = operation.write();
        let reply = self.pair.write(&write).await;
        self.last = Last::Write(write);
        let Ok(reply) = reply? else { return Ok(None) };
        self.count(matches!(reply, Written::Landed(_)));
        Ok(operation.judge(reply).ok())
    }

    fn count(&mut self, landed: bool) {
        let (yes, no) = self.landed.entry(self.doing).or_default();
        *if landed { yes } else { no } += 1;
    }

    async fn transact(&mut self, writes: Vec<Write>, token: Option<String>) -> Result<(), String> {
        let token = token.unwrap_or_else(|| {
            self.transactions += 1;
            // At most 36 characters, and unique.
            format!("{}{}", self.names.case, self.transactions).chars().rev().take(10).collect::<String>()
                + &self.pair.dynamo.nonce
        });
        let outcome = self.pair.transact(&writes, &token).await;
        self.last_transaction = Some(token.clone());
        self.last = Last::Transaction(writes, token);
        if let Ok(outcome) = outcome? {
            self.count(outcome == Transacted::Landed);
        }
        Ok(())
    }

    /// Remembers the rows of an entity, to make the next operations from them.
    async fn look(&mut self, entity: &EntityKey) {
        let row = self.pair.memory.get(&entity_row(entity)).await.expect("memory answers");
        self.states.extend(row.and_then(|row| EntityState::parse(&row).ok()));
        self.rows.extend(self.pair.memory.query(&inbox_range(entity, None, 20)).await.expect("memory answers").rows);
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Act(act) => self.doing = Some(act.kind),
            Step::Again => {}
            _ => self.doing = None,
        }
        match step {
            Step::Act(act) => self.act(act).await,
            Step::Write(loose) => {
                let write = self.names.write(loose);
                self.last = Last::Write(write.clone());
                self.pair.write(&write).await.map(|_| ())
            }
            Step::Transact(loose) => self.transact(self.writes(loose), None).await,
            Step::Again => match std::mem::replace(&mut self.last, Last::Nothing) {
                Last::Nothing => Ok(()),
                Last::Write(write) => {
                    if let Ok(reply) = self.pair.write(&write).await? {
                        self.count(matches!(reply, Written::Landed(_)));
                    }
                    Ok(())
                }
                Last::Transaction(writes, token) if self.has_tokens => self.transact(writes, Some(token)).await,
                Last::Transaction(..) => Ok(()),
            },
            Step::SameToken(loose) => match self.last_transaction.clone() {
                Some(token) if self.has_tokens => self.transact(self.writes(loose), Some(token)).await,
                _ => Ok(()),
            },
            Step::Get(place) => self.pair.get(&self.names.key(*place)).await.map(|_| ()),
            Step::GetMany(places) => {
                let all: Vec<_> = places.iter().map(|place| self.names.key(*place)).collect();
                self.pair.get_many(&all).await
            }
            Step::Query { partition, from, to, limit } => {
                let key = self.names.key(RowPlace::Inbox(*partition, 0));
                let (from, to) = (format!("i{from}"), format!("i{to}"));
                let (table, partition) = (key.table, key.partition);
                self.pair.query(&Range { table, partition, sort: "item".into(), from, to, limit: *limit }).await
            }
        }
    }

    async fn act(&mut self, act: &Act) -> Result<(), String> {
        self.now = self.now + Duration::from_millis(act.millis);
        // The clock of another machine, 15 s behind or ahead.
        let now = match act.twist % 6 {
            0 => Timestamp::from_millis(self.now.as_millis() - 15_000),
            1 => self.now + Duration::from_secs(15),
            _ => self.now,
        };
        let entity = self.entity(act.entity);
        let length = Duration::from_millis(if act.twist == 7 { 2_000_000 } else { 500 * u64::from(act.twist) });
        let request = Acquire {
            entity: entity.clone(),
            kind: act.lease,
            holder: self.nonce(),
            info: HolderInfo::new("conformance, é"),
            now,
            length,
        };
        let lease = pick(&self.leases, act.pick);
        let state = pick(&self.states, act.pick);
        let claimed = pick(&self.claimed, act.pick);
        let purge_at = (!act.twist.is_multiple_of(3)).then(|| now + Duration::from_secs(60));
        let row = pick(&self.rows, act.pick + usize::from(act.twist));
        // Few parts, so that operations meet.
        let part = part_row(&entity, &Nonce::from_parts(START, u128::from(act.twist % 2)), 0);
        match act.kind {
            Kind::Forget => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&Forget::of(&seen, now)).await?;
            }
            Kind::Remove => {
                let Some(remove) = row.and_then(|row| Remove::of(&row).ok()) else { return Ok(()) };
                self.run(&remove).await?;
            }
            Kind::PutPart => {
                let row = Row::new().with("v", 1_u32).with("body", "a part").with("purge_at", now.as_millis() / 1000);
                self.run(&PutPart { key: part, row }).await?;
            }
            Kind::RemovePart => self.run(&RemovePart { part: &part }).await.map(|_| ())?,
            Kind::KeepForever => self.run(&KeepForever { part }).await.map(|_| ())?,
            Kind::ExpireAgain => self.run(&ExpireAgain { part, until: now }).await.map(|_| ())?,
            Kind::ExtendRetention => {
                let row = row.and_then(|row| key_of(&TableName::Inbox, &row)).unwrap_or(part);
                self.run(&ExtendRetention { row, until: now + Duration::from_secs(30) }).await?;
            }
            Kind::AdvancePosition => self.advance_position(act, now).await?,
            Kind::ListJob => {
                let job = format!("{}-{}", self.names.case, act.twist % 2);
                self.run(&ListJob { job: &job }).await?;
            }
            Kind::BeginRestore | Kind::EndRestore => self.restore(act, now).await?,
            Kind::ForceAcquire => {
                let Some(seen) = state else { return Ok(()) };
                let (restoring, holder) = (self.restoring(now), self.nonce());
                let last = Sequence(seen.tail.0 + u64::from(act.twist % 3));
                let seize =
                    maintain::ForceAcquire { restoring: &restoring, seen: &seen, last, holder: &holder, now, length };
                if let Some(ForceAcquired::Granted(lease, state)) = self.run(&seize).await? {
                    self.acquired(Some(Acquired::Granted(lease, state)))?;
                }
            }
            Kind::AdvanceNumbers => {
                let Some(seen) = state else { return Ok(()) };
                let (restoring, retention) = (self.restoring(now), Duration::from_secs(60));
                let raise = maintain::AdvanceNumbers { restoring: &restoring, seen: &seen, job: None, now, retention };
                if let Some(NumbersAdvanced::Advanced(state)) = self.run(&raise).await? {
                    // Every earlier grant has a smaller token.
                    self.granted.insert(state.entity.clone(), state.token);
                    self.states.push(state);
                }
            }
            Kind::Claim => {
                let nonce = self.nonce();
                let claimed = self.run(&Claim { entity: &entity, nonce: &nonce, now }).await?;
                self.claimed.extend(claimed.map(|claimed| (entity.clone(), claimed.sequence, nonce)));
            }
            Kind::Put => {
                let Some((entity, sequence, nonce)) = claimed else { return Ok(()) };
                let envelope = envelope(&entity, act.twist, &nonce, now);
                self.run(&Put { envelope: &envelope, sequence }).await?;
            }
            Kind::Void => {
                let sequence = claimed.map_or(Sequence(7), |claimed| claimed.1);
                self.run(&Void { entity: &entity, sequence, purge_at: now }).await?;
            }
            Kind::Acquire => {
                let acquired = self.run(&request).await?;
                self.acquired(acquired)?;
            }
            Kind::TakeOver => {
                let Some(seen) = state else { return Ok(()) };
                let request = Acquire { entity: seen.entity.clone(), ..request };
                let acquired = self.run(&TakeOver { request, seen }).await?;
                self.acquired(acquired)?;
            }
            Kind::Renew => {
                let Some(lease) = lease else { return Ok(()) };
                if let Some(Renewed::Renewed(state)) = self.run(&Renew { lease: &lease, now, length }).await? {
                    self.states.push(state);
                }
            }
            Kind::Settle => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let hands_over = act.twist.is_multiple_of(3);
                let settle = Settle { lease: &lease, decision: &decision, now, length, hands_over };
                if let Some(Settled::Settled(lease, state)) = self.run(&settle).await? {
                    self.leases.push(lease);
                    self.states.push(state);
                }
            }
            Kind::SettleAndRelease => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let settle = SettleAndRelease { lease: &lease, decision: &decision, purge_at };
                if let Some(SettledAndReleased::Grown(state)) = self.run(&settle).await? {
                    self.states.push(state);
                }
            }
            Kind::ReleaseEmpty => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&ReleaseEmpty { lease: &lease, purge_at }).await?;
            }
            Kind::Release => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&Release { lease: &lease }).await?;
            }
            Kind::HandOver => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&HandOver { lease: &lease, suspected: act.twist.is_multiple_of(2), due: now }).await?;
            }
            Kind::MarkHandOver => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&MarkHandOver { lease: &lease }).await?;
            }
            Kind::MarkStart => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                self.run(&MarkStart { lease: &lease, sequence: decision.first }).await?;
            }
            Kind::RequestYield => {
                let until = now + LONGEST_YIELD * u32::from(act.twist) / 6;
                self.run(&RequestYield { entity: &entity, now, until }).await?;
            }
            Kind::ForceRelease => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&ForceRelease { seen: &seen, record: HolderInfo::new("by force") }).await?;
            }
            Kind::Spill => {
                let receipt = receipt(act.twist, claimed.map_or(Sequence(7), |claimed| claimed.1), now);
                let Some(spill) = Spill::of(&entity, &receipt, now) else { return Ok(()) };
                self.run(&spill).await?;
            }
            Kind::Park => {
                let row = act.beside.first().map(|loose| match &loose.action {
                    webhook_serializer::protocol::table::Action::Put(row) => row.clone(),
                    _ => Row::new().with("error", "rejected"),
                });
                let sequence = claimed.map_or(Sequence(7), |claimed| claimed.1);
                self.run(&Park { entity: &entity, sequence, row: &row.unwrap_or_default() }).await?;
            }
            Kind::Fail => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let (sequence, attempts) = (decision.first, u32::from(act.twist));
                let one_by_one = act.twist.is_multiple_of(3).then(|| decision.last());
                let error = "ü".repeat(60);
                let fail = Fail {
                    lease: &lease,
                    sequence,
                    attempts,
                    retries: retries(act.twist),
                    suspected: act.twist.is_multiple_of(2),
                    one_by_one,
                    retry_at: purge_at,
                    error: &error,
                };
                self.run(&fail).await?;
            }
            Kind::Block => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let reason = BlockReason::Expired;
                self.run(&Block { lease: &lease, sequence: decision.first, reason }).await?;
            }
            Kind::Unblock => {
                let seen = state.map_or(FencingToken(1), |state| state.token);
                self.run(&Unblock { entity: &entity, seen }).await?;
            }
            Kind::Hold => {
                let seen = state.map(|state| state.hold).unwrap_or_default();
                self.run(&maintain::BeginHold { entity: &entity, seen, now }).await?;
            }
            Kind::Resume => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&maintain::EndHold { seen: &seen, purge_at }).await?;
            }
            Kind::RetryNow => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&RetryNow { seen: &seen }).await?;
            }
            Kind::Skip => {
                let (Some(lease), Some(seen)) = (lease, state.clone()) else { return Ok(()) };
                let Some(decision) = self.decision(act, state, now) else { return Ok(()) };
                self.run(&Skip { lease: &lease, decision: &decision, seen: &seen, now, purge_at }).await?;
            }
            Kind::Rewind => {
                let (Some(lease), Some(seen)) = (lease, state.clone()) else { return Ok(()) };
                let from = Sequence((seen.head.0 + 1).saturating_sub(u64::from(act.twist % 4)).max(1));
                self.run(&Rewind { lease: &lease, seen: &seen, from, since: now }).await?;
            }
            Kind::LogAction | Kind::LogOutcome => {
                let reason = Reason::new("ada", &"ü".repeat(300));
                let nonce = match (act.kind, &self.act) {
                    (Kind::LogOutcome, Some(nonce)) if !act.twist.is_multiple_of(3) => nonce.clone(),
                    _ => self.nonce(),
                };
                let sequence = state.map(|state| state.next()).filter(|_| act.twist.is_multiple_of(2));
                let done = maintain::OperatorAction {
                    entity,
                    nonce,
                    verb: Verb::Skip.as_str().into(),
                    sequence,
                    reason,
                    ended: None,
                };
                if act.kind == Kind::LogAction {
                    self.run(&maintain::LogAction { action: &done, purge_at: now }).await?;
                    self.act = Some(done.nonce);
                } else {
                    self.run(&maintain::LogOutcome { action: &done, outcome: "settled as parked" }).await?;
                }
                return Ok(());
            }
            Kind::Commit => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let hands_over = act.twist.is_multiple_of(3);
                let settling = if act.twist.is_multiple_of(2) {
                    Settling::Releases(SettleAndRelease { lease: &lease, decision: &decision, purge_at })
                } else {
                    Settling::GoesOn(Settle { lease: &lease, decision: &decision, now, length, hands_over })
                };
                let beside = self.writes(&act.beside);
                let writes = Commit { settling, writes: &beside, is_on_hold: act.twist.is_multiple_of(5) }.all();
                self.transact(writes, None).await?;
            }
        }
        self.look(&entity).await;
        Ok(())
    }

    /// Advances the sweep's position from one that was seen, or from none.
    async fn advance_position(&mut self, act: &Act, now: Timestamp) -> Result<(), String> {
        if self.positions.is_empty() {
            // All cases share this row.
            self.pair.write(&Write::delete(sweep_position_row())).await?.map_err(|error| error.to_string())?;
        }
        let seen = pick(&self.positions, act.pick).filter(|_| !act.twist.is_multiple_of(5));
        let after = act.twist.is_multiple_of(2).then(|| format!("{}/o0", self.names.case));
        let turn = SweepTurn { number: u64::from(act.twist), after, due: now };
        let to = Position { turn, nonce: self.nonce() };
        if self.run(&AdvancePosition { seen: seen.as_ref(), to: &to }).await? == Some(PositionAdvanced::Advanced) {
            self.positions.push(to);
        }
        Ok(())
    }

    /// A restore to half a minute ago.
    fn restoring(&mut self, now: Timestamp) -> RestoreRecord {
        let as_of = Timestamp::from_millis(now.as_millis() - 30_000);
        RestoreRecord { nonce: self.nonce(), as_of, begun: now, ended: None, found: None }
    }

    /// Begins a restore after one that was seen, or after none; or ends one.
    async fn restore(&mut self, act: &Act, now: Timestamp) -> Result<(), String> {
        if self.restores.is_empty() {
            // All cases share this row.
            self.pair.write(&Write::delete(restore_row())).await?.map_err(|error| error.to_string())?;
        }
        let seen = pick(&self.restores, act.pick).filter(|_| !act.twist.is_multiple_of(5));
        if let (Kind::EndRestore, Some(restoring)) = (act.kind, &seen) {
            self.run(&maintain::RecordFindings { restoring, found: "{}" }).await?;
            return self.run(&maintain::EndRestore { restoring, now }).await.map(drop);
        }
        let restoring = self.restoring(now);
        let begin = maintain::BeginRestore { seen: seen.as_ref(), restoring: &restoring };
        if self.run(&begin).await? == Some(BegunRestore::Begun) {
            self.restores.push(restoring);
        }
        Ok(())
    }

    /// Checks that a grant's token is greater than any before it.
    fn acquired(&mut self, acquired: Option<Acquired>) -> Result<(), String> {
        match acquired {
            Some(Acquired::Granted(lease, state)) => {
                let before = self.granted.insert(lease.entity().clone(), lease.token());
                if before.is_some_and(|before| before >= lease.token()) {
                    return Err(format!("token {} was granted after {before:?}", lease.token()));
                }
                self.leases.push(lease);
                self.states.push(state);
            }
            Some(Acquired::Held(state)) => self.states.push(state),
            _ => {}
        }
        Ok(())
    }

    /// A decision about the front of a row that was seen, or about another sequence.
    fn decision(&self, act: &Act, state: Option<EntityState>, now: Timestamp) -> Option<Decision> {
        let state = state?;
        let mut times = EventTimes::default();
        if act.twist.is_multiple_of(2) {
            times = state.newest_event_time.applied("order", now);
        }
        let first = if act.twist == 11 { state.next().next() } else { state.next() };
        let places = if act.twist.is_multiple_of(4) { 2 } else { 1 };
        let mut recent = state.recent.clone();
        for at in first.0..first.0 + places {
            recent = recent.with(receipt(act.twist, Sequence(at), now), Duration::from_secs(60));
        }
        Some(Decision {
            first,
            dropped: recent.drop_beyond(usize::from(act.twist % 3) + places as usize),
            recent,
            newest_event_time: times,
            pending_since: (!act.twist.is_multiple_of(3)).then_some(now),
            not_before: act.twist.is_multiple_of(5).then_some(now),
            ends_one_by_one: act.twist.is_multiple_of(3),
            carried: retries(act.twist / 2).carried(),
        })
    }
}

fn retries(number: u8) -> Retries {
    let wait = Duration::from_secs(number.into());
    (0..number % 3).fold(Retries::default(), |retries, _| retries.after(FailureClass::Unavailable, wait))
}

fn identity(number: u8) -> Identity {
    testbed::incoming("test", "test/any", &format!("id{}", number % 3), START).identity
}

fn envelope(entity: &EntityKey, number: u8, nonce: &Nonce, now: Timestamp) -> Envelope {
    let mut incoming = testbed::incoming("test", entity.as_str(), &format!("id{}", number % 3), now);
    incoming.event_time = number.is_multiple_of(2).then_some(now);
    // Some bodies are long enough to be compressed.
    incoming.body = "{\"größe\":1}".repeat(usize::from(number) * 5).into_bytes().into();
    Envelope::pack(&incoming, nonce, now + Duration::from_secs(60))
}

fn receipt(number: u8, sequence: Sequence, now: Timestamp) -> Receipt {
    let settlements =
        [Settlement::Applied, Settlement::Repeat, Settlement::Void, Settlement::Parked, Settlement::Superseded];
    let settlement = settlements[usize::from(number) % settlements.len()];
    Receipt {
        sequence,
        identity: (settlement != Settlement::Void).then(|| identity(number).hash()),
        settlement,
        token: FencingToken(u64::from(number)),
        attempts: u32::from(number),
        settled_at: now,
        took: number.is_multiple_of(2).then_some(Duration::from_millis(number.into())),
    }
}

async fn run_case(dynamo: &Dynamo, steps: &[Step], landed: &Mutex<Landed>) -> Result<(), String> {
    let mut case = Case::new(dynamo);
    for (number, step) in steps.iter().enumerate() {
        case.step(step).await.map_err(|difference| format!("step {number}, {step:?}:\n{difference}"))?;
    }
    for (kind, (yes, no)) in std::mem::take(&mut case.landed) {
        let mut landed = landed.lock().expect("no one panics while holding this");
        let all = landed.entry(kind).or_default();
        *all = (all.0 + yes, all.1 + no);
    }
    case.pair.compare().await?;
    // A scan reads the rows of all cases.
    if dynamo.is_fresh && case.number.is_multiple_of(8) {
        case.pair.scan(&TableName::Entities, 3, 20).await?;
    }
    Ok(())
}

/// The number of sequences: five to ten seconds in debug.
const CASES: u32 = 64;

/// The longest sequence.
const STEPS: usize = 60;

#[test]
fn random_sequences_of_operations_agree() {
    on_dynamodb(|runtime, dynamo| {
        let cases = times("CONFORMANCE_CASES", CASES);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let landed = Mutex::default();
        let outcome = TestRunner::new(config).run(&vec(step(), 1..STEPS), |steps| {
            runtime.block_on(run_case(dynamo, &steps, &landed)).map_err(TestCaseError::fail)
        });
        if let Err(difference) = outcome {
            panic!("{difference}");
        }
        let landed = landed.into_inner().expect("no one panicked");
        println!("landed and refused: {landed:?}");
        if cases >= 500 {
            // An operation that never lands, or is never refused, shows nothing; in few cases that
            // may happen.
            for &kind in Kind::ALL {
                let (yes, no) = landed.get(&Some(kind)).copied().unwrap_or_default();
                assert!(
                    yes > 0 && (no > 0 || kind.is_unconditional()),
                    "{kind:?}: landed {yes} times, refused {no} times"
                );
            }
        }
    });
}
