//! Carries out a drain's steps, one after the other, while it renews the lease.

mod ahead;
mod commit;
mod fail;
mod health;
mod settle;
mod spill;
mod start;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use futures_util::future::join;

use self::{ahead::PageAhead, fail::UnsettledStart};
use super::{
    DrainError, DrainSettings, DrainSlot, Drainer, InFlight, PATIENCE, ReceivedWakeUp, UNREADABLE,
    pace::Pace,
    page::InboxPage,
    plan::{DeliveryGroup, Drain, EarlyEnd, HANDOVER_DELAY, Memory, Moment, Step},
    suspects::Turn,
};
use crate::{
    engine::{lease_renewer::LeaseRenewer, queue::WakeUp, store::StoreError},
    protocol::{
        attempt::Retries,
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Sequence},
        inbox::{Block, Failed, Void, Voided},
        lease::{Ended, HandOver, MarkHandOver, Release, ReleaseEmpty, Released, idle_purge_at},
        receipt::{Recent, Settlement},
        state::{BlockReason, EntityState},
        table::TableError,
        waits::SourceTag,
    },
    sources::SourceLookup,
    telemetry::{Event, RequeueReason},
    time::{CLOCKS_APART, Nonce, Timestamp},
    traces::{DrainSpans, WriteOutcome},
};

const FIRST_LOOK: Duration = Duration::from_millis(25);
const LONGEST_LOOK: Duration = Duration::from_millis(400);

/// The time that a drain waits at a gap before it hands over. Nearly every put follows its claim
/// within milliseconds.
const GAP_LOOKS: Duration = Duration::from_millis(500);

/// The time reserved at the end of an invocation to release the lease.
///
/// A worker that still has the lease when its invocation ends looks like a crashed worker.
const RELEASE_MARGIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
struct HandlerRun {
    deliveries: Vec<Arc<Delivery>>,
    group: DeliveryGroup,
    took: Option<Duration>,
}

struct PlannedStep {
    step: Step,
    run: HandlerRun,
}

impl PlannedStep {
    fn new(step: Step) -> Self {
        Self { step, run: HandlerRun::default() }
    }
}

/// `Break` ends the drain. `Continue` contains the next step if that step is already decided.
type Flow = ControlFlow<(), Option<PlannedStep>>;

const CONTINUE: Flow = Flow::Continue(None);

pub(super) struct Driver<'a> {
    drainer: &'a Drainer,
    renewer: LeaseRenewer,
    drain: Drain,
    source: Option<SourceLookup>,
    /// The read that still ran when the handler had answered. Dropping it would close its connection.
    ahead: Option<PageAhead<'a>>,
    wake_up: &'a ReceivedWakeUp,
    deadline: Duration,
    slot: &'a DrainSlot<'a>,
    in_flight: &'a InFlight,
    /// The times of the grant and of the last read of the entity's row, by the monotonic clock.
    began: Duration,
    seen: Duration,
    /// The highest sequence known to be claimed, and the time at which this drain learned of the
    /// claim, by the monotonic clock.
    claimed: (Sequence, Duration),
    pace: Pace,
    /// The earliest time at which the source's rate allows the next start. `None` without a rate,
    /// or if no handler was started for the delivery in front.
    not_before: Option<Timestamp>,
    spans: DrainSpans,
}

