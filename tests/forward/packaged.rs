//! The packages' receivers on databases, and what they answer when something fails.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures_util::future::join_all;
use serializer::local::{Engines, TOTALS_TABLE, queue::QueueFaults};
use tests::{not_run::not_run, settle_counter::SettleCounter, testbed::TestBed};
use webhook_serializer::{
    Key,
    handler::{Context, Deliveries, Handler, Outcome},
    handlers::forward::Forward,
    protocol::{
        delivery::Delivery,
        entity::{FencingToken, Sequence},
    },
    sources::Sources,
    time::Env,
};

use crate::{
    SECRETS, bursts, handles_in_order_once_and_fenced, incoming,
    invoke::LosesAnswers,
    postgres::Postgres,
    receiver::{ReceiverProcess, packaged},
    sources,
};

/// A framework of each package.
const PACKAGES: [&str; 2] = ["express", "fastapi"];
const IDS_TABLE: &str = "applied-deliveries";

/// A database that receivers write to, and remember ids and tokens in.
enum Database {
    Postgres(Postgres),
    DynamoDb(Engines),
}

impl Database {
    /// Returns both, or why one cannot be run.
    async fn all() -> Result<[Self; 2], String> {
        let engines = Engines::start_with(None, QueueFaults::default()).await.expect("the engines start");
        Ok([Self::Postgres(Postgres::start().await?), Self::DynamoDb(engines)])
    }

    async fn receiver(&self, framework: &str) -> Result<ReceiverProcess, String> {
        let mut command = packaged(framework).await?;
        match self {
            Self::Postgres(postgres) => command.env("DATABASE_URL", postgres.url()),
            Self::DynamoDb(engines) => command
                .env("IDS_TABLE", IDS_TABLE)
                .env("AWS_REGION", "us-east-1")
                .env("AWS_ACCESS_KEY_ID", "local")
                .env("AWS_SECRET_ACCESS_KEY", "local")
                .env("AWS_ENDPOINT_URL_DYNAMODB", engines.dynamodb_url()),
        };
        Ok(ReceiverProcess::start(command, SECRETS).await)
    }

    /// Returns the last topic that was applied to an order, and how many deliveries were.
    async fn order(&self, order: &str) -> (String, u64) {
        match self {
            Self::Postgres(postgres) => {
                let query = format!("SELECT last_topic, deliveries FROM orders WHERE entity_key = '{order}'");
                let row = postgres.psql(&query).await.unwrap();
                let (topic, deliveries) = row.split_once('|').expect("the order has a row");
                (topic.to_owned(), deliveries.parse().unwrap())
            }
            Self::DynamoDb(_) => {
                let row = self.row(&Key::named(TOTALS_TABLE, "order", order)).await;
                (row.0.unwrap(), row.1.unwrap())
            }
        }
    }

    async fn newest_token(&self, order: &str) -> u64 {
        match self {
            Self::Postgres(postgres) => {
                let query = format!("SELECT token FROM newest_token WHERE entity_key = '{order}'");
                postgres.psql(&query).await.unwrap().parse().unwrap()
            }
            Self::DynamoDb(engines) => {
                let key = Key::named(IDS_TABLE, "id", format!("order {order}"));
                let parts = engines.connect(&Env::system(), None);
                let row = parts.store.get(&key, Duration::from_secs(5)).await.unwrap().expect("the order was seen");
                assert!(row.number("expires").is_some());
                row.number("token").unwrap()
            }
        }
    }

    async fn row(&self, key: &Key) -> (Option<String>, Option<u64>) {
        let Self::DynamoDb(engines) = self else { unreachable!("it has rows") };
        let parts = engines.connect(&Env::system(), None);
        let row = parts.store.get(key, Duration::from_secs(5)).await.unwrap().expect("it was written");
        (row.text("topic").map(str::to_owned), row.number("deliveries"))
    }
}

/// Runs the check with each database and a receiver of each package, at the same time.
async fn with_each(check: impl AsyncFn(&Database, &str) -> Result<(), String>) {
    let checked = join_all(PACKAGES.map(async |framework| {
        let [postgres, dynamodb] = Database::all().await?;
        let (one, other) = tokio::join!(check(&postgres, framework), check(&dynamodb, framework));
        one.and(other)
    }));
    for reason in checked.await.into_iter().filter_map(Result::err) {
        not_run(&reason);
    }
}

pub fn delivery(id: &str, topic: &str) -> Delivery {
    let mut incoming = incoming("shop", "shop/order/1", id, topic, &Env::system());
    if topic == "orders/broken" {
        incoming.body = "no JSON".into();
    }
    Delivery::detached(incoming, Sequence(1))
}

