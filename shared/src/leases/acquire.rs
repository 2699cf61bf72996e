//! Waits for an exclusive lease.
//!
//! Most leases are free, so the first request is already the write that acquires the lease. If
//! the store refuses this write, the waiter reads the row from time to time, since a read costs a
//! fifth of a write. It writes again only once the lease looks free or expired.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    Guard, LeaseError, Leases, PATIENCE, RESERVE, Terms,
    wait::{WaitStep, seen_row, wait_step},
};
use crate::{
    engine::{
        lease_renewer::{LeaseLost, LeaseRenewer, judged_at},
        store::{ATTEMPT, StoreError},
    },
    protocol::{
        entity::EntityKey,
        keys::entity_row,
        lease::{Acquire, Acquired, LONGEST_YIELD, RequestYield, TakeOver},
        operation::Operation,
        state::{EntityState, Held, LeaseKind},
        table::{TableError, Written},
    },
    telemetry::Event,
    time::{Timestamp, backoff::Backoff},
};

/// The shortest interval between two polls, before jitter: about as long as a hand-over takes.
///
/// The interval grows to a tenth of the time waited so far. So the polls are few, and they add at most
/// a tenth to the wait.
const SOONEST: Duration = Duration::from_millis(20);
/// The longest interval between two polls. A longer interval would delay a person noticeably.
const LATEST: Duration = Duration::from_millis(500);

/// The largest factor that lengthens the poll interval while the store throttles.
const SLOWEST: u32 = 8;

/// The first and the last pause of [`Leases::withdraw`] between two reads.
const FIRST_WITHDRAWAL: Duration = Duration::from_millis(250);
const LAST_WITHDRAWAL: Duration = Duration::from_secs(4);

impl Leases {
    /// Acquires the lease of `key`, and waits for it as long as `terms` allow.
    ///
    /// Release the lease with [`Guard::release`]. If the guard is dropped instead, the lease lasts
    /// until it expires. If a worker has the lease, the worker is asked to yield after its current
    /// delivery. Several waiters get the lease in no particular order.
    ///
    /// If the future is dropped, or fails with [`LeaseError::Unreachable`], a request on its way may still be
    /// granted. A task of the current Tokio runtime then releases that lease as soon as it is seen. Without a
    /// runtime, or if the process ends, the lease expires after the length of `terms` (15 s by default).
    ///
    /// # Errors
    ///
    /// Returns an error if the lease was not granted: [`LeaseError::Contended`],
    /// [`LeaseError::OutOfTime`], [`LeaseError::Throttled`], [`LeaseError::Unreachable`] or
    /// [`LeaseError::Refused`].
    pub async fn acquire(&self, key: &EntityKey, terms: Terms) -> Result<Guard, LeaseError> {
        let withdrawal = Withdrawal { leases: self, unanswered: UnansweredRequest::default() };
        self.acquire_noting(key, terms, &withdrawal.unanswered).await
    }

    /// Acquires the lease as [`Leases::acquire`] does. If the function fails or is dropped, `unanswered` has the
    /// request that may still be granted.
    #[doc(hidden)]
    pub async fn acquire_noting(
        &self,
        key: &EntityKey,
        terms: Terms,
        unanswered: &UnansweredRequest,
    ) -> Result<Guard, LeaseError> {
        let began = self.store.env().monotonic();
        let end = terms.within.map_or(Duration::MAX, |left| began.saturating_add(left).saturating_sub(RESERVE));
        Wait {
            leases: self,
            key,
            length: terms.length,
            began,
            end,
            give_up: began.saturating_add(terms.wait),
            polls: 0,
            slowed: 1,
            unanswered,
        }
        .granted()
        .await
    }

    /// Releases the lease if an unanswered request for it was granted all the same, or is granted later. Ends when such
    /// a lease would have expired.
    #[doc(hidden)]
    pub async fn withdraw(&self, unanswered: &UnansweredRequest) {
        let Some(request) = unanswered.take() else { return };
        let env = self.store.env();
        let until = env.monotonic() + request.length;
        let mut tries = Backoff::within(request.length, env, FIRST_WITHDRAWAL, LAST_WITHDRAWAL);
        loop {
            match self.store.get(&entity_row(&request.entity), ATTEMPT).await {
                Ok(row) => {
                    if let Ok(Acquired::Granted(lease, state)) = request.judge(Written::Refused(row)) {
                        let now = env.monotonic();
                        let renewer = LeaseRenewer::start(&self.store, lease, &state, request.length, now, until).await;
                        if let Ok(renewer) = renewer {
                            // The lease expires if the store does not answer.
                            let _ = Guard::new(self.clone(), renewer, &state, until, now).release().await;
                        }
                        return;
                    }
                }
                Err(StoreError::Unavailable(_)) => {}
                Err(StoreError::Invalid(_) | StoreError::Corrupt(_)) => return,
            }
            if !tries.pause().await {
                return;
            }
        }
    }
}

