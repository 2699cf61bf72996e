//! One turn after the other: decide the delivery at `head + 1`, settle it, go
//! on while there is something to do and time to do it.

mod fail;
mod health;
mod settle;

use std::{ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, join, select};

use super::{
    Drainer, Guest, MARGIN, PATIENCE, Stopped, UNREADABLE,
    acquire::SHORT,
    page::{Page, Read},
};
use crate::{
    engine::{keeper::Keeper, queue::WakeUp, run::run, store::StoreError},
    handler::{Canceller, Outcome},
    protocol::{
        attempt::OnFailure,
        delivery::{Age, Delivery, Item, Unpacked},
        entity::{EntityKey, IdentityHash, Sequence},
        inbox::{Block, Failed, MarkStart, Marked, Receipt, Void, Voided, WriteReceipt},
        lease::{AnnounceEnd, Ended, HandOver, Release, ReleaseEmpty, Released},
        state::{BlockReason, EntityState, Settlement, VANISHED_BEFORE_START},
        table::{Row, TableError},
    },
    sources::{Found, Source},
    telemetry::{Event, PutOffReason},
    time::{Nonce, Timestamp},
};

/// The first wait at a gap; doubles up to [`LONGEST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LONGEST_LOOK: Duration = Duration::from_millis(400);

/// A wake-up that comes before its lease has ended would be put off by what is
/// left of that.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// Time kept free at the very end to let go, should what was begun in time not
/// have ended: a function that is stopped looks like one that vanished.
const LETTING_GO: Duration = Duration::from_secs(1);

/// A start is written down within this time, or goes ahead without.
const MARKING: Duration = Duration::from_secs(2);

/// Clocks further apart than this make a place look long claimed that is not.
const CLOCKS_APART: Duration = Duration::from_secs(60);

/// Goes on with the next delivery, or is done with the entity.
type Turn = ControlFlow<()>;

/// A drain that has the lease.
pub(super) struct Turns<'a> {
    drainer: &'a Drainer,
    keeper: Keeper,
    state: EntityState,
    page: Page,
    deadline: Duration,
    guest: &'a Guest<'a>,
    /// Whether the receipt of what stood at `head` is known to be there.
    receipt_is_sure: bool,
    /// When the row was last seen, by the process's own clock.
    seen: Duration,
    /// Which places are known to be claimed, and since when, by that clock.
    claimed: (Sequence, Duration),
    /// When this drain is to let others have its slot.
    slice_ends: Duration,
    /// Once this turn has started a handler: when the next may start, by its
    /// source's rate, however this one ends.
    not_before: Option<Timestamp>,
}

/// A delivery that ran, or that was decided without running.
struct Ran {
    delivery: Arc<Delivery>,
    started_at: Option<Timestamp>,
    took: Option<Duration>,
}

impl Ran {
    /// Decided without running.
    fn not(delivery: Delivery) -> Self {
        Self { delivery: Arc::new(delivery), started_at: None, took: None }
    }
}

/// What the end of the function's time says of the store.
fn no_answer() -> StoreError {
    StoreError::Unavailable(TableError::Unknown("no answer in the function's time".into()))
}

impl<'a> Turns<'a> {
    pub(super) fn new(
        drainer: &'a Drainer,
        keeper: Keeper,
        state: EntityState,
        deadline: Duration,
        guest: &'a Guest<'a>,
    ) -> Self {
        let seen = drainer.store.surroundings().monotonic();
        let claimed = (state.tail, seen);
        Self {
            drainer,
            keeper,
            state,
            page: Page::default(),
            deadline,
            guest,
            receipt_is_sure: false,
            seen,
            claimed,
            slice_ends: seen + drainer.settings.slice,
            not_before: None,
        }
    }

    /// Takes turns until the drain is over. `is_replaced`: the wake-up it came
    /// for has been replaced by a fresh one already.
    pub(super) async fn run(mut self, is_replaced: bool) -> Result<(), Stopped> {
        let token = self.keeper.lease().token();
        let entity = self.state.entity.clone();
        let surroundings = self.drainer.store.surroundings().clone();
        let limit = self.drainer.now_left(self.deadline).saturating_sub(LETTING_GO);
        let ended = match surroundings.within(limit, self.turns()).await {
            Some(Err(Stopped::Store(error))) => self.stop(error, is_replaced).await,
            Some(ended) => ended,
            None => self.stop(no_answer(), is_replaced).await,
        };
        if matches!(ended, Err(Stopped::Lost)) {
            self.drainer.observer.observe(&Event::Lost { entity: &entity, token });
        }
        ended
    }