pub async fn post_to(url: &str, delivery: &Delivery, token: u64) -> Outcome {
    let forward = Forward::new(Arc::new(Sources::parse(&sources(url)).unwrap()));
    forward.handle(delivery, &context(token)).await.unwrap()
}

pub fn context(token: u64) -> Context {
    Context::detached(FencingToken(token), Duration::from_secs(20), Env::system())
}

async fn post(receiver: &ReceiverProcess, delivery: &Delivery, token: u64) -> Outcome {
    post_to(receiver.url(), delivery, token).await
}

fn failed() -> Outcome {
    Outcome::retry("the endpoint answered 500: it failed")
}

#[tokio::test(flavor = "multi_thread")]
async fn packaged_receivers_on_databases_keep_order_and_tokens() {
    with_each(async |database, framework| {
        handles_in_order_once_and_fenced(database.receiver(framework).await?).await;
        Ok(())
    })
    .await;
}

/// The receiver writes the order, the token and the id in one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_packaged_receiver_remembers_applied_deliveries() {
    with_each(remembers_applied_deliveries).await;
}

async fn remembers_applied_deliveries(database: &Database, framework: &str) -> Result<(), String> {
    const ORDER: &str = "shop/order/1";
    let created = delivery("1", "orders/create");
    let paid = delivery("2", "orders/paid");
    let broken = delivery("3", "orders/broken");

    let receiver = database.receiver(framework).await?;
    assert_eq!(post(&receiver, &created, 10).await, Outcome::Done);
    assert_eq!(post(&receiver, &paid, 11).await, Outcome::Done);
    drop(receiver);

    let receiver = database.receiver(framework).await?;
    assert_eq!(post(&receiver, &paid, 12).await, Outcome::Done, "its answer was lost");
    let paid_twice = ("orders/paid".to_owned(), 2);
    assert_eq!(database.order(ORDER).await, paid_twice, "a repeat is acknowledged and changes nothing");
    let late = Outcome::retry("the endpoint answered 409: token 11 is older than the newest seen");
    assert_eq!(post(&receiver, &created, 11).await, late);

    // A failed effect leaves no id, but its token.
    for _ in 0..2 {
        assert_eq!(post(&receiver, &broken, 13).await, failed());
    }
    assert_eq!(database.order(ORDER).await, paid_twice);
    assert_eq!(database.newest_token(ORDER).await, 13);

    // Two starts with the same delivery run concurrently, and one of them applies it.
    let shipped = delivery("4", "orders/fulfilled");
    let (one, other) = tokio::join!(post(&receiver, &shipped, 14), post(&receiver, &shipped, 14));
    assert_eq!((one, other), (Outcome::Done, Outcome::Done));
    assert_eq!(database.order(ORDER).await, ("orders/fulfilled".to_owned(), 3));

    // One delivery of a list was applied before, when it came alone.
    let forward = Forward::new(Arc::new(Sources::parse(&bursts(receiver.url())).unwrap()));
    let [alone, new] = ["6", "7"].map(|id| {
        let incoming = incoming("bursts", "bursts/order/1", id, "orders/paid", &Env::system());
        Delivery::detached(incoming, Sequence(1))
    });
    assert_eq!(forward.handle(&alone, &context(1)).await.unwrap(), Outcome::Done);
    let list = Deliveries::detached(vec![alone, new]);
    assert_eq!(forward.handle_all(list, &context(2)).await.unwrap(), Outcome::Done);
    assert_eq!(database.order("bursts/order/1").await, paid_twice);
    Ok(())
}

/// Promise: a packaged receiver applies each delivery once, whatever answers are lost.
#[tokio::test(flavor = "multi_thread")]
async fn packaged_receivers_apply_once_whatever_is_lost() {
    with_each(applies_once_whatever_is_lost).await;
}

/// Four workers post six deliveries of each of six orders. Every third answer is lost.
async fn applies_once_whatever_is_lost(database: &Database, framework: &str) -> Result<(), String> {
    let receiver = database.receiver(framework).await?;
    let lossy = sources(receiver.url()).replace("attempts = 2", "attempts = 20");
    let mut testbed = TestBed::start_for(&lossy).await;
    let orders: Vec<String> = (0..6).map(|number| format!("shop/order/{number}")).collect();
    let inbox = testbed.inbox();
    for number in 0..6 {
        for order in &orders {
            inbox
                .append(&incoming("shop", order, &format!("{order}-{number}"), "orders/paid", testbed.env()))
                .await
                .unwrap();
        }
    }
    let settled = SettleCounter::default();
    for _ in 0..4 {
        let parts = testbed.parts();
        let handler = LosesAnswers { inner: Forward::new(testbed.sources()), answers: AtomicU64::default() };
        testbed.feed(testbed.drainer_on(parts.store, parts.waker, handler, Arc::new(settled.clone())));
    }
    settled.until(36).await;
    testbed.rest().await;
    assert_eq!(testbed.operator().all_parked().await.unwrap().len(), 0);
    for order in &orders {
        assert_eq!(database.order(order).await, ("orders/paid".to_owned(), 6), "{order}");
    }
    Ok(())
}

