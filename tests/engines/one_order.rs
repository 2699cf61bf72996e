//! Every sample of `events/` sent concurrently, with repeats; three providers share one order.

use serializer::{
    local::{
        handler_log::{Journal, Journaled, LoggedRun},
        samples::{self, ALL},
    },
    view::audit::AuditVerdict,
};
use tests::{prelude::*, settle_counter::SettleCounter};

const ONE_ORDER: &str = include_str!("../../events/one-order.toml");
const ORDER: &str = "shop/order/450789469";

/// Returns the samples' sources, three of them replaced by those of `events/one-order.toml`.
fn sources() -> String {
    let tables = |document: &'static str| {
        let tables = document.split("\n[sources.").skip(1);
        tables.map(|table| (table.split(']').next().expect("a name"), table)).collect::<BTreeMap<_, _>>()
    };
    let mut all = tables(samples::SOURCES);
    all.extend(tables(ONE_ORDER));
    all.into_values().map(|table| format!("[sources.{table}\n")).collect()
}

/// A sender with its webhooks, which it posts in sequence.
#[derive(Default)]
struct OrderedSender {
    webhooks: Vec<SignedWebhook>,
    sent: Vec<Sent>,
    /// The number of accepted webhooks, repeats included.
    accepted: usize,
}

impl OrderedSender {
    /// Posts each webhook, followed by its predecessor again. At the end, posts all of them again in reverse.
    async fn post(mut self, deployment: &LocalDeployment, journal: &Journal) -> Self {
        let once_more = |number: usize| [Some(number), number.checked_sub(1)].into_iter().flatten();
        let forwards = (0..self.webhooks.len()).flat_map(once_more);
        let mut posted = BTreeSet::new();
        for number in forwards.chain((0..self.webhooks.len()).rev()) {
            let webhook = &self.webhooks[number];
            let source = deployment.sources.get(&webhook.source).expect("a configured source");
            let is_new_each_time = matches!(&*source.provider_name, "adobe-commerce" | "mollie-classic");
            if !posted.insert(number) && is_new_each_time {
                continue; // Each of its requests is a delivery.
            }
            let sent = journal.now();
            let answer = deployment.post(webhook).await;
            assert_eq!(answer.status, 200, "{}: {}", webhook.source, answer.body);
            if answer.body == "{}" || answer.body.starts_with("{\"challenge\":") {
                continue; // A ping.
            }
            self.accepted += 1;
            let delivery_id = webhook.incoming.identity.delivery_id.as_sent().to_owned();
            if !self.sent.iter().any(|one| one.delivery_id == delivery_id) {
                let entity = webhook.incoming.entity.clone();
                self.sent.push(Sent { entity, delivery_id, sent, answered: Some(journal.now()) });
            }
        }
        self
    }
}

/// Promise: all providers' webhooks at once are applied once, or parked.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_all_senders_are_applied_once() {
    let settled = SettleCounter::default();
    let mut deployment = LocalDeployment::start_with_samples(&sources(), Arc::new(settled.clone())).await;
    let journal = Journal::new(deployment.env.clone());
    deployment.local.work(|_| Journaled::new(Slow(Duration::from_millis(20)), journal.clone()));

    let mut senders: BTreeMap<String, OrderedSender> = BTreeMap::new();
    for (name, event) in ALL {
        let webhook = samples::webhook(event, &deployment.sources, deployment.env.now()).expect(name);
        senders.entry(webhook.source.clone()).or_default().webhooks.push(webhook);
    }
    assert_eq!(senders.len(), deployment.sources.iter().count(), "every source sends");
    let posted = join_all(senders.into_values().map(|sender| sender.post(&deployment, &journal))).await;
    settled.until(posted.iter().map(|sender| sender.accepted).sum()).await;
    let parked = deployment.operator().all_parked().await.expect("the store answers");
    deployment.local.stop().await.expect("nothing had failed");

    let sent: Vec<Sent> = posted.into_iter().flat_map(|sender| sender.sent).collect();
    let (unrouted, routed): (Vec<&Sent>, Vec<&Sent>) =
        sent.iter().partition(|one| one.entity.as_str().ends_with("/unrouted"));
    let excused: BTreeSet<String> = unrouted.iter().map(|one| one.delivery_id.clone()).collect();
    let as_sent =
        |run: LoggedRun| LoggedRun { delivery_id: DeliveryId::new(run.delivery_id).as_sent().to_owned(), ..run };
    let runs: Vec<LoggedRun> = journal.runs().into_iter().map(as_sent).collect();
    let verdict = AuditVerdict::of(&sent, &runs, &excused);
    assert!(verdict.is_clean(), "{verdict}");
    assert_eq!(runs.len(), routed.len(), "each is started once");

    // Each webhook without an order is parked once.
    assert_eq!(parked.len(), unrouted.len());
    assert!(parked.iter().all(|one| excused.contains(one.delivery().delivery_id().as_sent())), "{parked:?}");
    let of_stripe: BTreeSet<&str> =
        unrouted.iter().filter(|one| one.entity.as_str() == "stripe/unrouted").map(|one| &*one.delivery_id).collect();
    assert!(of_stripe.contains("evt_1SpC8yExampleDev0disputed"), "{of_stripe:?}");

    let order = EntityKey::parse(ORDER).expect("a key");
    let of_order: Vec<&LoggedRun> = runs.iter().filter(|run| run.entity == order).collect();
    assert!(of_order.is_sorted_by_key(|run| run.sequence), "{of_order:?}");
    let count = |beginning: &str| of_order.iter().filter(|run| run.delivery_id.starts_with(beginning)).count();
    let [shopify, stripe, easypost] = ["example.myshopify.com/", "evt_3SmC8x", "evt_3a9c5d6e"].map(count);
    assert_eq!((shopify, stripe, easypost), (9, 2, 1), "{of_order:?}");
}