/// A request for a lease to which no reply is known. The request may be granted after its caller has given up.
#[derive(Debug, Clone, Default)]
#[doc(hidden)]
pub struct UnansweredRequest(Arc<Mutex<Option<Acquire>>>);

impl UnansweredRequest {
    fn lock(&self) -> MutexGuard<'_, Option<Acquire>> {
        self.0.lock().expect("no one panics while holding this")
    }

    fn take(&self) -> Option<Acquire> {
        self.lock().take()
    }

    /// Returns whether a request has no known reply.
    pub fn is_some(&self) -> bool {
        self.lock().is_some()
    }
}

/// Withdraws an unanswered request when it is dropped.
struct Withdrawal<'a> {
    leases: &'a Leases,
    unanswered: UnansweredRequest,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if !self.unanswered.is_some() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let leases = self.leases.clone();
            let unanswered = self.unanswered.clone();
            runtime.spawn(async move { leases.withdraw(&unanswered).await });
        }
    }
}

struct Wait<'a> {
    leases: &'a Leases,
    key: &'a EntityKey,
    length: Duration,
    began: Duration,
    /// The time at which a granted lease must end, by the monotonic clock.
    end: Duration,
    give_up: Duration,
    polls: u32,
    slowed: u32,
    unanswered: &'a UnansweredRequest,
}