async fn with_each_on_postgres(check: impl AsyncFn(Postgres, ReceiverProcess)) {
    for framework in PACKAGES {
        let started = async {
            let database = Database::Postgres(Postgres::start().await?);
            let receiver = database.receiver(framework).await?;
            Ok::<_, String>((database, receiver))
        };
        match started.await {
            Ok((Database::Postgres(postgres), receiver)) => check(postgres, receiver).await,
            Ok(_) => unreachable!("it is on Postgres"),
            Err(reason) => not_run(&reason),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn database_error_caught_in_apply_is_no_success() {
    with_each_on_postgres(async |postgres, receiver| {
        assert_eq!(post(&receiver, &delivery("1", "orders/caught"), 7).await, failed());
        assert_eq!(postgres.psql("SELECT count(*) FROM applied").await.unwrap(), "0");
        assert_eq!(postgres.psql("SELECT token FROM newest_token").await.unwrap(), "7");
    })
    .await;
}

/// Promise: a lost connection to the database ends no receiver; while it cannot be reached, deliveries lose no attempt.
#[tokio::test(flavor = "multi_thread")]
async fn receiver_outlives_lost_database_connections() {
    with_each_on_postgres(async |postgres, receiver| {
        assert_eq!(post(&receiver, &delivery("1", "orders/cut"), 7).await, failed());
        assert_eq!(post(&receiver, &delivery("1", "orders/create"), 8).await, Outcome::Done);
        // A backend that is still ending could begin a transaction.
        let cut_all = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'receiver' \
                       AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        postgres.psql(cut_all).await.unwrap();
        // It costs the delivery no attempt.
        let unreachable = Outcome::unavailable("the endpoint answered 503: the database cannot be reached");
        loop {
            match post(&receiver, &delivery("2", "orders/paid"), 9).await {
                Outcome::Done => break,
                outcome => assert_eq!(outcome, unreachable),
            }
        }
        drop(postgres);
        // Its connections outlive the killed server for a moment.
        loop {
            match post(&receiver, &delivery("3", "orders/paid"), 10).await {
                outcome if outcome == unreachable => break,
                outcome => assert!([Outcome::Done, failed()].contains(&outcome), "{outcome:?}"),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_dynamodb_costs_no_attempt() {
    for framework in PACKAGES {
        let engines = Engines::start_with(None, QueueFaults::default()).await.expect("the engines start");
        let database = Database::DynamoDb(engines);
        let receiver = match database.receiver(framework).await {
            Ok(receiver) => receiver,
            Err(reason) => return not_run(&reason),
        };
        assert_eq!(post(&receiver, &delivery("1", "orders/create"), 7).await, Outcome::Done, "{framework}");
        drop(database);
        let unreachable = Outcome::unavailable("the endpoint answered 503: the database cannot be reached");
        assert_eq!(post(&receiver, &delivery("2", "orders/paid"), 8).await, unreachable, "{framework}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_read_before_receiver_is_refused_with_remedy() {
    let express = "the body was parsed before the receiver, as express.json() does";
    let middleware = "the body was read before the receiver, as a middleware";
    for (framework, remedy) in [("express", express), ("hono", express), ("fastapi", middleware), ("flask", middleware)]
    {
        let receiver = match packaged(framework).await {
            Ok(command) => ReceiverProcess::start(command, SECRETS).await,
            Err(reason) => return not_run(&reason),
        };
        let outcome = post_to(&format!("{}read", receiver.url()), &delivery("1", "orders/paid"), 7).await;
        let Outcome::Retry { error, .. } = outcome else { panic!("{framework}: {outcome:?}") };
        assert!(error.starts_with(&format!("the endpoint answered 500: {remedy}")), "{framework}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_parsed_by_fastapi_is_verified() {
    let receiver = match packaged("fastapi").await {
        Ok(command) => ReceiverProcess::start(command, SECRETS).await,
        Err(reason) => return not_run(&reason),
    };
    let url = format!("{}parsed", receiver.url());
    assert_eq!(post_to(&url, &delivery("1", "orders/paid"), 7).await, Outcome::Done);
}