    /// Stops for the store's sake. The lease is not left to run out: whoever
    /// took it over would have to suspect a delivery that did nothing.
    async fn stop(&mut self, error: StoreError, is_replaced: bool) -> Result<(), Stopped> {
        let entity = self.state.entity.clone();
        tracing::error!(%entity, %error, "put off");
        let (delay, reason) = match error {
            StoreError::Unavailable(_) => (self.drainer.settings.lease, PutOffReason::StoreOut),
            StoreError::Corrupt(_) | StoreError::Invalid(_) => (UNREADABLE, PutOffReason::Unreadable),
        };
        // A fresh wake-up is under way then, whatever becomes of the rest; what was in doubt may have ended the lease.
        if is_replaced {
            // That one does not say this lease's token: nobody is to count on it as on one that does.
            let _ = self.release().await;
        } else {
            let lease = self.keeper.lease().clone();
            let wake_up = WakeUp::under(&entity, lease.token());
            let announce = AnnounceEnd { lease: &lease };
            let both = join(self.drainer.store.run(&announce, PATIENCE), self.drainer.put_off(&wake_up, delay, reason));
            let (_, sent) = self.keeper.hold(both).await?;
            sent?;
            let _ = self.let_go().await;
        }
        Ok(())
    }

    async fn turns(&mut self) -> Result<(), Stopped> {
        while self.turn().await?.is_continue() {}
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.drainer.store.surroundings().now()
    }

    fn monotonic(&self) -> Duration {
        self.drainer.store.surroundings().monotonic()
    }

    /// When the row was last seen, by the clock that others know.
    fn seen_at(&self) -> Timestamp {
        let ago = self.monotonic().saturating_sub(self.seen);
        Timestamp::from_millis(self.now().as_millis().saturating_sub(ago.as_millis() as u64))
    }

    fn purge_at(&self) -> Timestamp {
        self.now() + self.drainer.settings.retention
    }

    /// When an idle entity's row may go: later than any row of its inbox.
    fn idle_purge_at(&self) -> Option<Timestamp> {
        let kept = self.state.entity.is_kept_forever();
        (!kept).then(|| self.now() + self.drainer.settings.retention.mul_f64(1.1))
    }

    async fn turn(&mut self) -> Result<Turn, Stopped> {
        self.not_before = None;
        if self.state.is_empty() {
            return self.release_empty().await;
        }
        if self.state.blocked.is_some() {
            return self.release().await;
        }
        if self.state.suspect >= VANISHED_BEFORE_START {
            return self.block(BlockReason::Vanished).await;
        }
        let now = self.now();
        let left = |until: Option<Timestamp>| until.map_or(Duration::ZERO, |until| until.since(now));
        let (yielding, waiting) = (left(self.state.yield_until), left(self.state.retry_at));
        if !yielding.is_zero() {
            return self.hand_over(yielding, PutOffReason::Yielding).await;
        }
        if waiting > SHORT || self.drainer.now_left(self.deadline) < waiting + MARGIN && !waiting.is_zero() {
            return self.hand_over(waiting, PutOffReason::Retry).await;
        }
        if self.state.handover {
            return self.hand_over(Duration::ZERO, PutOffReason::Slice).await;
        }
        if !waiting.is_zero() {
            let wait = self.drainer.store.surroundings().sleep(waiting);
            self.keeper.hold(wait).await?;
        }
        if self.drainer.now_left(self.deadline) < MARGIN {
            return self.hand_over(HANDED_OVER, PutOffReason::OutOfTime).await;
        }
        if self.page.items.is_empty() {
            self.read_page().await?;
        }
        match self.page.items.pop_front() {
            None => self.gap().await,
            Some(Read { item: Item::Void(sequence), .. }) => self.settle_void(sequence).await,
            Some(Read { item: Item::Delivery(unpacked), row }) => self.deliver(*unpacked, row).await,
        }
    }

    async fn read_page(&mut self) -> Result<(), Stopped> {
        let also = self.unsure_receipt();
        let state = &self.state;
        let store = &self.drainer.store;
        let read = Page::read(store, &state.entity, state.next(), state.tail, also.as_ref());
        self.page = self.keeper.hold(read).await??;
        if also.is_some() {
            self.make_sure_of_receipt().await?;
        }
        Ok(())
    }

