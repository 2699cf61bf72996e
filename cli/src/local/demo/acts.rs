//! The acts themselves.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Result, ensure};
use webhook_serializer::{
    protocol::{entity::EntityKey, receipt::Settlement},
    time::Env,
};

use super::{Play, Script};
use crate::{
    local::samples::{SHOPIFY, STRIPE, Sample, WOOCOMMERCE},
    view::{
        audit::Sent,
        recording::{Happening, What},
    },
};

/// What the handlers do in the act of that name.
pub(super) fn script(act: &str) -> Script {
    let takes = match act {
        "burst" => Duration::from_millis(20),
        "killed" | "group" => Duration::from_millis(400),
        _ => Duration::from_millis(150),
    };
    match act {
        "retries" => Script { takes, fails: HashMap::from([("RA1", 2)]), ..Script::default() },
        "parked" => Script { takes, rejects: vec!["RA1"], ..Script::default() },
        _ => Script { takes, ..Script::default() },
    }
}

/// Plays the act of that name to its end.
pub(super) async fn play(act: &str, play: &mut Play<'_>) -> Result<()> {
    match act {
        "five" => five(play).await,
        "burst" => burst(play).await,
        "repeats" => repeats(play).await,
        "retries" => retries(play).await,
        "parked" => parked(play).await,
        "group" => group(play).await,
        _ => killed(play).await,
    }
}

/// One order and its webhooks: its number, its letter, its samples in order.
struct Order {
    number: u32,
    letter: String,
    samples: Vec<Sample>,
}

fn order(number: u32, letter: &str, samples: &[Sample]) -> Order {
    Order { number, letter: letter.to_owned(), samples: samples.to_vec() }
}

async fn five(play: &mut Play<'_>) -> Result<()> {
    play.send(vec![order(1001, "A", &SHOPIFY[..2]), order(1002, "B", &SHOPIFY[..3])], 1).await?;
    play.until_settled(5).await;
    Ok(())
}

async fn burst(play: &mut Play<'_>) -> Result<()> {
    let mut orders = Vec::new();
    for number in 0..40 {
        orders.push(order(2001 + number, &format!("S{number}-"), &SHOPIFY));
        orders.push(order(3001 + number, &format!("P{number}-"), &STRIPE));
        orders.push(order(4001 + number, &format!("W{number}-"), &WOOCOMMERCE));
    }
    play.send(orders, 1).await?;
    play.until_each_is_decided().await;
    Ok(())
}

async fn repeats(play: &mut Play<'_>) -> Result<()> {
    play.send(vec![order(5001, "A", &SHOPIFY[..3]), order(5002, "B", &SHOPIFY[..2])], 3).await?;
    play.until_settled(15).await;
    Ok(())
}

async fn retries(play: &mut Play<'_>) -> Result<()> {
    let orders =
        vec![order(6001, "A", &SHOPIFY[..3]), order(6002, "B", &SHOPIFY[..3]), order(6003, "C", &SHOPIFY[..2])];
    play.send(orders, 1).await?;
    play.until_settled(8).await;
    Ok(())
}

async fn parked(play: &mut Play<'_>) -> Result<()> {
    play.send(vec![order(7001, "A", &SHOPIFY[..3]), order(7002, "B", &SHOPIFY[..2])], 1).await?;
    play.until_settled(5).await;
    let operator = play.stagehand.operator();
    let entity = EntityKey::parse("shopify/order/7001")?;
    let parked = operator.parked(&entity).await?;
    ensure!(parked.len() == 1, "one delivery is parked, not {}", parked.len());
    operator.redrive(&parked[0], None).await?;
    play.until_settled(6).await;
    Ok(())
}

/// The first is at work by itself while the others come.
async fn group(play: &mut Play<'_>) -> Result<()> {
    let journal = play.stagehand.journal.clone();
    let before = journal.starts().len();
    let samples = SHOPIFY.map(|sample| sample.to("grouped"));
    play.send(vec![order(9001, "A", &samples[..1])], 1).await?;
    journal.until_started(before + 1).await;
    play.send(vec![order(9001, "A", &samples[1..])], 1).await?;
    play.until_settled(5).await;
    Ok(())
}

/// How long a dead worker's lease may still run when its successor is woken.
const LEASE_RUNS_OUT: Duration = Duration::from_millis(2200);

async fn killed(play: &mut Play<'_>) -> Result<()> {
    let journal = play.stagehand.journal.clone();
    let before = journal.starts().len();
    play.send(vec![order(8001, "A", &SHOPIFY[..3])], 1).await?;
    // The handler's own word: a start that is only told of may not have begun.
    journal.until_started(before + 2).await;
    play.stagehand.replace_workers();
    // Nobody looks while the lease runs; the next webhook finds it expired and wakes a successor.
    Env::system().sleep(LEASE_RUNS_OUT).await;
    play.send(vec![Order { samples: vec![SHOPIFY[3]], ..order(8001, "A", &[]) }], 1).await?;
    play.until_settled(4).await;
    Ok(())
}

/// How often a webhook is sent again that is answered 503: on a busy machine
/// hundreds at once may take longer than a sender's patience.
const SENT_AGAIN: u32 = 20;

impl Play<'_> {
    /// Sends orders side by side, each one's webhooks one after the other, each
    /// `copies` times.
    async fn send(&mut self, orders: Vec<Order>, copies: usize) -> Result<()> {
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
                    self.stagehand.story.call(webhook.incoming.identity.delivery_id.as_str(), &name);
                    (name, webhook)
                })
                .collect();
            let names = named.iter().map(|(name, _)| name.clone());
            self.orders.entry(order.letter.clone()).or_default().extend(names);
            named
        });
        let all: Vec<_> = all.collect();
        let stagehand = &*self.stagehand;
        let lanes = all.into_iter().map(async |webhooks| {
            let mut sent = Vec::new();
            for (_, webhook) in webhooks {
                let at = stagehand.journal.now();
                let mut answered = None;
                for _ in 0..copies {
                    let mut answer = stagehand.sender.post(&webhook).await?;
                    // As senders do: it says that it is not stored.
                    for _ in 0..SENT_AGAIN {
                        if answer.status != 503 {
                            break;
                        }
                        answer = stagehand.sender.post(&webhook).await?;
                    }
                    ensure!(answer.status == 200, "a sample was answered {}: {}", answer.status, answer.body);
                    answered.get_or_insert(stagehand.journal.now());
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

    /// Waits until each delivery was decided, which may have taken several places:
    /// one that is answered 503 is sent again, and may have been stored.
    async fn until_each_is_decided(&self) {
        let decided = |happening: &&Happening| matches!(happening.what, What::Settled(settlement) if settlement != Settlement::Void);
        let count = self.orders.values().map(Vec::len).sum();
        let names = |so_far: &[Happening]| {
            so_far.iter().filter(decided).map(|happening| happening.name.as_str()).collect::<HashSet<_>>().len()
        };
        self.stagehand.story.until(self.from, |so_far| names(so_far) >= count).await;
    }

    /// Waits until so many places were settled in this act.
    async fn until_settled(&self, count: usize) {
        let settled = |happening: &Happening| matches!(happening.what, What::Settled(settlement) if settlement != Settlement::Void);
        let from = self.from;
        self.stagehand
            .story
            .until(from, |so_far| so_far.iter().filter(|happening| settled(happening)).count() >= count)
            .await;
    }
}
