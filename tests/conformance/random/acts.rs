//! The operations of an act, each under a current or an outdated lease and row.

use std::collections::BTreeSet;

use tests::tree::{read, root, sources};
use webhook_serializer::protocol::{keys::WatchReason, maintain::Watch, table::Key};

use super::*;

macro_rules! operations {
    ($($group:ident: $($name:ident $($page:literal)?),*;)* @elsewhere: $($other:ident $($other_page:literal)?),*;) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum OperationKind { $($($name,)*)* }

        impl OperationKind {
            pub const ALL: &[OperationKind] = &[$($(OperationKind::$name,)*)*];
        }

        /// The types of all operations.
        const TYPES: &[&str] = &[$($(stringify!($name),)*)* $(stringify!($other),)*];
        /// The names of the operations in `docs/protocol.md`.
        const PAGE: &[&str] = &[$($($($page,)?)*)* $($($other_page,)?)*];

        impl RandomCase<'_> {
            async fn run_act(&mut self, act: &RandomOperation, met: Met) -> Result<(), String> {
                match act.kind {
                    $($(OperationKind::$name)|* => self.$group(act, met).await,)*
                }
            }
        }
    };
}

// The protocol's operations, by the function below that runs them on random arguments, each with its name in
// `docs/protocol.md`, if it has a row there. The last line has those that other suites run: `ticks.rs` of the model,
// `end_to_end`, and `lost_replies.rs`.
#[rustfmt::skip]
operations! {
    maintain:
        Forget "erase", Remove "remove", MarkRedrive "mark redrive", Discard "discard", PutPart, RemovePart,
        KeepForever, ExpireAgain, ExtendRetention "extend TTL", AdvancePosition "advance sweep", ListJob,
        RecordAlerts "record alerts",
        BeginRestore "begin restore", EndRestore "end restore", ForceAcquire "take by force",
        AdvanceNumbers "advance numbers", MendWaits "mend", Watch "watch";
    append:
        Claim "claim", Put "put", Void "tombstone", Spill "write receipt", SpillPage "write page", Park "park";
    lease:
        Acquire "acquire, a drain; acquire, exclusive", TakeOver "take over", Renew "renew",
        ReleaseEmpty "release empty", Release "release", HandOver "hand over", MarkHandOver "mark hand-over",
        RequestYield "request yield", Follow "follow", ForceRelease "force release";
    settle:
        Settle "settle", SettleAndRelease "settle and release", MarkStart "mark start", Fail "fail", Block "block",
        Commit "commit; release with writes";
    operate:
        Unblock "unblock", BeginHold "hold", EndHold "resume", RetryNow "retry now", Skip "skip", Rewind "rewind",
        LogAction "log", LogOutcome "log result";
    @elsewhere:
        DefineJob "define job", RequestRun "request run", StartTick "start tick", TakeOverTick "take tick over",
        CompleteTick "complete tick", GiveUpTick "give tick up", YieldToDeliveries, RecordFindings,
        ReportDown "report down", ClaimProbe "claim probe", ReportProbe "report probe", ReportUp "report up";
}

impl OperationKind {
    /// Returns whether the operation has no condition.
    pub fn is_unconditional(self) -> bool {
        matches!(
            self,
            OperationKind::PutPart
                | OperationKind::RemovePart
                | OperationKind::ListJob
                | OperationKind::LogAction
                | OperationKind::Watch
        )
    }
}

#[test]
fn list_has_every_operation_of_code_and_page() {
    let mut types = BTreeSet::from(["Commit".to_owned()]);
    for file in sources(&root().join("shared/protocol/src")) {
        let text = read(&file);
        let named = text.lines().filter_map(|line| line.strip_prefix("impl Operation for "));
        types.extend(named.map(|name| name.trim_end_matches(" {").trim_end_matches("<'_>").to_owned()));
    }
    assert_eq!(TYPES.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), types);
    let page = read("docs/protocol.md");
    let table = page.split("---|---|---|---\n").nth(1).expect("the table of operations");
    let rows = table.lines().take_while(|line| line.contains(" | "));
    let names = rows.flat_map(|row| row.split(" | ").next().expect("a name").split("; "));
    assert_eq!(
        PAGE.iter().flat_map(|names| names.split("; ")).collect::<BTreeSet<_>>(),
        names.collect::<BTreeSet<_>>(),
        "docs/protocol.md has a row for each"
    );
}