    /// The identity at `head`, where its holder may have died between settle
    /// and receipt.
    fn unsure_receipt(&self) -> Option<IdentityHash> {
        if self.receipt_is_sure {
            return None;
        }
        Receipt::owed(&self.state, Timestamp::from_millis(0)).map(|receipt| receipt.identity)
    }

    async fn make_sure_of_receipt(&mut self) -> Result<(), Stopped> {
        // One that says otherwise is of a holder that had lost its lease.
        let stands = |owed: &Receipt| {
            let known = self.page.receipts.get(&owed.identity);
            known.is_some_and(|known| known.sequence != owed.sequence || known.settlement == owed.settlement)
        };
        if let Some(owed) = Receipt::owed(&self.state, self.now())
            && !stands(&owed)
        {
            let entity = self.state.entity.clone();
            let write = WriteReceipt { entity: &entity, receipt: &owed, purge_at: self.purge_at() };
            let store = &self.drainer.store;
            self.keeper.hold(store.run(&write, PATIENCE)).await??;
            self.page.receipts.insert(owed.identity.clone(), owed);
        }
        self.receipt_is_sure = true;
        Ok(())
    }

    /// For how long the next place has been claimed, at the least. What this
    /// drain has seen itself needs nobody else's clock; what others wrote later
    /// than that claim counts from a minute on. Too long a guess costs its ingest
    /// another claim, and nothing else.
    fn claimed_for(&mut self) -> Duration {
        if self.state.next() > self.claimed.0 {
            self.claimed = (self.state.tail, self.monotonic());
        }
        let seen = self.monotonic().saturating_sub(self.claimed.1);
        let newest_claim = self.state.last_claim.as_ref().and_then(Nonce::drawn_at);
        let told = [newest_claim, self.page.behind].into_iter().flatten().map(|at| self.now().since(at)).max();
        seen.max(told.unwrap_or_default().saturating_sub(CLOCKS_APART))
    }

    /// A place that was claimed and is not filled: its ingest is slow or dead.
    /// Wait until it has been claimed for longer than an append may take, then
    /// give the place up.
    async fn gap(&mut self) -> Result<Turn, Stopped> {
        let sequence = self.state.next();
        let left = self.drainer.settings.gap.saturating_sub(self.claimed_for());
        let surroundings = self.drainer.store.surroundings();
        let give_up = surroundings.monotonic() + left;
        let mut look = FIRST_LOOK;
        let store = &self.drainer.store;
        while surroundings.monotonic() < give_up {
            if self.drainer.now_left(self.deadline) < MARGIN + look {
                return self.hand_over(HANDED_OVER, PutOffReason::OutOfTime).await;
            }
            self.keeper.hold(surroundings.sleep(surroundings.jittered(look))).await?;
            look = (look * 2).min(LONGEST_LOOK);
            if self.keeper.hold(store.item(&self.state.entity, sequence, PATIENCE)).await??.is_some() {
                self.page = Page::default();
                return Ok(Turn::Continue(()));
            }
        }
        if self.may_have_expired() {
            return self.block(BlockReason::Expired).await;
        }
        let void = Void { entity: &self.state.entity, sequence, purge_at: self.purge_at() };
        match self.keeper.hold(store.run(&void, PATIENCE)).await?? {
            Voided::Void => self.settle_void(sequence).await,
            Voided::Filled(_) => Ok(Turn::Continue(())),
        }
    }

    /// Whether what stood at `head + 1` may have been deleted by retention.
    fn may_have_expired(&self) -> bool {
        let half = self.drainer.settings.retention / 2;
        self.state.pending_since.is_some_and(|since| self.now().since(since) > half)
    }

    /// Stops the entity at the next place.
    async fn block(&mut self, reason: BlockReason) -> Result<Turn, Stopped> {
        let block = Block { lease: self.keeper.lease(), sequence: self.state.next(), reason };
        match self.drainer.store.run(&block, PATIENCE).await? {
            Failed::Counted => self.blocked(reason, None),
            Failed::Lost => Err(Stopped::Lost),
        }
    }

    fn blocked(&self, reason: BlockReason, delivery: Option<&Delivery>) -> Result<Turn, Stopped> {
        self.drainer.observer.observe(&Event::Blocked { entity: &self.state.entity, reason, delivery });
        Ok(Turn::Break(()))
    }

