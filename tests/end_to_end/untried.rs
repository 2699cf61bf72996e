//! A delivery is given up only after a start of its own: neither a breaker's refusal nor another delivery's failure
//! counts.

use std::collections::BTreeSet;

use futures_util::future::join;
use tests::{prelude::*, source};
use webhook_serializer::handler::Deliveries;

const SECOND: Duration = Duration::from_secs(1);

const SOURCES: &str = concat!(
    source!("shop", "retry = { unavailable_for = '40s' }"),
    source!("hasty", "retry = { unavailable_for = '0s' }"),
    source!("several", "retry = { unavailable_for = '40s' }", "deliver = { up_to = 5 }"),
    source!("blocking", "retry = { unavailable_for = '40s' }", "on_failure = 'block'"),
    source!("strict", "retry = { attempts = 3, first = '1s', longest = '5s' }"),
    source!("well"),
);

struct EndedWorld {
    world: TestWorld,
    parked: BTreeSet<String>,
    /// The deliveries of which a handler was started, alone or in a group.
    started: BTreeSet<String>,
}

/// Appends deliveries to twelve orders of `source` and works with five workers, each with eight batches at once, until
/// the queue is empty.
async fn ended(
    source: &str,
    each: usize,
    answer: impl Fn(Duration) -> (Duration, Outcome) + Clone + Send + Sync + 'static,
) -> EndedWorld {
    let world = TestWorld::new().with_sources(SOURCES);
    let is_over = AtomicBool::new(false);
    let started = Arc::new(Mutex::new(BTreeSet::new()));
    let handler = GroupHandler { answer, started: started.clone() };
    let workers: Vec<_> = (0..5).map(|_| world.worker(handler.clone())).collect();
    let appended = async {
        for number in 0..12 * each {
            world.append_from(source, &format!("{source}/{}", number % 12), &number.to_string()).await;
            world.env.sleep(SECOND / 5).await;
        }
        is_over.store(true, Relaxed);
    };
    join(world.feed(&workers, 8, &is_over), appended).await;
    let mut parked = BTreeSet::new();
    for order in 0..12 {
        let rows = world.operator().parked(&key(&format!("{source}/{order}"))).await.expect("memory answers");
        parked.extend(rows.iter().map(|row| row.delivery().delivery_id().to_string()));
    }
    let started = started.lock().unwrap().clone();
    EndedWorld { world, parked, started }
}

#[derive(Clone)]
struct GroupHandler<A> {
    answer: A,
    started: Arc<Mutex<BTreeSet<String>>>,
}

impl<A: Fn(Duration) -> (Duration, Outcome) + Clone + Send + Sync + 'static> GroupHandler<A> {
    async fn start<'a>(&self, deliveries: impl Iterator<Item = &'a Delivery>, context: &Context) -> Outcome {
        self.started.lock().unwrap().extend(deliveries.map(|delivery| delivery.delivery_id().to_string()));
        let (takes, outcome) = (self.answer)(context.env().monotonic());
        context.env().sleep(takes).await;
        outcome
    }
}

impl<A: Fn(Duration) -> (Duration, Outcome) + Clone + Send + Sync + 'static> Handler for GroupHandler<A> {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.start(std::iter::once(delivery), context).await)
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        Ok(self.start(deliveries.iter(), context).await)
    }

    fn handles_all(&self, _: &str) -> bool {
        true
    }
}

fn down_for(time: Duration) -> impl Fn(Duration) -> (Duration, Outcome) + Clone + Send + Sync + 'static {
    move |now| match now < time {
        true => (Duration::from_millis(10), Outcome::unavailable("503")),
        false => (Duration::from_millis(10), Outcome::Done),
    }
}

#[tokio::test(start_paused = true)]
async fn outage_beyond_its_limit_parks_only_tried_deliveries() {
    for source in ["shop", "several"] {
        let ended = ended(source, 5, down_for(90 * SECOND)).await;
        assert!(ended.parked.is_subset(&ended.started), "{source}");
        assert_eq!(ended.started.len(), 60, "{source}");
        assert_eq!(ended.world.events.settled().len(), 60, "{source}");
    }
}

