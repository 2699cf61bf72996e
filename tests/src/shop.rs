//! A shop with a local deployment and a console. Some of its deliveries fail until the cause is fixed.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use serializer::{
    console::{Console, MeteredConnection, SourcesReader, Watched},
    local::{
        LOOPBACK,
        samples::{self, ALL, SHOPIFY, STRIPE, Sample, WOOCOMMERCE},
    },
    view::recording::{EventKind, EventRecorder, RecordedEvent},
};
use webhook_serializer::{
    aws::{Parts, meter::Meter},
    handler::{Context, Handler, HandlerError, Outcome},
    protocol::{
        delivery::Delivery,
        entity::{DeliveryId, EntityKey, FencingToken, Identity, Sequence, SourceName},
        format::{FORMAT, attribute as a},
        keys::entity_row,
        receipt::{Receipt, Recent, Settlement},
        table::{Action, Condition, Write},
    },
    time::{Env, Timestamp},
};

use crate::deployment::LocalDeployment;

const SOURCES: &str = r#"
[sources.shopify]
provider = "shopify"
secrets = ["shopify-development-secret"]
handler = "shop"
retry = { attempts = 3, first = "300ms" }

[sources.stripe]
provider = "stripe"
secrets = ["whsec_stripe-development-secret"]
handler = "shop"
retry = { attempts = 3, first = "300ms" }

[sources.woocommerce]
provider = "woocommerce"
secrets = ["woocommerce-development-secret"]
handler = "shop"
retry = { attempts = 2, first = "300ms" }
on_failure = "block"
"#;

pub struct Shop {
    pub deployment: LocalDeployment,
    pub story: EventRecorder,
    pub console: Console,
    is_mended: Arc<AtomicBool>,
}

/// The shop's handler. It is slow enough to watch.
#[derive(Debug, Clone)]
struct WarehouseHandler {
    is_mended: Arc<AtomicBool>,
    pace: Duration,
}

impl Handler for WarehouseHandler {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let order: u32 = delivery.entity().as_str().rsplit('/').next().and_then(|id| id.parse().ok()).unwrap_or(0);
        context.env().sleep(self.pace * (1 + (order + delivery.sequence().0 as u32 * 3) % 5)).await;
        let is_mended = self.is_mended.load(SeqCst);
        Ok(match (delivery.source().as_str(), delivery.topic()) {
            _ if is_mended => Outcome::Done,
            ("shopify", "orders/paid") if order % 10 == 4 => {
                Outcome::Reject(format!("the warehouse knows no article {order}77"))
            }
            ("shopify", "fulfillments/create") if order % 10 == 6 && delivery.attempt() == 1 => {
                Outcome::retry("the carrier answered 503")
            }
            ("woocommerce", "order.updated") if order % 10 == 9 => Outcome::retry("the ledger is closed"),
            _ => Outcome::Done,
        })
    }
}

impl Shop {
    /// Opens a shop in which a delivery takes one to five times `pace`.
    pub async fn open(pace: Duration) -> Self {
        let story = EventRecorder::new(Env::system());
        let mut deployment = LocalDeployment::start_with_samples(SOURCES, Arc::new(story.clone())).await;
        let is_mended = Arc::new(AtomicBool::new(false));
        let warehouse = WarehouseHandler { is_mended: is_mended.clone(), pace };
        deployment.local.work(|_| warehouse.clone());
        let console = console(&deployment, Some(story.clone())).await;
        Self { deployment, story, console, is_mended }
    }

    pub fn env(&self) -> &Env {
        &self.deployment.env
    }

    /// Fixes the cause: from now on nothing fails.
    pub fn mend(&self) {
        self.is_mended.store(true, SeqCst);
    }

    /// Posts an order's webhooks in sequence.
    pub async fn send(&self, order: u32, samples: &[Sample]) {
        for sample in samples {
            let webhook = sample.of_order(&order.to_string(), &self.deployment.sources, self.deployment.env.now());
            assert_eq!(self.deployment.post(&webhook).await.status, 200);
        }
    }

    /// Opens a shop with ten orders, of which 1004 has a parked delivery and 1009 is blocked.
    pub async fn troubled(pace: Duration) -> Self {
        let shop = Self::open(pace).await;
        shop.trade(1000..1010).await;
        shop.until_parked("shopify/order/1004").await;
        shop.until_blocked().await;
        shop
    }