impl Wait<'_> {
    async fn granted(mut self) -> Result<Guard, LeaseError> {
        let mut asked: Option<Timestamp> = None;
        let mut request = self.request()?;
        let mut sent = self.monotonic();
        let mut answer = self.write(&request, &request).await?;
        loop {
            let now = judged_at(&answer, self.leases.store.env());
            answer = match wait_step(answer, now, asked) {
                WaitStep::Granted(lease, state) => {
                    let store = &self.leases.store;
                    let length = self.length;
                    let end = self.end;
                    match LeaseRenewer::start(store, lease, &state, length, sent, end).await {
                        Ok(renewer) => return Ok(self.guard(renewer, state)),
                        // A wrong clock had dated the lease's end too early, and another holder took over.
                        Err(LeaseLost) => self.look().await?.unwrap_or(Acquired::Empty),
                    }
                }
                WaitStep::Await { seen, held, asks } => {
                    self.pause(&held, &seen, asks.then_some(&mut asked)).await?;
                    self.look().await?.unwrap_or(Acquired::Held(seen))
                }
                WaitStep::TakeOver(seen) => {
                    // The request keeps its holder nonce, so that an earlier request that landed is recognised.
                    let now = self.leases.store.env().reached();
                    request = Acquire { now, length: self.length_from(now)?, ..request };
                    sent = self.monotonic();
                    let answer = self.write(&request, &TakeOver { request: request.clone(), seen }).await?;
                    if let Acquired::Granted(lease, _) = &answer {
                        self.leases.observer.observe(&Event::TakenOver { entity: self.key, token: lease.token() });
                    }
                    answer
                }
                // A worker was woken for the waiting deliveries, and takes its turn first.
                WaitStep::AwaitTurn(until) => {
                    self.await_turn(until).await?;
                    self.look().await?.unwrap_or(Acquired::Waiting { until, awaited: None })
                }
                WaitStep::Request => {
                    request = self.request()?;
                    sent = self.monotonic();
                    self.write(&request, &request).await?
                }
            };
        }
    }

    async fn write(
        &self,
        request: &Acquire,
        operation: &impl Operation<Outcome = Acquired>,
    ) -> Result<Acquired, LeaseError> {
        *self.unanswered.lock() = Some(request.clone());
        let answer = self.leases.store.run(operation, self.patience()).await;
        if !matches!(answer, Err(StoreError::Unavailable(_))) {
            self.unanswered.take();
        }
        answer.map_err(LeaseError::before)
    }

    fn guard(&self, renewer: LeaseRenewer, state: EntityState) -> Guard {
        let now = self.monotonic();
        self.leases.observer.observe(&Event::LeaseGranted {
            entity: self.key,
            token: renewer.lease().token(),
            waited: now.saturating_sub(self.began),
            polls: self.polls,
        });
        Guard::new(self.leases.clone(), renewer, &state, self.end, now)
    }

    fn now(&self) -> Timestamp {
        self.leases.store.env().now()
    }

    fn monotonic(&self) -> Duration {
        self.leases.store.env().monotonic()
    }

    fn length_from(&self, now: Timestamp) -> Result<Duration, LeaseError> {
        let left = self.end.saturating_sub(self.monotonic());
        let length = self.length.min(left);
        if left.is_zero() { Err(LeaseError::OutOfTime) } else { Ok(self.leases.store.env().lease_from(now, length)) }
    }

    fn request(&self) -> Result<Acquire, LeaseError> {
        let now = self.now();
        let length = self.length_from(self.now())?;
        let entity = self.key.clone();
        let holder = self.leases.store.env().nonce();
        let info = self.leases.info.clone();
        Ok(Acquire { entity, kind: LeaseKind::Exclusive, holder, info, now, length })
    }

    /// Returns how long to retry one request. The time suffices for at least one attempt.
    fn patience(&self) -> Duration {
        self.give_up.min(self.end).saturating_sub(self.monotonic()).clamp(ATTEMPT, PATIENCE)
    }

    /// Waits until the next poll. If `asked` is given, first asks the worker to yield, and stores in
    /// `asked` when that request expires. Fails with [`LeaseError::Contended`] if no time is left to
    /// wait.
    async fn pause(
        &mut self,
        held: &Held,
        seen: &EntityState,
        asked: Option<&mut Option<Timestamp>>,
    ) -> Result<(), LeaseError> {
        let left = self.give_up.min(self.end).saturating_sub(self.monotonic());
        if left.is_zero() {
            let by = seen.holder_info.as_ref().map(|by| by.as_str().to_owned());
            return Err(LeaseError::Contended { by: by.unwrap_or_default(), until: held.expires_at });
        }
        if let Some(asked) = asked {
            let now = self.now();
            let until = now + left.min(LONGEST_YIELD);
            *asked = Some(until);
            let ask = RequestYield { entity: self.key, now, until };
            // A request to yield may fail: another one is sent when this one would have expired.
            if let Err(StoreError::Invalid(reason)) = self.leases.store.run(&ask, ATTEMPT).await {
                return Err(LeaseError::Refused(reason));
            }
        }
        let waited = self.monotonic().saturating_sub(self.began);
        let pause = self.leases.store.env().jittered((waited / 10).clamp(SOONEST, LATEST) * self.slowed);
        // Around its end, the lease is only known to have expired once the store's next second has begun.
        let runs = Some(held.expires_at.since(self.now())).filter(|runs| !runs.is_zero());
        self.leases.store.env().sleep(pause.min(runs.unwrap_or(pause)).min(left)).await;
        Ok(())
    }

    /// Waits until the waiting deliveries' turn ends at `until`, or until the next poll if that is
    /// sooner.
    async fn await_turn(&self, until: Timestamp) -> Result<(), LeaseError> {
        let left = self.give_up.min(self.end).saturating_sub(self.monotonic());
        if left.is_zero() {
            return Err(LeaseError::Contended { by: "the waiting deliveries, whose turn it is,".into(), until });
        }
        let pause = until.since(self.now()).min(LATEST);
        self.leases.store.env().sleep(pause.min(left)).await;
        Ok(())
    }

    /// Reads the row. Returns `None` if the store did not answer or throttles, and time is left to
    /// try again. Throttling also lengthens the poll interval.
    async fn look(&mut self) -> Result<Option<Acquired>, LeaseError> {
        self.polls += 1;
        match self.leases.store.entity(self.key, ATTEMPT).await {
            Ok(state) => {
                self.slowed = 1;
                Ok(Some(seen_row(state, self.now())))
            }
            Err(StoreError::Unavailable(error)) if self.monotonic() < self.give_up.min(self.end) => {
                if error == TableError::Throttled {
                    self.slowed = (self.slowed * 2).min(SLOWEST);
                }
                Ok(None)
            }
            Err(error) => Err(LeaseError::before(error)),
        }
    }
}