fn no_answer() -> StoreError {
    StoreError::Unavailable(TableError::Unknown("no answer in the function's time".into()))
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        drainer: &'a Drainer,
        renewer: LeaseRenewer,
        state: EntityState,
        wake_up: &'a ReceivedWakeUp,
        deadline: Duration,
        slot: &'a DrainSlot<'a>,
        in_flight: &'a InFlight,
    ) -> Self {
        let seen = drainer.store.env().monotonic();
        let DrainSettings { retention, receipt_pages, .. } = drainer.settings;
        let memory = Memory { receipt_pages, ..Memory::of(&state.entity, retention) };
        Self {
            drainer,
            spans: DrainSpans::granted(&state.entity, renewer.lease().token()),
            renewer,
            claimed: (state.tail, seen),
            drain: Drain::granted(state, memory).after_wait(wake_up.ended_wait),
            source: None,
            ahead: None,
            wake_up,
            deadline,
            slot,
            in_flight,
            seen,
            began: seen,
            pace: Pace::after(wake_up.lag, drainer.settings.slice),
            not_before: None,
        }
    }

    /// Drains until the lease ends.
    pub(super) async fn run(mut self) -> Result<(), DrainError> {
        let token = self.renewer.lease().token();
        let entity = self.drain.state().entity.clone();
        let env = self.drainer.store.env().clone();
        let limit = self.drainer.now_left(self.deadline).saturating_sub(RELEASE_MARGIN);
        let ended = match env.within(limit, self.steps()).await {
            Some(Err(DrainError::Store(error))) => self.stop(error).await,
            Some(ended) => ended,
            None => self.stop(no_answer()).await,
        };
        if matches!(ended, Err(DrainError::Lost)) {
            self.drainer.observer.observe(&Event::Lost { entity: &entity, token });
        }
        ended
    }

    async fn steps(&mut self) -> Result<(), DrainError> {
        let mut next = None;
        loop {
            let PlannedStep { step, run } = next.take().unwrap_or_else(|| self.plan());
            if let Some(outcome) = step.outcome() {
                self.spans.decides(outcome);
            }
            let taken = self.take(step, run).await;
            self.spans.decided(match &taken {
                // A step with an outcome returns the next step only if its write was refused. If a wake-up
                // could not be sent, the step wrote nothing.
                Ok(Flow::Continue(Some(_))) | Err(DrainError::WakeUp) => WriteOutcome::Refused,
                Ok(_) => WriteOutcome::Stands,
                Err(DrainError::Lost) => WriteOutcome::Lost,
                Err(DrainError::Store(_)) => WriteOutcome::InDoubt,
            });
            match taken? {
                Flow::Break(()) => return Ok(()),
                Flow::Continue(follows) => next = follows,
            }
        }
    }

    fn plan(&mut self) -> PlannedStep {
        debug_assert!(self.ahead.is_none(), "a settle or commit takes it");
        self.not_before = None;
        self.spans.ends();
        PlannedStep::new(self.drain.next(&self.moment(), self.source.as_ref()))
    }

    async fn take(&mut self, step: Step, run: HandlerRun) -> Result<Flow, DrainError> {
        match step {
            Step::ReleaseEmpty => self.release_empty().await,
            Step::Release => self.release().await,
            Step::Block(reason) => self.block(reason).await,
            Step::HandOver(delay, reason) => self.hand_over(delay, reason).await,
            Step::AwaitGap => self.await_gap().await,
            Step::Start { must_record, group } => self.start(must_record, group).await,
            Step::Settle(settlement) => self.settle(settlement, &run, Retries::default()).await,
            Step::Apply => self.settle(Settlement::Applied, &run, Retries::default()).await,
            Step::Commit(writes) => self.commit(run, writes).await,
            Step::Park { attempts, error, carried } => self.park(attempts, &error, carried).await,
            Step::Retry { attempts, retries, one_by_one, wait, error, .. } => {
                self.retry(&UnsettledStart { attempts, retries, one_by_one, error }, wait, &run).await
            }
            Step::GiveUp { attempts, retries, error } => {
                self.give_up(&UnsettledStart { attempts, retries, one_by_one: None, error }).await
            }
            Step::Wait(wait) => {
                let wait = self.drainer.store.env().sleep(wait);
                self.renewer.hold(wait).await?;
                Ok(CONTINUE)
            }
            Step::ReadPage => self.read_page().await,
            Step::WriteTombstone(sequence) => self.write_tombstone(sequence).await,
            Step::FindSource => {
                let name = self.head().source().clone();
                let since = self.head().received_at();
                let find = self.drainer.sources.find(&name, since);
                self.source = Some(self.renewer.hold(find).await?);
                Ok(CONTINUE)
            }
            Step::AwaitIsolation { attempts } => {
                let slot = self.slot;
                match self.renewer.hold(slot.isolate(attempts)).await? {
                    Turn::Now => Ok(CONTINUE),
                    Turn::Later => self.hand_over(HANDOVER_DELAY, RequeueReason::Suspect).await,
                }
            }
        }
    }

    async fn read_page(&mut self) -> Result<Flow, DrainError> {
        let state = self.drain.state();
        let unread = self.drain.unread();
        let read = InboxPage::read(&self.drainer.store, &state.entity, state.next(), state.tail, unread);
        let page = self.renewer.hold(read).await??;
        self.drain.read(page);
        Ok(CONTINUE)
    }

    fn head(&self) -> &Delivery {
        self.drain.front().expect("the step is about a delivery").unpacked.head()
    }

    /// Ends the drain after the store has failed or the invocation's time is over: releases the
    /// lease, or hands over.
    ///
    /// If the lease were left to expire, the delivery in front would become a suspect, although it
    /// is not the cause.
    async fn stop(&mut self, error: StoreError) -> Result<(), DrainError> {
        let entity = self.drain.state().entity.clone();
        tracing::error!(%entity, %error, "requeued");
        let (delay, reason) = match error {
            StoreError::Unavailable(_) => (self.drainer.settings.lease, RequeueReason::StoreOut),
            StoreError::Corrupt(_) | StoreError::Invalid(_) => (UNREADABLE, RequeueReason::Unreadable),
        };
        // A write without a reply may already have ended the lease, so the errors of ending it are
        // ignored below. Either way, a fresh wake-up has been sent.
        match EarlyEnd::of(self.wake_up.is_replaced()) {
            EarlyEnd::Release => {
                let _ = self.release().await;
            }
            EarlyEnd::HandOver => {
                let lease = self.renewer.lease().clone();
                let wake_up = self.following(&entity, lease.token());
                let announce = MarkHandOver { lease: &lease };
                let sent = self.drainer.requeue(&wake_up, delay, reason);
                let (_, sent) = self.renewer.hold(join(self.drainer.store.run(&announce, PATIENCE), sent)).await?;
                sent?;
                let _ = self.end_lease(self.now() + delay, false).await;
            }
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.now(),
            left: self.drainer.now_left(self.deadline),
            is_alone: self.slot.is_isolated(),
            is_spent: self.drainer.threads.are_spent(),
            patience: self.pace.patience,
            pause: self.pace.pause,
        }
    }

    fn now(&self) -> Timestamp {
        self.drainer.store.env().now()
    }

    fn monotonic(&self) -> Duration {
        self.drainer.store.env().monotonic()
    }

    fn purge_at(&self) -> Timestamp {
        self.now() + self.drainer.settings.retention
    }

    /// Returns the time at which DynamoDB may delete the row if it stays idle. `None` means never,
    /// for example on hold.
    fn idle_purge_at(&self, recent: &Recent) -> Option<Timestamp> {
        if self.drain.state().hold.since().is_some() {
            return None;
        }
        idle_purge_at(&self.drain.state().entity, recent, self.now(), self.drainer.settings.retention)
    }

    /// Returns how long ago the next sequence was claimed, as far as this drain can tell.
    ///
    /// If an earlier drain waited for the sequence, as the wake-up says, the result is
    /// `DrainSettings::gap`. Otherwise it is the longer of two times. One is the time since this drain
    /// first saw the claim.
    /// The other is the age of the newest claim, or of the first delivery after the gap if that
    /// delivery is older, less [`CLOCKS_APART`] for clock skew. If clocks differ by more, the
    /// tombstone comes too early. An early tombstone is harmless, because the append then claims
    /// another sequence.
    fn claimed_for(&mut self) -> Duration {
        let state = self.drain.state();
        if state.next() > self.claimed.0 {
            self.claimed = (state.tail, self.monotonic());
        }
        if self.wake_up.gap >= Some(state.next()) {
            return self.drainer.settings.gap;
        }
        let seen = self.monotonic().saturating_sub(self.claimed.1);
        let newest_claim = state.last_claim.as_ref().and_then(Nonce::drawn_at);
        let written = [newest_claim, self.drain.behind()].into_iter().flatten().map(|at| self.now().since(at)).max();
        seen.max(written.unwrap_or_default().saturating_sub(CLOCKS_APART))
    }

    /// Waits until the next sequence is filled, for at most the time `DrainSettings::gap`.
    ///
    /// The process that claimed the sequence is slow or has died. A long wait continues in the queue:
    /// the drain hands over with a wake-up that says until when sequences were claimed.
    async fn await_gap(&mut self) -> Result<Flow, DrainError> {
        let sequence = self.drain.state().next();
        let left = self.drainer.settings.gap.saturating_sub(self.claimed_for());
        let env = self.drainer.store.env();
        let give_up = env.monotonic() + left.min(GAP_LOOKS);
        let mut look = FIRST_LOOK;
        let store = &self.drainer.store;
        while env.monotonic() < give_up {
            if self.drainer.now_left(self.deadline) < super::MARGIN + look {
                return self.hand_over(HANDOVER_DELAY, RequeueReason::OutOfTime).await;
            }
            self.renewer.hold(env.sleep(env.jittered(look))).await?;
            look = (look * 2).min(LONGEST_LOOK);
            if self.renewer.hold(store.item(&self.drain.state().entity, sequence, PATIENCE)).await??.is_some() {
                self.drain.filled();
                return Ok(CONTINUE);
            }
        }
        if left > GAP_LOOKS {
            let gap = Some(self.claimed.0.0);
            let wake_up = WakeUp { gap, ..WakeUp::under(&self.drain.state().entity, self.renewer.lease().token()) };
            return self.hand_over_to(wake_up, left - GAP_LOOKS, RequeueReason::Gap).await;
        }
        let retention = self.drainer.settings.retention;
        Ok(Flow::Continue(Some(PlannedStep::new(self.drain.after_gap(self.now(), retention)))))
    }

    async fn write_tombstone(&mut self, sequence: Sequence) -> Result<Flow, DrainError> {
        let void = Void { entity: &self.drain.state().entity, sequence, purge_at: self.purge_at() };
        match self.renewer.hold(self.drainer.store.run(&void, PATIENCE)).await?? {
            Voided::Void => self.drain.tombstone_written(),
            Voided::Filled(_) => self.drain.filled(),
        }
        Ok(CONTINUE)
    }

    async fn block(&mut self, reason: BlockReason) -> Result<Flow, DrainError> {
        let source = self.source_tag();
        let block = Block { lease: self.renewer.lease(), sequence: self.drain.state().next(), reason, source };
        match self.drainer.store.run(&block, PATIENCE).await? {
            Failed::Counted => self.blocked(reason, None),
            Failed::Lost => Err(DrainError::Lost),
        }
    }

    fn source_tag(&self) -> SourceTag {
        self.drain.front().map_or_else(SourceTag::default, |front| SourceTag::of(front.unpacked.head().source()))
    }

    fn blocked(&self, reason: BlockReason, delivery: Option<&Delivery>) -> Result<Flow, DrainError> {
        self.drainer.observer.observe(&Event::Blocked { entity: &self.drain.state().entity, reason, delivery });
        Ok(Flow::Break(()))
    }

    /// Returns how long to retry a write that ends or extends the lease.
    ///
    /// The time may exceed the lease. A late write is safe, because its condition is checked.
    fn patience(&self) -> Duration {
        self.renewer.left().max(PATIENCE)
    }

    async fn hand_over(&mut self, delay: Duration, reason: RequeueReason) -> Result<Flow, DrainError> {
        let wake_up = self.following(&self.drain.state().entity, self.renewer.lease().token());
        // The outage may end before the wait, so the order looks at it soon.
        let looks = wake_up.outage.is_some() && reason == RequeueReason::Retry;
        let delay = if looks { delay.min(HANDOVER_DELAY) } else { delay };
        self.hand_over_to(wake_up, delay, reason).await
    }

    /// Returns the wake-up with which another drain goes on.
    fn following(&self, entity: &EntityKey, token: FencingToken) -> WakeUp {
        // Only an operator's attempt stays an extra one.
        let ended_wait = self.drain.ended_wait().filter(|_| self.wake_up.outage.is_none());
        let outage = self.wake_up.outage.clone().filter(|outage| Some(outage.until) == self.drain.state().retry_at);
        WakeUp { ended_wait, outage, ..WakeUp::under(entity, token) }
    }

    async fn hand_over_to(
        &mut self,
        wake_up: WakeUp,
        delay: Duration,
        reason: RequeueReason,
    ) -> Result<Flow, DrainError> {
        let due = self.now() + delay;
        self.renewer.hold(self.drainer.requeue(&wake_up, delay, reason)).await??;
        let is_pause = matches!(reason, RequeueReason::Slice | RequeueReason::Gap) && !delay.is_zero();
        self.end_lease(due, is_pause).await
    }

    /// Ends the lease, and records that the wake-up with the lease's token is due at `due`.
    async fn end_lease(&mut self, due: Timestamp, is_pause: bool) -> Result<Flow, DrainError> {
        let suspected = self.drain.state().is_suspect();
        let hand_over = HandOver { lease: self.renewer.lease(), suspected, due, is_pause };
        match self.drainer.store.run(&hand_over, self.patience()).await? {
            Ended::Ended(_) => Ok(Flow::Break(())),
            Ended::Lost => Err(DrainError::Lost),
        }
    }

    async fn release(&mut self) -> Result<Flow, DrainError> {
        match self.drainer.store.run(&Release { lease: self.renewer.lease() }, self.patience()).await? {
            Ended::Ended(_) => Ok(Flow::Break(())),
            Ended::Lost => Err(DrainError::Lost),
        }
    }

    async fn release_empty(&mut self) -> Result<Flow, DrainError> {
        let release =
            ReleaseEmpty { lease: self.renewer.lease(), purge_at: self.idle_purge_at(&self.drain.state().recent) };
        match self.drainer.store.run(&release, self.patience()).await? {
            Released::Released => Ok(Flow::Break(())),
            Released::Grown(state) => {
                self.drain.seen(state);
                Ok(CONTINUE)
            }
            Released::Lost => Err(DrainError::Lost),
        }
    }
}
