//! Random sequences of the project's operations, under current and outdated leases and rows, beside
//! arbitrary writes of handlers.

mod acts;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
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
        alert::{AlertsRecorded, AlertsRow, RecordAlerts},
        attempt::{FailureClass, Retries},
        delivery::{Envelope, PutPart},
        entity::{EntityKey, FencingToken, Identity, Sequence, SourceName},
        inbox::*,
        keys::{alerts_row, entity_row, inbox_range, key_of, part_row, restore_row, sweep_position_row},
        lease::*,
        maintain::*,
        operation::Operation,
        receipt::{Receipt, Recent, Settlement, Spilled},
        state::{BlockReason, EntityState, EventTimes, HolderInfo},
        table::{Index, Range, Row, Table, TableName, Transacted, Write, Written},
        waits::SourceTag,
    },
    time::{Nonce, Timestamp},
};

use crate::{
    endpoint::{Dynamo, START, is_skipped, on_dynamodb, times},
    generate::{CaseNames, CaseStep, KeyTemplate, Loose, RandomOperation, step},
    pair::TablePair,
};
pub use acts::OperationKind;

enum Last {
    Nothing,
    Write(Write),
    Transaction(Vec<Write>, String),
}

/// The numbers of landed and refused writes of each operation.
type LandedCounts = BTreeMap<Option<OperationKind>, (u32, u32)>;

/// One case, and what it has seen so far.
struct RandomCase<'a> {
    number: u64,
    pair: TablePair<'a>,
    names: CaseNames,
    now: Timestamp,
    drawn: u128,
    leases: Vec<Lease>,
    states: Vec<EntityState>,
    granted: BTreeMap<EntityKey, FencingToken>,
    claimed: Vec<(EntityKey, Sequence, Nonce)>,
    /// Inbox rows, current or outdated.
    rows: Vec<Row>,
    positions: Vec<Position>,
    /// The nonces of the recorded alerts.
    alerts: Vec<Nonce>,
    restores: Vec<RestoreRecord>,
    /// The latest entry of the operations log.
    act: Option<Nonce>,
    transactions: u32,
    last_transaction: Option<String>,
    last: Last,
    has_tokens: bool,
    doing: Option<OperationKind>,
    landed: LandedCounts,
}

fn pick<T: Clone>(met: &[T], back: usize) -> Option<T> {
    met.iter().rev().take(4).cycle().nth(back).cloned()
}

