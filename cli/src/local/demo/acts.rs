//! The acts of the demonstration: the webhooks that each act sends, and how its handler behaves.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Result, ensure};
use webhook_serializer::{
    protocol::{entity::EntityKey, receipt::Settlement},
    time::Env,
};

use super::{RunningAct, Scene, Script};
use crate::{
    local::samples::{SHOPIFY, STRIPE, Sample, WOOCOMMERCE},
    view::{
        audit::Sent,
        recording::{EventKind, RecordedEvent},
    },
};

pub(super) fn script(scene: Scene) -> Script {
    let takes = match scene {
        Scene::Burst => Duration::from_millis(20),
        Scene::Killed | Scene::Group => Duration::from_millis(400),
        Scene::Five | Scene::Repeats | Scene::Retries | Scene::Parked => Duration::from_millis(150),
    };
    match scene {
        Scene::Retries => Script { takes, fails: HashMap::from([("RA1", 2)]), ..Script::default() },
        Scene::Parked => Script { takes, rejects: vec!["RA1"], ..Script::default() },
        Scene::Five | Scene::Burst | Scene::Repeats | Scene::Group | Scene::Killed => {
            Script { takes, ..Script::default() }
        }
    }
}

pub(super) async fn run(scene: Scene, act: &mut RunningAct<'_>) -> Result<()> {
    match scene {
        Scene::Five => five(act).await,
        Scene::Burst => burst(act).await,
        Scene::Repeats => repeats(act).await,
        Scene::Retries => retries(act).await,
        Scene::Parked => parked(act).await,
        Scene::Group => group(act).await,
        Scene::Killed => killed(act).await,
    }
}

struct DemoOrder {
    number: u32,
    letter: String,
    samples: Vec<Sample>,
}

fn order(number: u32, letter: &str, samples: &[Sample]) -> DemoOrder {
    DemoOrder { number, letter: letter.to_owned(), samples: samples.to_vec() }
}

async fn five(act: &mut RunningAct<'_>) -> Result<()> {
    act.send(vec![order(1001, "A", &SHOPIFY[..2]), order(1002, "B", &SHOPIFY[..3])], 1).await?;
    act.until_settled(5).await;
    Ok(())
}

async fn burst(act: &mut RunningAct<'_>) -> Result<()> {
    let mut orders = Vec::new();
    for number in 0..40 {
        orders.push(order(2001 + number, &format!("S{number}-"), &SHOPIFY));
        orders.push(order(3001 + number, &format!("P{number}-"), &STRIPE));
        orders.push(order(4001 + number, &format!("W{number}-"), &WOOCOMMERCE));
    }
    act.send(orders, 1).await?;
    act.until_each_is_settled().await;
    Ok(())
}

async fn repeats(act: &mut RunningAct<'_>) -> Result<()> {
    act.send(vec![order(5001, "A", &SHOPIFY[..3]), order(5002, "B", &SHOPIFY[..2])], 3).await?;
    act.until_settled(15).await;
    Ok(())
}

async fn retries(act: &mut RunningAct<'_>) -> Result<()> {
    let orders =
        vec![order(6001, "A", &SHOPIFY[..3]), order(6002, "B", &SHOPIFY[..3]), order(6003, "C", &SHOPIFY[..2])];
    act.send(orders, 1).await?;
    act.until_settled(8).await;
    Ok(())
}

async fn parked(act: &mut RunningAct<'_>) -> Result<()> {
    act.send(vec![order(7001, "A", &SHOPIFY[..3]), order(7002, "B", &SHOPIFY[..2])], 1).await?;
    act.until_settled(5).await;
    let operator = act.deployment.operator();
    let entity = EntityKey::parse("shopify/order/7001")?;
    let parked = operator.parked(&entity).await?;
    ensure!(parked.len() == 1, "one delivery should be parked, but {} are", parked.len());
    operator.redrive(&parked[0], None).await?;
    act.until_settled(6).await;
    Ok(())
}

/// Sends webhooks to a source whose handler gets several deliveries at once. The first delivery runs alone while the
/// others arrive.
async fn group(act: &mut RunningAct<'_>) -> Result<()> {
    let journal = act.deployment.journal.clone();
    let before = journal.starts().len();
    let samples = SHOPIFY.map(|sample| sample.to("grouped"));
    act.send(vec![order(9001, "A", &samples[..1])], 1).await?;
    journal.until_started(before + 1).await;
    act.send(vec![order(9001, "A", &samples[1..])], 1).await?;
    act.until_settled(5).await;
    Ok(())
}