/// The rows, leases and times that an act works with.
struct Met {
    now: Timestamp,
    entity: EntityKey,
    length: Duration,
    request: Acquire,
    lease: Option<Lease>,
    state: Option<EntityState>,
    claimed: Option<(EntityKey, Sequence, Nonce)>,
    purge_at: Option<Timestamp>,
    row: Option<Row>,
    part: Key,
}

impl RandomCase<'_> {
    pub(super) async fn act(&mut self, act: &RandomOperation) -> Result<(), String> {
        self.now = self.now + Duration::from_millis(act.millis);
        // A third of the acts use another machine's clock, which is 15 s behind or ahead.
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
        // Few parts, so that operations often meet the same part.
        let part = part_row(&entity, &Nonce::from_parts(START, u128::from(act.twist % 2)), 0);
        let met = Met { now, entity, length, request, lease, state, claimed, purge_at, row, part };
        self.run_act(act, met).await
    }

    /// Acts of the sweep, of restores and of expiry.
    async fn maintain(&mut self, act: &RandomOperation, met: Met) -> Result<(), String> {
        let Met { now, entity, length, state, row, part, .. } = met;
        match act.kind {
            OperationKind::Forget => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&Forget::of(&seen, now)).await?;
            }
            OperationKind::Remove => {
                let Some(remove) = row.and_then(|row| Remove::of(&row).ok()) else { return Ok(()) };
                self.run(&remove).await?;
            }
            OperationKind::MarkRedrive => {
                let Some(mark) = row.and_then(|row| MarkRedrive::of(&row, now).ok()) else { return Ok(()) };
                self.run(&mark).await?;
            }
            OperationKind::Discard => {
                let Some(discard) = row.and_then(|row| Discard::of(&row).ok()) else { return Ok(()) };
                self.run(&discard).await?;
            }
            OperationKind::PutPart => {
                let row = Row::new().with("v", 1_u32).with("body", "a part").with("purge_at", now.as_millis() / 1000);
                self.run(&PutPart { key: part, row }).await?;
            }
            OperationKind::RemovePart => self.run(&RemovePart { part: &part }).await.map(|_| ())?,
            OperationKind::KeepForever => self.run(&KeepForever { part }).await.map(|_| ())?,
            OperationKind::ExpireAgain => self.run(&ExpireAgain { part, until: now }).await.map(|_| ())?,
            OperationKind::ExtendRetention => {
                let row = row.and_then(|row| key_of(&TableName::Inbox, &row)).unwrap_or(part);
                self.run(&ExtendRetention { row, until: now + Duration::from_secs(30) }).await?;
            }
            OperationKind::AdvancePosition => self.advance_position(act, now).await?,
            OperationKind::RecordAlerts => self.record_alerts(act).await?,
            OperationKind::ListJob => {
                let job = format!("{}-{}", self.names.case, act.twist % 2);
                self.run(&ListJob { job: &job }).await?;
            }
            OperationKind::Watch => {
                let reason = if act.twist.is_multiple_of(2) { WatchReason::Owed } else { WatchReason::Long };
                let nonce = self.nonce();
                self.run(&Watch { reason, entity: &entity, nonce: &nonce, purge_at: now }).await?;
            }
            OperationKind::BeginRestore | OperationKind::EndRestore => self.restore(act, now).await?,
            OperationKind::ForceAcquire => {
                let Some(seen) = state else { return Ok(()) };
                let restoring = self.restoring(now);
                let holder = self.nonce();
                let last = Sequence(seen.tail.0 + u64::from(act.twist % 3));
                let seize = ForceAcquire { restoring: &restoring, seen: &seen, last, holder: &holder, now, length };
                if let Some(ForceAcquired::Granted(lease, state)) = self.run(&seize).await? {
                    self.acquired(Some(Acquired::Granted(lease, state)))?;
                }
            }
            OperationKind::MendWaits => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&MendWaits { seen: &seen }).await?;
            }
            OperationKind::AdvanceNumbers => {
                let Some(seen) = state else { return Ok(()) };
                let restoring = self.restoring(now);
                let retention = Duration::from_secs(60);
                let raise = AdvanceNumbers { restoring: &restoring, seen: &seen, job: None, now, retention };
                if let Some(NumbersAdvanced::Advanced(state)) = self.run(&raise).await? {
                    // Every earlier grant has a smaller token.
                    self.granted.insert(state.entity.clone(), state.token);
                    self.states.push(state);
                }
            }
            other => unreachable!("{other:?}"),
        }
        self.look(&entity).await;
        Ok(())
    }

    /// Acts of an ingest or a worker on inbox rows.
    async fn append(&mut self, act: &RandomOperation, met: Met) -> Result<(), String> {
        let Met { now, entity, claimed, .. } = met;
        match act.kind {
            OperationKind::Claim => {
                let nonce = self.nonce();
                let claimed = self.run(&Claim { entity: &entity, nonce: &nonce, now }).await?;
                self.claimed.extend(claimed.map(|claimed| (entity.clone(), claimed.sequence, nonce)));
            }
            OperationKind::Put => {
                let Some((entity, sequence, nonce)) = claimed else { return Ok(()) };
                let envelope = envelope(&entity, act.twist, &nonce, now);
                self.run(&Put { envelope: &envelope, sequence }).await?;
            }
            OperationKind::Void => {
                let sequence = claimed.map_or(Sequence(7), |claimed| claimed.1);
                self.run(&Void { entity: &entity, sequence, purge_at: now }).await?;
            }
            OperationKind::Spill => {
                let receipt = receipt(act.twist, claimed.map_or(Sequence(7), |claimed| claimed.1), now);
                let Some(spill) = Spill::of(&entity, &receipt, now) else { return Ok(()) };
                self.run(&spill).await?;
            }
            OperationKind::SpillPage => {
                let last = claimed.map_or(Sequence(7), |claimed| claimed.1);
                let first =
                    Recent::default().with(receipt(act.twist / 2, last.previous(), now), Duration::from_secs(60));
                let receipts = first.with(receipt(act.twist, last, now), Duration::from_secs(60));
                let Some(page) = SpillPage::of(&entity, &receipts, now) else { return Ok(()) };
                self.run(&page).await?;
            }
            OperationKind::Park => {
                let row = act.beside.first().map(|loose| match &loose.action {
                    webhook_serializer::protocol::table::Action::Put(row) => row.clone(),
                    _ => Row::new().with("error", "rejected"),
                });
                let sequence = claimed.map_or(Sequence(7), |claimed| claimed.1);
                self.run(&Park { entity: &entity, sequence, row: &row.unwrap_or_default() }).await?;
            }
            other => unreachable!("{other:?}"),
        }
        self.look(&entity).await;
        Ok(())
    }

    /// Acts on a lease.
    async fn lease(&mut self, act: &RandomOperation, met: Met) -> Result<(), String> {
        let Met { now, entity, length, request, lease, state, purge_at, .. } = met;
        match act.kind {
            OperationKind::Acquire => {
                let acquired = self.run(&request).await?;
                self.acquired(acquired)?;
            }
            OperationKind::TakeOver => {
                let Some(seen) = state else { return Ok(()) };
                let request = Acquire { entity: seen.entity.clone(), ..request };
                let acquired = self.run(&TakeOver { request, seen }).await?;
                self.acquired(acquired)?;
            }
            OperationKind::Renew => {
                let Some(lease) = lease else { return Ok(()) };
                if let Some(Renewed::Renewed(state)) =
                    self.run(&Renew { lease: &lease, now, length, wrong: None }).await?
                {
                    self.states.push(state);
                }
            }
            OperationKind::ReleaseEmpty => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&ReleaseEmpty { lease: &lease, purge_at }).await?;
            }
            OperationKind::Release => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&Release { lease: &lease }).await?;
            }
            OperationKind::HandOver => {
                let Some(lease) = lease else { return Ok(()) };
                let suspected = act.twist.is_multiple_of(2);
                let is_pause = act.twist.is_multiple_of(3);
                self.run(&HandOver { lease: &lease, suspected, due: now, is_pause }).await?;
            }
            OperationKind::MarkHandOver => {
                let Some(lease) = lease else { return Ok(()) };
                self.run(&MarkHandOver { lease: &lease }).await?;
            }
            OperationKind::RequestYield => {
                let until = now + LONGEST_YIELD * u32::from(act.twist) / 6;
                self.run(&RequestYield { entity: &entity, now, until }).await?;
            }
            OperationKind::Follow => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&Follow { entity: &entity, token: seen.token, due: now }).await?;
            }
            OperationKind::ForceRelease => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&ForceRelease { seen: &seen, record: HolderInfo::new("by force") }).await?;
            }
            other => unreachable!("{other:?}"),
        }
        self.look(&entity).await;
        Ok(())
    }

    /// Acts of a lease's holder on its delivery.
    async fn settle(&mut self, act: &RandomOperation, met: Met) -> Result<(), String> {
        let Met { now, entity, length, lease, state, purge_at, .. } = met;
        match act.kind {
            OperationKind::Settle => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let hands_over = act.twist.is_multiple_of(3);
                let settle = Settle { lease: &lease, decision: &decision, now, length, hands_over };
                if let Some(Settled::Settled(lease, state)) = self.run(&settle).await? {
                    self.leases.push(lease);
                    self.states.push(state);
                }
            }
            OperationKind::SettleAndRelease => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let settle = SettleAndRelease { lease: &lease, decision: &decision, purge_at };
                if let Some(SettledAndReleased::Grown(state)) = self.run(&settle).await? {
                    self.states.push(state);
                }
            }
            OperationKind::MarkStart => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                self.run(&MarkStart { lease: &lease, sequence: decision.first }).await?;
            }
            OperationKind::Fail => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let sequence = decision.first;
                let attempts = u32::from(act.twist);
                let one_by_one = act.twist.is_multiple_of(3).then(|| decision.last());
                let error = "ü".repeat(60);
                let fail = Fail {
                    lease: &lease,
                    sequence,
                    attempts,
                    retries: retries(act.twist),
                    suspected: act.twist.is_multiple_of(2),
                    one_by_one,
                    then: purge_at.map_or(AfterFailure::Block, AfterFailure::RetryAt),
                    error: &error,
                    source: SourceTag::of(&SourceName::parse("shop").expect("a name")),
                };
                self.run(&fail).await?;
            }
            OperationKind::Block => {
                let (Some(lease), Some(decision)) = (lease, self.decision(act, state, now)) else { return Ok(()) };
                let reason = BlockReason::Expired;
                self.run(&Block { lease: &lease, sequence: decision.first, reason, source: SourceTag::default() })
                    .await?;
            }
            OperationKind::Commit => {
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
            other => unreachable!("{other:?}"),
        }
        self.look(&entity).await;
        Ok(())
    }

    /// Acts of an operator.
    async fn operate(&mut self, act: &RandomOperation, met: Met) -> Result<(), String> {
        let Met { now, entity, lease, state, purge_at, .. } = met;
        match act.kind {
            OperationKind::Unblock => {
                let seen = state.map_or(FencingToken(1), |state| state.token);
                self.run(&Unblock { entity: &entity, seen }).await?;
            }
            OperationKind::BeginHold => {
                let seen = state.map(|state| state.hold).unwrap_or_default();
                self.run(&BeginHold { entity: &entity, seen, now }).await?;
            }
            OperationKind::EndHold => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&EndHold { seen: &seen, purge_at }).await?;
            }
            OperationKind::RetryNow => {
                let Some(seen) = state else { return Ok(()) };
                self.run(&RetryNow { seen: &seen }).await?;
            }
            OperationKind::Skip => {
                let (Some(lease), Some(seen)) = (lease, state.clone()) else { return Ok(()) };
                let Some(decision) = self.decision(act, state, now) else { return Ok(()) };
                self.run(&Skip { lease: &lease, decision: &decision, seen: &seen, now, purge_at }).await?;
            }
            OperationKind::Rewind => {
                let (Some(lease), Some(seen)) = (lease, state.clone()) else { return Ok(()) };
                let from = Sequence((seen.head.0 + 1).saturating_sub(u64::from(act.twist % 4)).max(1));
                self.run(&Rewind { lease: &lease, seen: &seen, from, since: now }).await?;
            }
            OperationKind::LogAction | OperationKind::LogOutcome => {
                let reason = Reason::new("ada", &"ü".repeat(300));
                let nonce = match (act.kind, &self.act) {
                    (OperationKind::LogOutcome, Some(nonce)) if !act.twist.is_multiple_of(3) => nonce.clone(),
                    _ => self.nonce(),
                };
                let sequence = state.map(|state| state.next()).filter(|_| act.twist.is_multiple_of(2));
                let done =
                    OperatorAction { entity, nonce, verb: "skip".into(), sequence, reason, ended: None, found: None };
                if act.kind == OperationKind::LogAction {
                    self.run(&LogAction { action: &done, purge_at: now }).await?;
                    self.act = Some(done.nonce);
                } else {
                    self.run(&LogOutcome { action: &done, outcome: "settled as parked", found: None }).await?;
                }
                return Ok(());
            }
            other => unreachable!("{other:?}"),
        }
        self.look(&entity).await;
        Ok(())
    }
}
