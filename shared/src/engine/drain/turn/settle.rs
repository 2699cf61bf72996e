//! A decision becomes the entity's: by a settle beside its receipt, or with the
//! handler's own writes in one transaction.

use std::time::Duration;

use super::{Ran, Turn, Turns};
use crate::{
    engine::{
        drain::{
            PATIENCE, Stopped,
            page::{Page, Read},
        },
        store::StoreError,
    },
    protocol::{
        delivery::{Item, Unpacked},
        entity::Sequence,
        inbox::{Decision, Receipt, Settle, SettleAndRelease, Settled, SettledAndReleased, WriteReceipt},
        lease::Lease,
        operation::Operation,
        state::{LastSettled, Settlement},
        table::{Row, Transacted, Write, Written},
    },
    sources::Source,
    telemetry::Event,
};

/// How long a worker goes by a row that it has not seen since. A commit does not
/// bring it, and somebody may have asked to be let in.
const SIGHT: Duration = Duration::from_secs(1);

impl Turns<'_> {
    pub(super) async fn settle_void(&mut self, sequence: Sequence) -> Result<Turn, Stopped> {
        let decision = Decision {
            sequence,
            settled: LastSettled { identity: None, settlement: Settlement::Void },
            newest_event_time: self.state.newest_event_time.clone(),
            pending_since: None,
            not_before: None,
        };
        self.settle(decision, None, None).await
    }

    pub(super) async fn settle_repeat(&mut self, unpacked: Unpacked) -> Result<Turn, Stopped> {
        let ran = Ran::not(unpacked.head().clone());
        self.settle_delivery(ran, Settlement::Repeat, None).await
    }

    /// What is decided by settling `ran` as `settlement`.
    fn decision(&self, ran: &Ran, settlement: Settlement) -> Decision {
        let delivery = &ran.delivery;
        let times = &self.state.newest_event_time;
        Decision {
            sequence: delivery.sequence(),
            settled: LastSettled { identity: Some(delivery.identity_hash().clone()), settlement },
            newest_event_time: match delivery.event_time() {
                Some(time) if settlement == Settlement::Applied => times.applied(delivery.family(), time),
                _ => times.clone(),
            },
            pending_since: Some(match self.page.items.front() {
                Some(Read { item: Item::Delivery(next), .. }) => next.head().received_at(),
                // What comes was claimed since.
                _ if self.state.tail == delivery.sequence() => self.seen_at(),
                _ => delivery.received_at(),
            }),
            not_before: self.not_before,
        }
    }

    /// The write that settles and goes on; where the slice is over, only to hand
    /// over.
    fn settle_under<'l>(&self, lease: &'l Lease, decision: &'l Decision) -> Settle<'l> {
        let hands_over = self.monotonic() >= self.slice_ends && self.state.tail > decision.sequence;
        Settle { lease, decision, now: self.now(), length: self.keeper.length(), hands_over }
    }

    /// Settles, with a receipt where `row`, the delivery's, is given.
    pub(super) async fn settle_delivery(
        &mut self,
        ran: Ran,
        settlement: Settlement,
        row: Option<Row>,
    ) -> Result<Turn, Stopped> {
        let decision = self.decision(&ran, settlement);
        let receipt = row
            .map(|_| Receipt::of(&ran.delivery, settlement, self.keeper.lease().token(), ran.started_at, self.now()));
        self.settle(decision, Some(&ran), receipt).await
    }

    /// Settles, the receipt beside it. The receipt must have landed before
    /// anything else is settled.
    ///
    /// That of a parked delivery is written behind its settle: a holder that
    /// has lost its lease must not leave word of having set aside what another
    /// applies. Having applied it, it may: whoever applies it again does so by
    /// the same right.
    async fn settle(
        &mut self,
        decision: Decision,
        ran: Option<&Ran>,
        receipt: Option<Receipt>,
    ) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let entity = self.state.entity.clone();
        let purge_at = self.purge_at();
        let with_receipt = receipt.is_some();
        let write_receipt = async {
            match &receipt {
                Some(receipt) => store.run(&WriteReceipt { entity: &entity, receipt, purge_at }, PATIENCE).await,
                None => Ok(()),
            }
        };
        let turn = if decision.settled.settlement == Settlement::Parked {
            let turn = self.settle_row(&decision).await?;
            write_receipt.await?;
            turn
        } else {
            let (turn, landed) = tokio::join!(self.settle_row(&decision), write_receipt);
            let turn = turn?;
            landed?;
            turn
        };
        if with_receipt {
            self.receipt_is_sure = true;
        }
        self.drainer.observer.observe(&Event::Settled {
            entity: &entity,
            sequence: decision.sequence,
            settlement: decision.settled.settlement,
            delivery: ran.map(|ran| &*ran.delivery),
            took: ran.and_then(|ran| ran.took),
        });
        if let (Some(ran), Some(receipt)) = (ran, receipt) {
            // A repeat of it may stand on this very page.
            self.page.receipts.insert(ran.delivery.identity_hash().clone(), receipt);
        }
        Ok(turn)
    }

    async fn settle_row(&mut self, decision: &Decision) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        if self.state.tail == decision.sequence {
            let lease = self.keeper.lease().clone();
            let last = SettleAndRelease { lease: &lease, decision, purge_at: self.idle_purge_at() };
            match store.run(&last, self.patience()).await? {
                SettledAndReleased::Released => return Ok(Turn::Break(())),
                SettledAndReleased::Grown(state) => self.state = state,
                SettledAndReleased::Lost => return Err(Stopped::Lost),
            }
        }
        let sent = self.monotonic();
        let lease = self.keeper.lease().clone();
        let settle = self.settle_under(&lease, decision);
        // Where the inbox turned out longer than this page, the next one is read beside the settle.
        let from = decision.sequence.next();
        let wanted = self.page.items.is_empty() && from <= self.state.tail;
        let ahead = async {
            if wanted { Some(Page::read(store, &self.state.entity, from, self.state.tail, None).await) } else { None }
        };
        let (settled, ahead) = tokio::join!(store.run(&settle, self.patience()), ahead);
        match settled? {
            Settled::Settled(lease, state) => {
                self.keeper.prolonged(lease, sent);
                self.state = state;
                self.seen = sent;
                if let Some(Ok(ahead)) = ahead {
                    self.page.extend(ahead);
                }
                Ok(Turn::Continue(()))
            }
            Settled::Lost => Err(Stopped::Lost),
        }
    }

    /// Settle, receipt and the handler's writes, together or not at all.
    pub(super) async fn commit(
        &mut self,
        ran: Ran,
        unpacked: Unpacked,
        row: Row,
        source: &Source,
        writes: Vec<Write>,
    ) -> Result<Turn, Stopped> {
        let entity = self.state.entity.clone();
        let lease = self.keeper.lease().clone();
        let decision = self.decision(&ran, Settlement::Applied);
        let receipt = Receipt::of(&ran.delivery, Settlement::Applied, lease.token(), ran.started_at, self.now());
        let settle = self.settle_under(&lease, &decision);
        let write_receipt = WriteReceipt { entity: &entity, receipt: &receipt, purge_at: self.purge_at() };
        let mut all = vec![settle.write(), write_receipt.deciding()];
        all.extend(writes);
        let token = self.drainer.store.surroundings().nonce();
        let sent = self.monotonic();
        let refusals = match self.drainer.store.transact(&all, token.as_str(), self.patience()).await {
            Ok(Transacted::Landed) => None,
            Ok(Transacted::Refused(refusals)) => Some(refusals),
            // What the handler wants to write can never be written: its own failure.
            Err(StoreError::Invalid(reason)) => {
                return self.failed(&ran.delivery, unpacked, row, source, None, &reason).await;
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(mut refusals) = refusals {
            // The settle's own judgement comes first: was it we, or is the lease lost?
            if let Some(Some(seen)) = refusals.first_mut().map(Option::take) {
                match settle.judge(Written::Refused(seen))? {
                    Settled::Settled(..) => {}
                    Settled::Lost => return Err(Stopped::Lost),
                }
            } else if let Some(Some(_)) = refusals.get(1) {
                // Settled before, at another place, and not seen when the page was read.
                return self.settle_repeat(unpacked).await;
            } else {
                let error = "a condition of the handler's own writes did not hold";
                return self.failed(&ran.delivery, unpacked, row, source, None, error).await;
            }
        }
        self.keeper.prolonged(lease.settled(), sent);
        self.receipt_is_sure = true;
        self.state = settle.applied(&self.state);
        self.drainer.observer.observe(&Event::Settled {
            entity: &entity,
            sequence: decision.sequence,
            settlement: Settlement::Applied,
            delivery: Some(&ran.delivery),
            took: ran.took,
        });
        self.page.receipts.insert(receipt.identity.clone(), receipt);
        if self.monotonic().saturating_sub(self.seen) > SIGHT {
            self.look_again().await?;
        }
        Ok(Turn::Continue(()))
    }

    /// Reads the row, which a commit does not bring.
    async fn look_again(&mut self) -> Result<(), Stopped> {
        let read = self.drainer.store.entity(&self.state.entity, PATIENCE);
        match self.keeper.hold(read).await?? {
            Some(state) if self.keeper.lease().is_mine(&state) => {
                self.state = state;
                self.seen = self.monotonic();
                Ok(())
            }
            _ => Err(Stopped::Lost),
        }
    }
}