/// The wait after a worker dies until its lease has expired.
const LEASE_EXPIRES: Duration = Duration::from_millis(2200);

async fn killed(act: &mut RunningAct<'_>) -> Result<()> {
    let journal = act.deployment.journal.clone();
    let before = journal.starts().len();
    act.send(vec![order(8001, "A", &SHOPIFY[..3])], 1).await?;
    // The recording shows a start before the handler runs, so the wait uses the handlers' own log.
    journal.until_started(before + 2).await;
    act.deployment.replace_workers();
    // No wake-up arrives before the lease has expired. The wake-up of the next webhook arrives afterwards.
    Env::system().sleep(LEASE_EXPIRES).await;
    act.send(vec![DemoOrder { samples: vec![SHOPIFY[3]], ..order(8001, "A", &[]) }], 1).await?;
    act.until_settled(4).await;
    Ok(())
}

/// The largest number of times that a webhook is sent again after a 503. A busy machine may answer 503.
const RESENDS: u32 = 20;
const RESEND_PAUSE: Duration = Duration::from_secs(1);

impl RunningAct<'_> {
    /// Sends several orders concurrently, and the webhooks of each order one after the other. Each webhook is sent
    /// `copies` times.
    async fn send(&mut self, orders: Vec<DemoOrder>, copies: usize) -> Result<()> {
        let all = orders.into_iter().map(|order| {
            let already = self.orders.get(&order.letter).map_or(0, Vec::len);
            let number = order.number.to_string();
            let now = Env::system().now();
            let named: Vec<_> = order
                .samples
                .iter()
                .enumerate()
                .map(|(place, sample)| {
                    let webhook = sample.of_order(&number, self.sources, now);
                    let name = format!("R{}{}", order.letter, already + place + 1);
                    self.deployment.story.call(webhook.incoming.identity.delivery_id.as_str(), &name);
                    (name, webhook)
                })
                .collect();
            let names = named.iter().map(|(name, _)| name.clone());
            self.orders.entry(order.letter.clone()).or_default().extend(names);
            named
        });
        let all: Vec<_> = all.collect();
        let deployment = &*self.deployment;
        let lanes = all.into_iter().map(async |webhooks| {
            let mut sent = Vec::new();
            for (_, webhook) in webhooks {
                let at = deployment.journal.now();
                let mut answered = None;
                for _ in 0..copies {
                    let mut answer = deployment.sender.post(&webhook).await?;
                    // A sender sends a webhook again if the answer was 503.
                    for _ in 0..RESENDS {
                        if answer.status != 503 {
                            break;
                        }
                        Env::system().sleep(RESEND_PAUSE).await;
                        answer = deployment.sender.post(&webhook).await?;
                    }
                    ensure!(answer.status == 200, "a sample was answered {}: {}", answer.status, answer.body);
                    answered.get_or_insert(deployment.journal.now());
                }
                sent.push(Sent {
                    entity: webhook.incoming.entity.clone(),
                    delivery_id: webhook.incoming.identity.delivery_id.to_string(),
                    sent: at,
                    answered,
                });
            }
            anyhow::Ok(sent)
        });
        for sent in futures_util::future::try_join_all(lanes).await? {
            self.sent.extend(sent);
        }
        Ok(())
    }

    /// Waits until each delivery of the act is settled. A delivery may have several sequences: a webhook that was
    /// answered 503 may have been stored nevertheless, and is stored once more when it is sent again.
    async fn until_each_is_settled(&self) {
        let settled = |happening: &&RecordedEvent| matches!(happening.what, EventKind::Settled(settlement) if settlement != Settlement::Void);
        let count = self.orders.values().map(Vec::len).sum();
        let names = |so_far: &[RecordedEvent]| {
            so_far.iter().filter(settled).map(|happening| happening.name.as_str()).collect::<HashSet<_>>().len()
        };
        self.deployment.story.until(self.from, |so_far| names(so_far) >= count).await;
    }

    async fn until_settled(&self, count: usize) {
        let settled = |happening: &RecordedEvent| matches!(happening.what, EventKind::Settled(settlement) if settlement != Settlement::Void);
        let from = self.from;
        self.deployment
            .story
            .until(from, |so_far| so_far.iter().filter(|happening| settled(happening)).count() >= count)
            .await;
    }
}
