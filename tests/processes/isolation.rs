//! Other orders' waits beside trouble, with five real processes of one batch each, by the machine's clock.
//! `end_to_end/isolation.rs` measures the same in paused time.

use std::{collections::BTreeSet, num::NonZeroUsize, ops::Range};

use futures_util::{StreamExt, stream};
use serializer::local::{LocalFunction, QUEUE, function_pool::FunctionPool};
use tests::{prelude::*, source};
use tokio::sync::Mutex;

use super::{handlers::Processes, signal};

/// Keeps these tests and other long ones from delaying one another.
pub(super) static ALONE: Mutex<()> = Mutex::const_new(());

const SOURCES: &str = concat!(
    source!("test", "handler_timeout = '20s'"),
    source!("rated", "rate = '10/min'"),
    source!("hanging", "handler_timeout = '2s'"),
);

/// Lets five processes work, and returns their pool.
fn five(processes: &mut Processes) -> Arc<FunctionPool> {
    let (settings, _) = processes.function(&[]);
    let pool = Arc::new(FunctionPool::new(settings, NonZeroUsize::new(5).expect("it is not 0")));
    for _ in 0..5 {
        processes.local.feed(LocalFunction::Processes(pool.clone()));
    }
    pool
}

/// Appends `each` deliveries to each of `orders` orders, the first ones before the five processes start. Each delivery's
/// id begins with `what`. Returns the pool of the processes.
async fn backlog(processes: &mut Processes, source: &str, what: &str, orders: usize, each: usize) -> Arc<FunctionPool> {
    append(processes, source, what, orders, 0..1).await;
    let pool = five(processes);
    while processes.journal("started ").is_empty() {
        processes.env.sleep(Duration::from_millis(20)).await;
    }
    append(processes, source, what, orders, 1..each).await;
    pool
}

async fn append(processes: &Processes, source: &str, what: &str, orders: usize, numbers: Range<usize>) {
    let deliveries = numbers.flat_map(|number| (0..orders).map(move |order| (order, number)));
    let appended = stream::iter(deliveries).for_each_concurrent(16, async |(order, number)| {
        let id = format!("{what}-{order}-{number}");
        processes.append_from(source, &format!("{source}/{what}-{order}"), &id).await;
    });
    appended.await;
}

/// The numbers of other deliveries that were appended, and that started only after more than one second or more
/// than three.
#[derive(Debug, Default)]
struct OthersWaits {
    all: usize,
    over_one: BTreeSet<usize>,
    over_three: BTreeSet<usize>,
}

impl OthersWaits {
    fn are_short(&self) -> bool {
        self.over_one.len() * 2 < self.all && self.over_three.len() * 20 < self.all
    }
}

/// Appends one delivery to each of ten other orders a second, and watches when they start.
async fn others(processes: &Processes, seconds: usize, mut each_second: impl FnMut(usize)) -> OthersWaits {
    let mut waits = OthersWaits::default();
    let mut appended = Vec::new();
    for number in 0..10 * (seconds + 3) {
        if number % 10 == 0 {
            each_second(number / 10);
        }
        if number < 10 * seconds {
            appended.push(processes.env.monotonic());
            processes.append(&format!("test/other-{number}"), &format!("other-{number}")).await;
        }
        processes.env.sleep(Duration::from_millis(100)).await;
        let started: BTreeSet<String> = processes.journal("started other-").into_iter().collect();
        for (number, since) in appended.iter().enumerate().filter(|(number, _)| !started.contains(&number.to_string()))
        {
            let waited = (processes.env.monotonic() - *since).as_secs();
            if waited >= 1 {
                waits.over_one.insert(number);
            }
            if waited >= 3 {
                waits.over_three.insert(number);
            }
        }
    }
    waits.all = appended.len();
    waits
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_backlogs_leave_room_in_five_processes() {
    let _alone = ALONE.lock().await;
    let mut processes = Processes::start_with("backlogs", SOURCES).await;
    backlog(&mut processes, "test", "second", 60, 10).await;
    let waits = others(&processes, 5, |_| {}).await;
    let done = processes.journal("done second-").len();
    assert!(waits.are_short() && done < 600, "{waits:?}, {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_rated_orders_leave_room_in_five_processes() {
    let _alone = ALONE.lock().await;
    let mut processes = Processes::start_with("rated", SOURCES).await;
    backlog(&mut processes, "rated", "rated", 60, 10).await;
    let waits = others(&processes, 5, |_| {}).await;
    let done = processes.journal("done rated-").len();
    assert!(waits.are_short() && done < 600, "{waits:?}, {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_orders_leave_room_in_five_processes() {
    let _alone = ALONE.lock().await;
    let mut processes = Processes::start_with("hanging", SOURCES).await;
    backlog(&mut processes, "hanging", "hang", 100, 1).await;
    let waits = others(&processes, 5, |_| {}).await;
    assert!(waits.are_short(), "{waits:?}");
    assert!(processes.journal("started hang-").len() >= 3, "they hang");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_delay_other_orders_briefly() {
    let _alone = ALONE.lock().await;
    let mut processes = Processes::start_with("killed", SOURCES).await;
    let ids = backlog(&mut processes, "test", "second", 20, 10).await.process_ids();
    let mut killed = 0;
    let waits = others(&processes, 7, |second| {
        if second == 2 {
            let ids = ids.borrow().clone();
            killed = ids.len();
            ids.into_iter().for_each(|id| signal("-KILL", id.into()));
        }
    });
    let waits = waits.await;
    assert_eq!(killed, 5);
    assert!(waits.are_short(), "{waits:?}");
}

/// One order is leased and gets thirty webhooks a second. Ten other orders a second have one delivery each.
#[tokio::test(flavor = "multi_thread")]
async fn leased_order_occupies_none_of_five_processes() {
    let _alone = ALONE.lock().await;
    let mut processes = Processes::start("leased").await;
    five(&mut processes);
    let Parts { store, waker, .. } = processes.parts();
    let leases = Leases::new(store, "a program").waking(waker);
    let leased = key("test/leased");
    let work = async |_: Lease| {
        for number in 0..120 {
            processes.append("test/leased", &format!("leased-{number}")).await;
            if number % 3 == 0 {
                processes.append(&format!("test/other-{number}"), &format!("other-{number}")).await;
            }
            processes.env.sleep(Duration::from_millis(33)).await;
        }
        processes.env.sleep(Duration::from_secs(3)).await;
        Ok::<_, String>(processes.journal("started "))
    };
    let started = leases.run(&leased, Terms::default(), work).await.expect("the lease is kept");
    let is_other = |id: &&String| id.starts_with("other");
    assert_eq!((started.iter().filter(is_other).count(), started.len()), (40, 40), "while the lease was held");
    let counts = processes.local.engines.queues().until(QUEUE, |counts| counts.total() == 0).await;
    counts.expect("there is that queue");
    let done = processes.journal("done leased-");
    assert_eq!(done, (0..120).map(|number| number.to_string()).collect::<Vec<_>>());
}