    async fn deliver(&mut self, unpacked: Unpacked, row: Row) -> Result<Turn, Stopped> {
        let head = unpacked.head();
        let identity = head.identity_hash().clone();
        let at_head = self.state.last_settled.as_ref().and_then(|last| last.identity.as_ref()) == Some(&identity);
        let known = self.page.receipts.get(&identity);
        match known {
            // A holder died between this delivery's receipt and its settle.
            Some(receipt) if receipt.sequence == head.sequence() => {
                let settlement = receipt.settlement;
                let ran = Ran::not(unpacked.head().clone());
                return self.settle_delivery(ran, settlement, None).await;
            }
            Some(_) => return self.settle_repeat(unpacked).await,
            None if at_head => return self.settle_repeat(unpacked).await,
            None => {}
        }
        let source = match self.keeper.hold(self.drainer.sources.find(head.source(), head.received_at())).await? {
            Found::Source(source) => Some(source),
            Found::Gone => None,
            // Ingest may have learned of it before this instance did.
            Found::Unknown => return self.hand_over(UNREADABLE, PutOffReason::UnknownSource).await,
        };
        let attempts = source.as_ref().map_or(1, |source| source.retry.attempts);
        if self.state.attempts >= attempts {
            // Counted by a take-over: running it once more could take this worker too.
            let error = self.state.last_error.clone().unwrap_or_default();
            let on_failure = source.map_or(OnFailure::Park, |source| source.on_failure);
            return self.give_up(unpacked, row, on_failure, &error).await;
        }
        if head.entity() == &EntityKey::unrouted(head.source()) {
            return self.park(unpacked, row, "its entity could not be found").await;
        }
        let Some(source) = source else {
            return self.park(unpacked, row, "its source is not configured any more").await;
        };
        if self.drainer.now_left(self.deadline) < source.handler_timeout + MARGIN {
            return self.hand_over(HANDED_OVER, PutOffReason::OutOfTime).await;
        }
        if self.state.is_suspect() {
            let (guest, charged) = (self.guest, self.state.attempts + self.state.suspect);
            self.keeper.hold(guest.alone(charged)).await?;
            if self.drainer.now_left(self.deadline) < source.handler_timeout + MARKING + MARGIN {
                return self.hand_over(HANDED_OVER, PutOffReason::OutOfTime).await;
            }
        }
        if self.drainer.threads.are_spent() {
            return self.hand_over(HANDED_OVER, PutOffReason::NoThread).await;
        }
        self.run_handler(unpacked, row, &source).await
    }

    async fn run_handler(&mut self, unpacked: Unpacked, row: Row, source: &Source) -> Result<Turn, Stopped> {
        let parts = unpacked.head().part_keys();
        let parts = if parts.is_empty() {
            Vec::new()
        } else {
            self.keeper.hold(self.drainer.store.get_many(&parts, PATIENCE)).await??
        };
        let mut delivery = match unpacked.clone().complete(&parts) {
            Ok(delivery) => delivery,
            Err(error) => return self.park(unpacked, row, &error.to_string()).await,
        };
        delivery.attempt = self.state.attempt();
        delivery.age = self.age_of(&delivery);
        if delivery.age == Age::Older {
            self.drainer.observer.observe(&Event::Inversion { delivery: &delivery });
        }
        let ticket = match self.admitted(source) {
            Ok(ticket) => ticket,
            Err(wait) => return self.hand_over(wait, PutOffReason::BreakerOpen).await,
        };
        let delivery = Arc::new(delivery);
        if self.state.is_suspect() {
            self.mark_start(delivery.sequence()).await?;
        }
        let token = self.keeper.lease().token();
        self.drainer.observer.observe(&Event::Started { delivery: &delivery, token });
        let started_at = self.now();
        self.not_before = source.rate.map(|rate| started_at + rate.interval());
        let started = self.monotonic();
        let surroundings = self.drainer.store.surroundings().clone();
        let (canceller, context) =
            Canceller::start(&source.handler, token, started + source.handler_timeout, surroundings.clone());
        let Drainer { threads, handler, isolation, .. } = self.drainer;
        let timed = run(threads, handler.clone(), *isolation, delivery.clone(), context);
        let ahead = self.ahead();
        // The next page is read meanwhile; a handler that is done does not wait for it.
        let both = async {
            match select(pin!(timed), pin!(ahead)).await {
                Either::Left((outcome, _)) => (outcome, None),
                Either::Right((ahead, timed)) => (timed.await, ahead),
            }
        };
        let (outcome, ahead) = self.keeper.hold(both).await?;
        // Tells one that blocks its thread and is late; what it still does is refused by its token.
        drop(canceller);
        // What went wrong there is met again when that page is needed.
        if let Some(Ok(ahead)) = ahead {
            self.page.extend(ahead);
        }
        let ran = Ran { delivery, started_at: Some(started_at), took: Some(self.monotonic().saturating_sub(started)) };
        let Some(outcome) = outcome else {
            // What did not start is no attempt.
            return self.hand_over(HANDED_OVER, PutOffReason::NoThread).await;
        };
        self.report(ticket, source, &outcome);
        match outcome {
            Outcome::Done => self.settle_delivery(ran, Settlement::Applied, Some(row)).await,
            Outcome::Commit(writes) => self.commit(ran, unpacked, row, source, writes).await,
            Outcome::Reject(error) => {
                self.state.attempts += 1;
                self.park(unpacked, row, &error).await
            }
            Outcome::Retry { after, error } | Outcome::Unavailable { after, error } => {
                self.failed(&ran.delivery, unpacked, row, source, after, &error).await
            }
        }
    }

