//! Doing what a drain does next, one step after the other, while the lease is
//! kept.

mod commit;
mod fail;
mod health;
mod settle;
mod spill;
mod start;

use std::{ops::ControlFlow, time::Duration};

use futures_util::future::join;

use self::fail::Count;
use super::{
    DrainSlot, Drainer, InFlight, PATIENCE, Stopped, UNREADABLE,
    page::Page,
    plan::{Drain, HANDED_OVER, Memory, Moment, Ran, Step, Stop, stop},
};
use crate::{
    engine::{lease_renewer::LeaseRenewer, queue::WakeUp, store::StoreError},
    protocol::{
        delivery::Delivery,
        entity::Sequence,
        inbox::{Block, Failed, Void, Voided},
        lease::{Ended, HandOver, MarkHandOver, Release, ReleaseEmpty, Released, idle_purge_at},
        receipt::{Recent, Settlement},
        state::{BlockReason, EntityState},
        table::TableError,
    },
    sources::Found,
    telemetry::{Event, RequeueReason},
    time::{CLOCKS_APART, Nonce, Timestamp},
    traces::{DrainSpans, Written},
};

/// The first wait at a gap; doubles up to [`LONGEST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LONGEST_LOOK: Duration = Duration::from_millis(400);

/// Time kept free at the very end to let go, should what was begun in time not
/// have ended: a function that is stopped looks like one that vanished.
const LETTING_GO: Duration = Duration::from_secs(1);

/// Goes on, with this step where one follows, or is done with the entity.
type Turn = ControlFlow<(), Option<Step>>;

const GO_ON: Turn = Turn::Continue(None);

/// A drain that has the lease.
pub(super) struct Driver<'a> {
    drainer: &'a Drainer,
    renewer: LeaseRenewer,
    drain: Drain,
    /// What is known of the source of the delivery in front.
    source: Option<Found>,
    deadline: Duration,
    slot: &'a DrainSlot<'a>,
    in_flight: &'a InFlight,
    /// When the row was last seen, by the process's own clock.
    seen: Duration,
    /// Which places are known to be claimed, and since when, by that clock.
    claimed: (Sequence, Duration),
    /// When this drain is to let others have its slot.
    slice_ends: Duration,
    /// Once a handler was started for the place in front: when the next may
    /// start, by its source's rate, however this one ends.
    not_before: Option<Timestamp>,
    /// What is told of it to a collector of traces.
    spans: DrainSpans,
}

