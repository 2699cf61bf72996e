//! One turn after the other: decide the delivery at `head + 1`, settle it, go
//! on while there is something to do and time to do it.

mod fail;
mod health;
mod settle;

use std::{ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};

use super::{
    Drainer, Guest, MARGIN, PATIENCE, Stopped,
    acquire::SHORT,
    page::{Page, Read},
};
use crate::{
    attempt::OnFailure,
    delivery::{Age, Delivery, Item, Unpacked},
    entity::{EntityKey, IdentityHash, Sequence},
    handler::{self, Canceller, Outcome},
    inbox::{BlockExpired, Failed, Receipt, Void, Voided, WriteReceipt},
    keeper::Keeper,
    lease::{Ended, Release, ReleaseEmpty, Released},
    rows::{BlockReason, EntityState, Settlement},
    sources::{Found, Source},
    store::StoreError,
    table::Row,
    telemetry::{Event, PutOffReason},
    time::Timestamp,
};

/// The first wait at a gap; doubles up to [`LONGEST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(25);
const LONGEST_LOOK: Duration = Duration::from_millis(400);

/// A wake-up that comes before its lease has ended would be put off by what is
/// left of that.
const HANDED_OVER: Duration = Duration::from_secs(1);

/// How long to keep off an inbox whose next row cannot be read: a newer version
/// is being deployed, or somebody has to look.
const UNREADABLE: Duration = Duration::from_secs(60);

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

impl<'a> Turns<'a> {
    pub(super) fn new(
        drainer: &'a Drainer,
        keeper: Keeper,
        state: EntityState,
        deadline: Duration,
        guest: &'a Guest<'a>,
    ) -> Self {
        let seen = drainer.store.surroundings().monotonic();
        Self {
            drainer,
            keeper,
            state,
            page: Page::default(),
            deadline,
            guest,
            receipt_is_sure: false,
            seen,
            not_before: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        let token = self.keeper.lease().token();
        let entity = self.state.entity.clone();
        let mut ended = self.turns().await;
        if let Err(Stopped::Store(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_)))) = &ended {
            // Not left to expire: the next delivery is not to be charged with what it is no fault of.
            tracing::error!(%entity, %error, "put off");
            ended = self.hand_over(UNREADABLE, PutOffReason::Unreadable).await.map(|_| ());
        }
        if matches!(ended, Err(Stopped::Lost)) {
            self.drainer.observer.observe(&Event::Lost { entity: &entity, token });
        }
        ended
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
        let now = self.now();
        let left = |until: Option<Timestamp>| until.map_or(Duration::ZERO, |until| until.since(now));
        let (yielding, waiting) = (left(self.state.yield_until), left(self.state.retry_at));
        if !yielding.is_zero() {
            return self.hand_over(yielding, PutOffReason::Yielding).await;
        }
        if waiting > SHORT || self.drainer.now_left(self.deadline) < waiting + MARGIN && !waiting.is_zero() {
            return self.hand_over(waiting, PutOffReason::Retry).await;
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

    /// A place that was claimed and is not filled: its ingest is slow or dead.
    /// Wait longer than an append may take, then give the place up.
    async fn gap(&mut self) -> Result<Turn, Stopped> {
        let sequence = self.state.next();
        let surroundings = self.drainer.store.surroundings();
        let give_up = surroundings.monotonic() + self.drainer.settings.gap;
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
            return self.block_expired(sequence).await;
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

    async fn block_expired(&mut self, sequence: Sequence) -> Result<Turn, Stopped> {
        let block = BlockExpired { lease: self.keeper.lease(), sequence };
        match self.drainer.store.run(&block, PATIENCE).await? {
            Failed::Counted => self.blocked(BlockReason::Expired, None),
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
            let (guest, charged) = (self.guest, self.state.attempts);
            self.keeper.hold(guest.alone(charged)).await?;
            if self.drainer.now_left(self.deadline) < source.handler_timeout + MARGIN {
                return self.hand_over(HANDED_OVER, PutOffReason::OutOfTime).await;
            }
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
        delivery.attempt = self.state.attempts + 1;
        delivery.age = self.age_of(&delivery);
        if delivery.age == Age::Older {
            self.drainer.observer.observe(&Event::Inversion { delivery: &delivery });
        }
        let ticket = match self.admitted(source) {
            Ok(ticket) => ticket,
            Err(wait) => return self.hand_over(wait, PutOffReason::BreakerOpen).await,
        };
        let delivery = Arc::new(delivery);
        let token = self.keeper.lease().token();
        self.drainer.observer.observe(&Event::Started { delivery: &delivery, token });
        let started_at = self.now();
        self.not_before = source.rate.map(|rate| started_at + rate.interval());
        let started = self.monotonic();
        let surroundings = self.drainer.store.surroundings().clone();
        let (canceller, context) =
            Canceller::start(&source.handler, token, started + source.handler_timeout, surroundings.clone());
        let handler = handler::run(self.drainer.handler.clone(), self.drainer.isolation, delivery.clone(), context);
        let timed = surroundings.within(source.handler_timeout, handler);
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
        self.report(ticket, source, outcome.as_ref());
        let ran = Ran { delivery, started_at: Some(started_at), took: Some(self.monotonic().saturating_sub(started)) };
        match outcome.unwrap_or_else(|| Outcome::retry("the handler's time was up")) {
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
        let entity = self.state.entity.clone();
        self.keeper.hold(self.drainer.put_off(&entity, delay, reason)).await??;
        self.release().await
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