    /// Writes a start down before it is made. Where the store does not say that
    /// it is written, it is made all the same: a start that is written and not
    /// made would be charged, one that is made and not written is not.
    async fn mark_start(&mut self, sequence: Sequence) -> Result<(), Stopped> {
        let lease = self.keeper.lease().clone();
        let mark = MarkStart { lease: &lease, sequence };
        match self.keeper.hold(self.drainer.store.run(&mark, MARKING)).await? {
            Ok(Marked::Marked) | Err(StoreError::Unavailable(_)) => Ok(()),
            Ok(Marked::Lost) => Err(Stopped::Lost),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the next page while the last delivery of this one is at work.
    fn ahead(&self) -> impl Future<Output = Option<Result<Page, StoreError>>> + use<'a> {
        let from = self.page.last().unwrap_or(self.state.next()).next();
        let wanted = self.page.items.is_empty() && from <= self.state.tail;
        let store = &self.drainer.store;
        let entity = self.state.entity.clone();
        let tail = self.state.tail;
        async move {
            if !wanted {
                return None;
            }
            Some(Page::read(store, &entity, from, tail, None).await)
        }
    }

    fn age_of(&self, delivery: &Delivery) -> Age {
        let Some(time) = delivery.event_time() else { return Age::Unknown };
        match self.state.newest_event_time.of(delivery.family()).map(|newest| time.cmp(&newest)) {
            None | Some(std::cmp::Ordering::Greater) => Age::Newer,
            Some(std::cmp::Ordering::Equal) => Age::SameTime,
            Some(std::cmp::Ordering::Less) => Age::Older,
        }
    }

    /// A decision that stands is worth trying to write down for as long as the
    /// lease may be ours, and a little longer: the condition decides.
    fn patience(&self) -> Duration {
        self.keeper.left().max(PATIENCE)
    }

    /// Ends the lease with deliveries left, behind a fresh wake-up.
    async fn hand_over(&mut self, delay: Duration, reason: PutOffReason) -> Result<Turn, Stopped> {
        let wake_up = WakeUp::under(&self.state.entity, self.keeper.lease().token());
        self.keeper.hold(self.drainer.put_off(&wake_up, delay, reason)).await??;
        self.let_go().await
    }

    /// Ends the lease behind a wake-up that was sent under its token.
    async fn let_go(&mut self) -> Result<Turn, Stopped> {
        let hand_over = HandOver { lease: self.keeper.lease(), suspected: self.state.is_suspect() };
        match self.drainer.store.run(&hand_over, self.patience()).await? {
            Ended::Ended(_) => Ok(Turn::Break(())),
            Ended::Lost => Err(Stopped::Lost),
        }
    }

    async fn release(&mut self) -> Result<Turn, Stopped> {
        match self.drainer.store.run(&Release { lease: self.keeper.lease() }, self.patience()).await? {
            Ended::Ended(_) => Ok(Turn::Break(())),
            Ended::Lost => Err(Stopped::Lost),
        }
    }

    async fn release_empty(&mut self) -> Result<Turn, Stopped> {
        let release = ReleaseEmpty { lease: self.keeper.lease(), purge_at: self.idle_purge_at() };
        match self.drainer.store.run(&release, self.patience()).await? {
            Released::Released => Ok(Turn::Break(())),
            Released::Grown(state) => {
                self.state = state;
                Ok(Turn::Continue(()))
            }
            Released::Lost => Err(Stopped::Lost),
        }
    }
}
