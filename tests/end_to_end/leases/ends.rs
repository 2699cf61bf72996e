//! How a lease ends: released, expired, lost, taken over, or released by force.

use std::future::pending;

use tests::prelude::*;
use webhook_serializer::leases::{Guard, KeyDisplay, LeaseError, RunError};

use super::{faulty, noted, subscription};

struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Returns the guard of a lease that expired, as in a frozen process, and the guard of the one that replaced it.
async fn taken_over() -> (TestWorld, Guard, Guard) {
    let world = TestWorld::new();
    let frozen = world.leases("the frozen").acquire(&subscription(), Terms::default()).await.unwrap();
    world.env.sleep(Duration::from_secs(20)).await;
    let other = world.leases("the other").acquire(&subscription(), Terms::at_once()).await.unwrap();
    (world, frozen, other)
}

#[tokio::test(start_paused = true)]
async fn work_stops_before_unrenewed_lease_expires() {
    let (world, table) = faulty(|call| if call.request == 1 { Fault::None } else { Fault::Silent });
    let dropped = Arc::new(AtomicU64::new(0));
    let witness = Dropped(dropped.clone());
    let began = world.env.monotonic();
    let work = |_| async move {
        let _witness = witness;
        pending::<Result<(), Infallible>>().await
    };
    let lost = world.leases("a test").run(&subscription(), Terms::default(), work).await.unwrap_err();
    assert!(matches!(lost, RunError::Lease(LeaseError::Lost)), "{lost}");
    assert_eq!((dropped.load(Relaxed), world.events.lost()), (1, 1));
    assert!(world.env.monotonic() - began <= Duration::from_secs(15));
    assert!(table.writes() > 1, "it was tried");
}

#[tokio::test(start_paused = true)]
async fn former_holders_write_after_take_over_is_refused() {
    let (world, mut frozen, other) = taken_over().await;
    assert!(other.lease().token() > frozen.lease().token());
    let before = world.memory.rows(&TableName::Entities);
    let check = frozen.lease().check();
    assert_eq!(frozen.hold(async { 1 }).await, Err(LeaseError::Lost), "nothing is begun");
    assert_eq!(frozen.extend().await, Err(LeaseError::Lost));
    let transaction = world.memory.transact(&[check, noted("late")], "a token").await.unwrap();
    assert!(matches!(transaction, webhook_serializer::protocol::table::Transacted::Refused(_)));
    assert_eq!(frozen.commit(vec![noted("late")]).await.map(|_| ()), Err(LeaseError::Lost));
    assert_eq!(world.memory.rows(&TableName::Entities), before);
    assert!(world.memory.rows(&TableName::Named("notes".into())).is_empty());
    other.release().await.unwrap();
}

/// Promise: lease and work end with the caller's time; a lost lease is never reported as success.
#[tokio::test(start_paused = true)]
async fn lease_is_released_before_callers_time_ends() {
    let (world, table) = faulty(|_| Fault::None);
    let began = world.env.now();
    let terms = Terms::default().within(Duration::from_secs(8));
    let work = async |_| pending::<Result<(), Infallible>>().await;
    let cut = world.leases("a function").run(&subscription(), terms, work).await.unwrap_err();
    assert!(matches!(cut, RunError::Lease(LeaseError::OutOfTime)), "{cut}");
    assert_eq!(world.env.now().since(began), Duration::from_secs(7), "a second is kept to release");
    assert_eq!(table.writes(), 2, "a lease that reaches the end needs no renewal");
    assert!(world.state("invoice_gen/SUB-1234").await.held.is_none());
    let guard = world.leases("a function").acquire(&subscription(), terms).await.unwrap();
    let until = world.state("invoice_gen/SUB-1234").await.held.unwrap().expires_at;
    assert_eq!(until.since(world.env.now()), Duration::from_secs(7));
    drop(guard);
    let began = world.env.now();
    let waits = terms.within(Duration::from_secs(12));
    let guard = world.leases("a function").acquire(&subscription(), waits).await.unwrap();
    let until = world.state("invoice_gen/SUB-1234").await.held.unwrap().expires_at;
    assert_eq!(until.since(began), Duration::from_secs(11));
    guard.release().await.unwrap();
}