    /// Posts another webhook `orders/paid` of an order. In this webhook, the order is partly refunded.
    ///
    /// # Panics
    ///
    /// The webhook is not accepted.
    pub async fn pay_again(&self, order: u32) {
        let (_, event) = ALL.iter().find(|(name, _)| *name == "shopify-orders-paid.json").expect("a sample");
        let event = event.replace("450789469", &order.to_string()).replace("1da83e8a", &format!("again-{order}"));
        let event = event.replace(r#"financial_status\":\"paid"#, r#"financial_status\":\"partially_refunded"#);
        let webhook = samples::webhook(&event, &self.deployment.sources, self.deployment.env.now()).expect("a webhook");
        assert_eq!(self.deployment.post(&webhook).await.status, 200);
    }

    /// Posts the webhooks of each of `orders`. The last digit of an order's number decides which sender posts
    /// its webhooks, and which delivery fails: if the digit is 4, one is parked; if it is 9, the order is
    /// blocked.
    pub async fn trade(&self, orders: std::ops::Range<u32>) {
        let all = orders.map(async |order| {
            match order % 10 {
                1 | 5 | 8 => self.send(order, &STRIPE).await,
                2 | 9 => self.send(order, &WOOCOMMERCE).await,
                3 => self.send(order, &[SHOPIFY[0], SHOPIFY[0], SHOPIFY[1]]).await,
                _ => self.send(order, &SHOPIFY[..4]).await,
            };
        });
        futures_util::future::join_all(all).await;
    }

    /// Waits until `so` returns true for all recorded events.
    pub async fn until(&self, so: impl Fn(&[RecordedEvent]) -> bool) {
        self.story.until(0, so).await;
    }

    pub async fn until_parked(&self, order: &str) {
        self.until_all_parked(order, 1).await;
    }

    /// Waits until this many deliveries of the order were parked.
    pub async fn until_all_parked(&self, order: &str, count: usize) {
        let is_it =
            |one: &&RecordedEvent| one.entity.as_str() == order && one.what == EventKind::Settled(Settlement::Parked);
        self.until(|happenings| happenings.iter().filter(is_it).count() >= count).await;
    }

    /// Waits until an order is blocked.
    pub async fn until_blocked(&self) {
        self.until(|happenings| happenings.iter().any(|one| matches!(one.what, EventKind::Blocked(_)))).await;
    }
}

pub async fn console(deployment: &LocalDeployment, story: Option<EventRecorder>) -> Console {
    Console::start(watched(deployment, story), LOOPBACK, Some(0), "--port").await.expect("it starts")
}

/// Opens a console as on a stack, where reading has a price. Returns also the meter of what its refreshes read.
pub async fn metered_console(deployment: &LocalDeployment) -> (Console, Arc<Meter>) {
    let meter = Arc::new(Meter::default());
    let parts = deployment.local.engines.connect(&deployment.env, Some(meter.clone()));
    let store = parts.store.clone();
    let refreshes = MeteredConnection { operator: deployment.operator_over(parts), store, meter: meter.clone() };
    let watched = Watched { is_local: false, refreshes: Some(refreshes), ..watched(deployment, None) };
    (Console::start(watched, LOOPBACK, Some(0), "--port").await.expect("it starts"), meter)
}

fn watched(deployment: &LocalDeployment, story: Option<EventRecorder>) -> Watched {
    let sources = deployment.local.sources.clone();
    let Parts { store, .. } = deployment.local.engines.connect(&deployment.env, None);
    Watched {
        operator: deployment.operator(),
        store,
        env: deployment.env.clone(),
        option: " --local".to_owned(),
        is_local: true,
        refreshes: None,
        name: "the local run at http://127.0.0.1:9000".to_owned(),
        sources: SourcesReader::new(move || Box::pin(ready(Ok(Some(sources.current()))))),
        story,
        by: "ada".to_owned(),
    }
}

/// Writes the rows of `orders` orders, `shopify/order/{number}` from 100000 on. Each has twelve settled
/// deliveries and a waiting one.
pub async fn stock(deployment: &LocalDeployment, orders: u32) {
    use futures_util::{StreamExt, stream};
    let Parts { store, .. } = deployment.local.engines.connect(&deployment.env, None);
    let now = deployment.env.now();
    let rows = (0..orders).map(|number| {
        let entity = EntityKey::parse(&format!("shopify/order/{}", 100_000 + number)).expect("a key");
        let key = entity_row(&entity);
        let row = key.to_row().with(a::VERSION, FORMAT).with(a::TAIL, 13_u32).with(a::HEAD, 12_u32);
        let since = now.as_millis() - u64::from(number % 600) * 1000;
        let recent = (1..=12).fold(Recent::default(), |recent, place| {
            let delivery_id = DeliveryId::new(format!("{number}-{place}"));
            let source = SourceName::parse("shopify").expect("a name");
            let receipt = Receipt {
                sequence: Sequence(place),
                identity: Some(Identity { source, delivery_id, redrive: 0 }.hash()),
                settlement: Settlement::Applied,
                token: FencingToken(place),
                attempts: 1 + u32::from(place % 2 == 0),
                settled_at: Timestamp::from_millis(since - 1000 * (13 - place)),
                took: Some(Duration::from_millis(500)),
            };
            recent.with(receipt, Duration::from_secs(86_400))
        });
        let recent = recent.to_stored().expect("there is something");
        let row = row.with(a::TOKEN, 12_u32).with(a::PENDING_SINCE, since).with(a::RECENT, recent);
        Write { key, condition: Condition::Always, action: Action::Put(row) }
    });
    let table = store.table();
    let written = stream::iter(rows).map(|write| async move { table.write(&write).await.expect("it is written") });
    written.buffer_unordered(16).for_each(|_| async {}).await;
}