impl<'a> RandomCase<'a> {
    fn new(dynamo: &'a Dynamo) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(0);
        let number = CASES.fetch_add(1, Relaxed);
        let case = format!("case{number}");
        Self {
            number,
            pair: TablePair::new(dynamo),
            names: CaseNames { effects: dynamo.effects.clone(), case },
            now: START,
            drawn: 0,
            leases: Vec::new(),
            states: Vec::new(),
            granted: BTreeMap::new(),
            claimed: Vec::new(),
            rows: Vec::new(),
            positions: Vec::new(),
            alerts: Vec::new(),
            restores: Vec::new(),
            act: None,
            transactions: 0,
            last_transaction: None,
            last: Last::Nothing,
            has_tokens: !is_skipped("client-tokens"),
            doing: None,
            landed: LandedCounts::new(),
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

    /// Remembers the rows of an entity, for the parameters of later operations.
    async fn look(&mut self, entity: &EntityKey) {
        let row = self.pair.memory.get(&entity_row(entity)).await.expect("memory answers");
        self.states.extend(row.and_then(|row| EntityState::parse(&row).ok()));
        self.rows.extend(self.pair.memory.query(&inbox_range(entity, 20)).await.expect("memory answers").rows);
    }

    async fn step(&mut self, step: &CaseStep) -> Result<(), String> {
        match step {
            CaseStep::Act(act) => self.doing = Some(act.kind),
            CaseStep::Again => {}
            _ => self.doing = None,
        }
        match step {
            CaseStep::Act(act) => self.act(act).await,
            CaseStep::Write(loose) => {
                let write = self.names.write(loose);
                self.last = Last::Write(write.clone());
                self.pair.write(&write).await.map(|_| ())
            }
            CaseStep::Transact(loose) => self.transact(self.writes(loose), None).await,
            CaseStep::Again => match std::mem::replace(&mut self.last, Last::Nothing) {
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
            CaseStep::SameToken(loose) => match self.last_transaction.clone() {
                Some(token) if self.has_tokens => self.transact(self.writes(loose), Some(token)).await,
                _ => Ok(()),
            },
            CaseStep::Get(place) => self.pair.get(&self.names.key(*place)).await.map(|_| ()),
            CaseStep::GetMany(places) => {
                let all: Vec<_> = places.iter().map(|place| self.names.key(*place)).collect();
                self.pair.get_many(&all).await
            }
            CaseStep::Query { partition, from, to, limit } => {
                let key = self.names.key(KeyTemplate::Inbox(*partition, 0));
                let from = format!("i{from}");
                let to = format!("i{to}");
                let table = key.table;
                let partition = key.partition;
                self.pair.query(&Range { table, partition, sort: "item".into(), from, to, limit: *limit }).await
            }
        }
    }

    /// Advances the sweep's position from one that the case has seen, or from none.
    async fn advance_position(&mut self, act: &RandomOperation, now: Timestamp) -> Result<(), String> {
        if self.positions.is_empty() {
            // All cases share this row.
            self.pair.write(&Write::delete(sweep_position_row())).await?.map_err(|error| error.to_string())?;
        }
        let seen = pick(&self.positions, act.pick).filter(|_| !act.twist.is_multiple_of(5));
        let after = act.twist.is_multiple_of(2).then(|| format!("{}/o0", self.names.case));
        let turn = SweepTurn { number: u64::from(act.twist), after, due: now };
        let round = turn.number.is_multiple_of(2).then_some(Round { since: now, segments: 3 });
        let in_one_part = act.twist.is_multiple_of(3);
        let to = Position { turn, nonce: self.nonce(), round, in_one_part };
        if self.run(&AdvancePosition { seen: seen.as_ref(), to: &to }).await? == Some(PositionAdvanced::Advanced) {
            self.positions.push(to);
        }
        Ok(())
    }

    async fn record_alerts(&mut self, act: &RandomOperation) -> Result<(), String> {
        if self.alerts.is_empty() {
            // All cases share this row.
            self.pair.write(&Write::delete(alerts_row())).await?.map_err(|error| error.to_string())?;
        }
        let seen = pick(&self.alerts, act.pick).filter(|_| !act.twist.is_multiple_of(5));
        let to = AlertsRow { nonce: self.nonce(), groups: format!("[{}]", act.twist) };
        if self.run(&RecordAlerts { seen: seen.as_ref(), to: &to }).await? == Some(AlertsRecorded::Recorded) {
            self.alerts.push(to.nonce);
        }
        Ok(())
    }

    /// Returns a restore to half a minute ago.
    fn restoring(&mut self, now: Timestamp) -> RestoreRecord {
        let as_of = Timestamp::from_millis(now.as_millis() - 30_000);
        RestoreRecord { nonce: self.nonce(), as_of, begun: now, ended: None, found: None }
    }

    /// Begins a restore after one that the case has seen, or after none; or ends a restore.
    async fn restore(&mut self, act: &RandomOperation, now: Timestamp) -> Result<(), String> {
        if self.restores.is_empty() {
            // All cases share this row.
            self.pair.write(&Write::delete(restore_row())).await?.map_err(|error| error.to_string())?;
        }
        let seen = pick(&self.restores, act.pick).filter(|_| !act.twist.is_multiple_of(5));
        if let (OperationKind::EndRestore, Some(restoring)) = (act.kind, &seen) {
            self.run(&RecordFindings { restoring, found: "{}" }).await?;
            return self.run(&EndRestore { restoring, now }).await.map(drop);
        }
        let restoring = self.restoring(now);
        let begin = BeginRestore { seen: seen.as_ref(), restoring: &restoring };
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

    /// Returns a decision about the front of a row that the case has seen, or about another sequence.
    fn decision(&self, act: &RandomOperation, state: Option<EntityState>, now: Timestamp) -> Option<Decision> {
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
            spilled: state.spilled.and(if act.twist.is_multiple_of(3) { Spilled::PAGES } else { Spilled::ROWS }),
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

/// Returns the number of entries of the indexes at the end of the case.
async fn run_case(dynamo: &Dynamo, steps: &[CaseStep], landed: &Mutex<LandedCounts>) -> Result<usize, String> {
    let mut case = RandomCase::new(dynamo);
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
    let mut entries = 0;
    if dynamo.is_fresh {
        for index in Index::ALL {
            entries += case.pair.scan_index(index, 20).await?;
        }
    }
    Ok(entries)
}

/// The number of sequences. They take five to ten seconds in a debug build.
const CASES: u32 = 64;

/// The longest sequence.
const STEPS: usize = 60;

#[test]
fn memory_table_and_dynamodb_agree_on_random_operations() {
    on_dynamodb(|runtime, dynamo| {
        let cases = times("CONFORMANCE_CASES", CASES);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let landed = Mutex::default();
        let entries = AtomicUsize::new(0);
        let outcome = TestRunner::new(config).run(&vec(step(), 1..STEPS), |steps| {
            let ended = runtime.block_on(run_case(dynamo, &steps, &landed)).map_err(TestCaseError::fail);
            entries.fetch_add(ended?, Relaxed);
            Ok(())
        });
        if let Err(difference) = outcome {
            panic!("{difference}");
        }
        let landed = landed.into_inner().expect("no one panicked");
        println!("landed and refused: {landed:?}; entries of indexes: {entries:?}");
        assert!(entries.into_inner() > 0 || !dynamo.is_fresh, "no case has a row that an index holds");
        if cases >= 500 {
            // An operation that never lands, or is never refused, shows nothing. With few cases, that may
            // happen.
            for &kind in OperationKind::ALL {
                let (yes, no) = landed.get(&Some(kind)).copied().unwrap_or_default();
                assert!(
                    yes > 0 && (no > 0 || kind.is_unconditional()),
                    "{kind:?}: landed {yes} times, refused {no} times"
                );
            }
        }
    });
}