/// Of the caller's time, a second is kept for the release.
#[tokio::test(start_paused = true)]
async fn slow_release_lands_before_callers_time_ends() {
    let (world, _) = faulty(|_| Fault::Slow(Duration::from_millis(400)));
    let terms = Terms::default().within(Duration::from_secs(8));
    let work = async |_| pending::<Result<(), Infallible>>().await;
    let cut = world.leases("a function").run(&subscription(), terms, work).await.unwrap_err();
    assert!(matches!(cut, RunError::Lease(LeaseError::OutOfTime)), "{cut}");
    assert!(world.state("invoice_gen/SUB-1234").await.held.is_none());
}

#[tokio::test(start_paused = true)]
async fn lease_of_dropped_guard_is_reported_and_expires() {
    let world = TestWorld::new();
    let leases = world.leases("a careless caller");
    drop(leases.acquire(&subscription(), Terms::default()).await.unwrap());
    assert_eq!(world.events.dropped(), 1);
    let began = world.env.monotonic();
    let guard = leases.acquire(&subscription(), Terms::default()).await.unwrap();
    assert_eq!((world.env.monotonic() - began).as_secs(), 15);
    assert_eq!(world.events.taken_over(), 1);
    guard.release().await.unwrap();
    assert_eq!(world.events.dropped(), 1);
}

/// Promise: `lease release --why` says who, when and why.
#[tokio::test(start_paused = true)]
async fn forced_release_records_operator_and_reason() {
    let world = TestWorld::new();
    let leases = world.leases("the stuck run");
    let guard = leases.acquire(&subscription(), Terms::default()).await.unwrap();
    let seen = leases.look(&subscription()).await.unwrap().unwrap();
    let freed = leases.force_release(&seen, "ops", "it hangs").await.unwrap().expect("it was that lease");
    assert!(!freed.is_held());
    assert_eq!(freed.by(KeyDisplay::Raw).as_deref(), Some("2026-01-01T00:00 ops: it hangs"));
    assert!(leases.force_release(&seen, "ops", "again").await.unwrap().is_none(), "it is not that lease any more");
    assert_eq!(guard.release().await, Err(LeaseError::Lost));
}

/// Other callers count the lease from the time that was written, however late the reply to that write
/// arrives.
#[tokio::test(start_paused = true)]
async fn lease_time_counts_from_sending_the_renewal() {
    let slow = Duration::from_millis(200);
    let (world, _) = faulty(move |_| Fault::Slow(slow));
    let mut guard = world.leases("a test").acquire(&subscription(), Terms::default()).await.unwrap();
    assert_eq!(guard.time_left(), Duration::from_secs(15) - slow);
    guard.extend().await.unwrap();
    assert_eq!(guard.time_left(), Duration::from_secs(15) - slow);
    guard.release().await.unwrap();

    let world = TestWorld::new();
    let terms = Terms::default().within(Duration::from_secs(10));
    let mut guard = world.leases("a test").acquire(&subscription(), terms).await.unwrap();
    world.env.sleep(Duration::from_secs(5)).await;
    guard.extend().await.unwrap();
    assert!(guard.time_left() <= Duration::from_secs(5), "{:?}", guard.time_left());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn acquire_with_time_limit_of_a_second_sends_no_request() {
    let (world, table) = faulty(|_| Fault::None);
    let terms = Terms::default().within(Duration::from_secs(1));
    let refused = world.leases("a test").acquire(&subscription(), terms).await.unwrap_err();
    assert_eq!((refused, table.requests()), (LeaseError::OutOfTime, 0));
}

#[tokio::test(start_paused = true)]
async fn release_of_lost_lease_is_reported_as_lost() {
    let (world, frozen, other) = taken_over().await;
    assert_eq!(frozen.release().await, Err(LeaseError::Lost));
    assert_eq!((world.events.lost(), world.events.dropped()), (1, 0));
    other.release().await.unwrap();
}
