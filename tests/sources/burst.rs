//! Many instances start at once and read their document from a service with a rate limit.

use tests::prelude::*;
use webhook_serializer::sources::SourcesDocument;

use crate::script::{ScriptedDocument, document};

/// Parameter Store's limit for an account, in reads a second.
const PARAMETERS: f64 = 40.0;

/// Secrets Manager's limit.
const SECRETS: f64 = 10_000.0;

/// A document behind a token bucket: reads above the rate fail.
#[derive(Clone)]
struct Throttling {
    env: Env,
    rate: f64,
    bucket: Arc<Mutex<Bucket>>,
}

struct Bucket {
    left: f64,
    at: Duration,
    reads: usize,
}

impl SourcesDocument for Throttling {
    fn read(&self) -> BoxFuture<'_, Result<String, String>> {
        let now = self.env.monotonic();
        let mut bucket = self.bucket.lock().expect("no one panics with it");
        let since = now.saturating_sub(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * self.rate).min(self.rate);
        bucket.at = now;
        bucket.reads += 1;
        let is_answered = bucket.left >= 1.0;
        if is_answered {
            bucket.left -= 1.0;
        }
        let answer = if is_answered { Ok(document(&[("shop", "c2VjcmV0")])) } else { Err("too many reads".to_owned()) };
        Box::pin(ready(answer))
    }
}

/// The result of a burst of instances that start at the same moment.
struct Burst {
    /// The time after which each instance had its sources, in ascending order.
    started: Vec<Duration>,
    /// How many times an instance gave up, after which Lambda restarted it.
    given_up: usize,
    reads: usize,
}

async fn burst(instances: usize, rate: f64) -> Burst {
    let world = TestWorld::new();
    let begun = world.env.monotonic();
    let bucket = Arc::new(Mutex::new(Bucket { left: rate, at: begun, reads: 0 }));
    let document = Throttling { env: world.env.clone(), rate, bucket: bucket.clone() };
    let started = join_all((0..instances).map(async |_| {
        let mut given_up = 0;
        loop {
            let document = Box::new(document.clone());
            match LiveSources::open(document, world.env.clone(), Arc::new(ScriptedDocument::default())).await {
                Ok(_) => return (world.env.monotonic() - begun, given_up),
                Err(_) => given_up += 1,
            }
        }
    }));
    let started = started.await;
    let given_up = started.iter().map(|(_, given_up)| given_up).sum();
    let mut started: Vec<_> = started.into_iter().map(|(after, _)| after).collect();
    started.sort_unstable();
    let reads = bucket.lock().expect("no one panics with it").reads;
    Burst { started, given_up, reads }
}

impl Burst {
    /// Returns how many instances had their sources within `seconds`.
    fn within(&self, seconds: u64) -> usize {
        self.started.iter().filter(|after| **after <= Duration::from_secs(seconds)).count()
    }
}

/// Promise: many functions can start at once despite Parameter Store's rate.
#[tokio::test(start_paused = true)]
async fn thousand_instances_start_within_thirty_seconds_despite_throttling() {
    let burst = burst(1_000, PARAMETERS).await;
    for seconds in [2, 4, 8, 16, 24] {
        let most = PARAMETERS as usize * (seconds as usize + 1);
        assert!(burst.within(seconds) * 10 >= most.min(1_000) * 8, "{} by {seconds} s", burst.within(seconds));
    }
    assert_eq!(burst.within(30), 1_000, "an instance starved");
    // Each waiting instance reads about once a second.
    assert!(burst.reads < 1_000 * 20, "{} reads", burst.reads);
    assert!(burst.given_up < 1_000 * 3, "{} gave up", burst.given_up);
}

#[tokio::test(start_paused = true)]
async fn three_hundred_instances_start_within_ten_seconds() {
    let burst = burst(300, PARAMETERS).await;
    assert_eq!(burst.given_up, 0);
    assert!(burst.started.last() <= Some(&Duration::from_secs(9)), "{:?}", burst.started.last());
}

#[tokio::test(start_paused = true)]
async fn thousand_instances_read_a_secret_without_waiting() {
    let burst = burst(1_000, SECRETS).await;
    assert_eq!((burst.within(0), burst.reads), (1_000, 1_000));
}