/// What the end of the function's time says of the store.
fn no_answer() -> StoreError {
    StoreError::Unavailable(TableError::Unknown("no answer in the function's time".into()))
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        drainer: &'a Drainer,
        renewer: LeaseRenewer,
        state: EntityState,
        deadline: Duration,
        slot: &'a DrainSlot<'a>,
        in_flight: &'a InFlight,
    ) -> Self {
        let seen = drainer.store.env().monotonic();
        let capacity = Recent::capacity(&state.entity);
        let memory = Memory { capacity, retention: drainer.settings.retention };
        Self {
            drainer,
            spans: DrainSpans::granted(&state.entity, renewer.lease().token()),
            renewer,
            claimed: (state.tail, seen),
            drain: Drain::granted(state, memory),
            source: None,
            deadline,
            slot,
            in_flight,
            seen,
            slice_ends: seen + drainer.settings.slice,
            not_before: None,
        }
    }

    /// Drains until it is over. `is_replaced`: the wake-up it came for has been
    /// replaced by a fresh one already.
    pub(super) async fn run(mut self, is_replaced: bool) -> Result<(), Stopped> {
        let token = self.renewer.lease().token();
        let entity = self.drain.state().entity.clone();
        let env = self.drainer.store.env().clone();
        let limit = self.drainer.now_left(self.deadline).saturating_sub(LETTING_GO);
        let ended = match env.within(limit, self.steps()).await {
            Some(Err(Stopped::Store(error))) => self.stop(error, is_replaced).await,
            Some(ended) => ended,
            None => self.stop(no_answer(), is_replaced).await,
        };
        if matches!(ended, Err(Stopped::Lost)) {
            self.drainer.observer.observe(&Event::Lost { entity: &entity, token });
        }
        ended
    }

    async fn steps(&mut self) -> Result<(), Stopped> {
        let (mut due, mut ran) = (None, None);
        loop {
            let step = match due.take() {
                Some(step) => step,
                None => {
                    ran = None;
                    self.not_before = None;
                    self.spans.ends();
                    self.drain.next(&self.moment(), self.source.as_ref())
                }
            };
            if let Some(outcome) = step.outcome() {
                self.spans.decides(outcome);
            }
            let taken = self.take(step, &mut ran).await;
            self.spans.decided(match &taken {
                // Only what was refused has a step of its own to follow; without a wake-up nothing is written.
                Ok(Turn::Continue(Some(_))) | Err(Stopped::WakeUp) => Written::Refused,
                Ok(_) => Written::Stands,
                Err(Stopped::Lost) => Written::Lost,
                Err(Stopped::Store(_)) => Written::InDoubt,
            });
            match taken? {
                Turn::Break(()) => return Ok(()),
                Turn::Continue(follows) => due = follows,
            }
        }
    }

    /// Takes a step. `ran` is the run that it follows, where it does.
    async fn take(&mut self, step: Step, ran: &mut Option<Ran>) -> Result<Turn, Stopped> {
        match step {
            Step::ReleaseEmpty => return self.release_empty().await,
            Step::Release => return self.release().await,
            Step::Block(reason) => return self.block(reason).await,
            Step::HandOver(delay, reason) => return self.hand_over(delay, reason).await,
            Step::AwaitGap => return self.await_gap().await,
            Step::Start { is_written, group } => return self.start(is_written, group, ran).await,
            Step::Settle(settlement) => return self.settle(settlement, None).await,
            Step::Apply => return self.settle(Settlement::Applied, ran.take()).await,
            Step::Commit(writes) => return self.commit(ran.as_ref().expect("it has run"), writes).await,
            Step::SetAside { attempts, error, carried } => return self.set_aside(attempts, &error, carried).await,
            Step::Retry { attempts, retries, one_by_one, wait, error, is_started } => {
                let ran = ran.as_ref().filter(|_| is_started);
                return self.retry(&Count { attempts, retries, one_by_one, error }, wait, ran).await;
            }
            Step::GiveUp(attempts, retries, error) => {
                return self.give_up(&Count { attempts, retries, one_by_one: None, error }).await;
            }
            Step::Wait(wait) => {
                let wait = self.drainer.store.env().sleep(wait);
                self.renewer.hold(wait).await?;
            }
            Step::ReadPage => {
                let (state, has_spilled) = (self.drain.state(), self.drain.has_spilled());
                let read = Page::read(&self.drainer.store, &state.entity, state.next(), state.tail, has_spilled);
                let page = self.renewer.hold(read).await??;
                self.drain.read(page);
            }
            Step::Void(sequence) => self.void(sequence).await?,
            Step::FindSource => {
                let (name, since) = (self.head().source().clone(), self.head().received_at());
                let find = self.drainer.sources.find(&name, since);
                self.source = Some(self.renewer.hold(find).await?);
            }
            Step::BeAlone(charged) => {
                let slot = self.slot;
                self.renewer.hold(slot.alone(charged)).await?;
            }
        }
        Ok(GO_ON)
    }

    /// The delivery in front.
    fn head(&self) -> &Delivery {
        self.drain.front().expect("asked for where a delivery was read").unpacked.head()
    }

    /// Stops for the store's sake. The lease is not left to run out: whoever
    /// took it over would have to suspect a delivery that did nothing.
    async fn stop(&mut self, error: StoreError, is_replaced: bool) -> Result<(), Stopped> {
        let entity = self.drain.state().entity.clone();
        tracing::error!(%entity, %error, "requeued");
        let (delay, reason) = match error {
            StoreError::Unavailable(_) => (self.drainer.settings.lease, RequeueReason::StoreOut),
            StoreError::Corrupt(_) | StoreError::Invalid(_) => (UNREADABLE, RequeueReason::Unreadable),
        };
        // A fresh wake-up is under way then, whatever becomes of the rest; what was in doubt may have ended the lease.
        match stop(is_replaced) {
            Stop::Release => {
                let _ = self.release().await;
            }
            Stop::HandOver => {
                let lease = self.renewer.lease().clone();
                let wake_up = WakeUp::under(&entity, lease.token());
                let announce = MarkHandOver { lease: &lease };
                let sent = self.drainer.requeue(&wake_up, delay, reason);
                let (_, sent) = self.renewer.hold(join(self.drainer.store.run(&announce, PATIENCE), sent)).await?;
                sent?;
                let _ = self.let_go(self.now() + delay).await;
            }
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.now(),
            left: self.drainer.now_left(self.deadline),
            is_alone: self.slot.is_alone(),
            is_spent: self.drainer.threads.are_spent(),
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

    /// When the row may go that is left idle, remembering this; `None`: never, or
    /// not while it is on hold.
    fn idle_purge_at(&self, recent: &Recent) -> Option<Timestamp> {
        if self.drain.state().hold.since().is_some() {
            return None;
        }
        idle_purge_at(&self.drain.state().entity, recent, self.now(), self.drainer.settings.retention)
    }

    /// For how long the next place has been claimed, at the least. What this
    /// drain has seen itself needs nobody else's clock; what others wrote later
    /// than that claim counts from a minute on. Too long a guess costs its ingest
    /// another claim, and nothing else.
    fn claimed_for(&mut self) -> Duration {
        let state = self.drain.state();
        if state.next() > self.claimed.0 {
            self.claimed = (state.tail, self.monotonic());
        }
        let seen = self.monotonic().saturating_sub(self.claimed.1);
        let newest_claim = state.last_claim.as_ref().and_then(Nonce::drawn_at);
        let told = [newest_claim, self.drain.behind()].into_iter().flatten().map(|at| self.now().since(at)).max();
        seen.max(told.unwrap_or_default().saturating_sub(CLOCKS_APART))
    }

    /// A place that was claimed and is not filled: its ingest is slow or dead.
    /// Waits until it has been claimed for longer than an append may take.
    async fn await_gap(&mut self) -> Result<Turn, Stopped> {
        let sequence = self.drain.state().next();
        let left = self.drainer.settings.gap.saturating_sub(self.claimed_for());
        let env = self.drainer.store.env();
        let give_up = env.monotonic() + left;
        let mut look = FIRST_LOOK;
        let store = &self.drainer.store;
        while env.monotonic() < give_up {
            if self.drainer.now_left(self.deadline) < super::MARGIN + look {
                return self.hand_over(HANDED_OVER, RequeueReason::OutOfTime).await;
            }
            self.renewer.hold(env.sleep(env.jittered(look))).await?;
            look = (look * 2).min(LONGEST_LOOK);
            if self.renewer.hold(store.item(&self.drain.state().entity, sequence, PATIENCE)).await??.is_some() {
                self.drain.filled();
                return Ok(GO_ON);
            }
        }
        let retention = self.drainer.settings.retention;
        Ok(Turn::Continue(Some(self.drain.gap_stays(self.now(), retention))))
    }

    async fn void(&mut self, sequence: Sequence) -> Result<(), Stopped> {
        let void = Void { entity: &self.drain.state().entity, sequence, purge_at: self.purge_at() };
        match self.renewer.hold(self.drainer.store.run(&void, PATIENCE)).await?? {
            Voided::Void => self.drain.voided(),
            Voided::Filled(_) => self.drain.filled(),
        }
        Ok(())
    }

    /// Stops the entity at the next place.
    async fn block(&mut self, reason: BlockReason) -> Result<Turn, Stopped> {
        let block = Block { lease: self.renewer.lease(), sequence: self.drain.state().next(), reason };
        match self.drainer.store.run(&block, PATIENCE).await? {
            Failed::Counted => self.blocked(reason, None),
            Failed::Lost => Err(Stopped::Lost),
        }
    }

    fn blocked(&self, reason: BlockReason, delivery: Option<&Delivery>) -> Result<Turn, Stopped> {
        self.drainer.observer.observe(&Event::Blocked { entity: &self.drain.state().entity, reason, delivery });
        Ok(Turn::Break(()))
    }

    /// A decision that stands is worth trying to write down for as long as the
    /// lease may be ours, and a little longer: the condition decides.
    fn patience(&self) -> Duration {
        self.renewer.left().max(PATIENCE)
    }

    /// Ends the lease with deliveries left, behind a fresh wake-up.
    async fn hand_over(&mut self, delay: Duration, reason: RequeueReason) -> Result<Turn, Stopped> {
        let wake_up = WakeUp::under(&self.drain.state().entity, self.renewer.lease().token());
        let due = self.now() + delay;
        self.renewer.hold(self.drainer.requeue(&wake_up, delay, reason)).await??;
        self.let_go(due).await
    }

    /// Ends the lease behind a wake-up that was sent under its token and is due then.
    async fn let_go(&mut self, due: Timestamp) -> Result<Turn, Stopped> {
        let hand_over = HandOver { lease: self.renewer.lease(), suspected: self.drain.state().is_suspect(), due };
        match self.drainer.store.run(&hand_over, self.patience()).await? {
            Ended::Ended(_) => Ok(Turn::Break(())),
            Ended::Lost => Err(Stopped::Lost),
        }
    }

    async fn release(&mut self) -> Result<Turn, Stopped> {
        match self.drainer.store.run(&Release { lease: self.renewer.lease() }, self.patience()).await? {
            Ended::Ended(_) => Ok(Turn::Break(())),
            Ended::Lost => Err(Stopped::Lost),
        }
    }

    async fn release_empty(&mut self) -> Result<Turn, Stopped> {
        let release =
            ReleaseEmpty { lease: self.renewer.lease(), purge_at: self.idle_purge_at(&self.drain.state().recent) };
        match self.drainer.store.run(&release, self.patience()).await? {
            Released::Released => Ok(Turn::Break(())),
            Released::Grown(state) => {
                self.drain.seen(state);
                Ok(GO_ON)
            }
            Released::Lost => Err(Stopped::Lost),
        }
    }
}