#[tokio::test(start_paused = true)]
async fn outage_of_a_moment_parks_only_tried_deliveries() {
    let ended = ended("hasty", 25, down_for(SECOND)).await;
    assert!(ended.parked.is_subset(&ended.started) && ended.parked.len() < 60, "{:?}", ended.parked.len());
    assert_eq!(ended.started.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn slow_endpoint_that_always_answers_parks_no_delivery() {
    let ended = ended("hasty", 7, |_| (3 * SECOND, Outcome::Done)).await;
    assert!(ended.world.events.held_back() > 0, "it seemed to hang");
    assert_eq!((ended.parked.len(), ended.world.applied().len()), (0, 84));
}

#[tokio::test(start_paused = true)]
async fn outage_blocks_no_order_at_an_untried_delivery() {
    let ended = ended("blocking", 5, down_for(90 * SECOND)).await;
    for order in 0..12 {
        let state = ended.world.state(&format!("blocking/{order}")).await;
        let is_empty = state.is_empty();
        let error = state.last_error.unwrap_or_default();
        assert!(is_empty || state.blocked.is_none() || error == "503", "{order}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn untried_delivery_shows_no_other_orders_error() {
    let world = TestWorld::new().with_sources(SOURCES);
    for order in 0..12 {
        world.append_from("shop", &format!("shop/{order}"), &order.to_string()).await;
    }
    let worker = world.worker(answering(|_, _| Outcome::unavailable("503")));
    let is_over = AtomicBool::new(false);
    assert!(world.env.within(4 * SECOND, world.feed(&[worker], 1, &is_over)).await.is_none());
    let started: BTreeSet<_> = world.started().into_iter().collect();
    let mut untried = 0;
    for order in 0..12 {
        let state = world.state(&format!("shop/{order}")).await;
        let is_tried = started.contains(&order.to_string());
        let error = state.last_error.unwrap_or_default();
        let is_expected = if is_tried { error == "503" } else { error.is_empty() || error.contains("not tried") };
        assert!(is_expected, "{order}, tried {is_tried}: {error}");
        untried += usize::from(!is_tried);
        assert_eq!(state.attempts, 0);
    }
    assert!(untried > 0);
}

/// A gateway answers 502 for 20 s, then the endpoint fails once.
#[tokio::test(start_paused = true)]
async fn starts_without_an_answer_use_no_attempts() {
    let world = TestWorld::new().with_sources(SOURCES);
    world.append_from("strict", "strict/a", "1").await;
    let failed = AtomicBool::new(false);
    let failed = Arc::new(failed);
    let handler = answering(move |_, context: &Context| match context.env().monotonic() {
        now if now < 20 * SECOND => Outcome::unanswered("502"),
        _ if !failed.swap(true, Relaxed) => Outcome::retry("500"),
        _ => Outcome::Done,
    });
    world.work(&[world.drainer(handler)]).await;
    assert_eq!(world.applied(), ["1"]);
    assert!(world.started().len() > 4, "{}", world.started().len());
}

/// The first source is down for longer than its limit. Then the second source is down for a while.
#[tokio::test(start_paused = true)]
async fn outage_of_one_source_counts_for_no_other() {
    let world = TestWorld::new().with_sources(SOURCES);
    world.append_from("shop", "shared/a", "1").await;
    world.append_from("several", "shared/a", "2").await;
    let second = Arc::new(AtomicU64::new(0));
    let handler = answering(move |delivery, _| match delivery.source().as_str() {
        "shop" => Outcome::unavailable("the shop is down"),
        _ if second.fetch_add(1, Relaxed) < 3 => Outcome::unavailable("down for a moment"),
        _ => Outcome::Done,
    });
    world.work(&[world.drainer(handler)]).await;
    assert_eq!(world.settlements("shared/a").await, [Settlement::Parked, Settlement::Applied]);
}
