//! Chooses sample events that fit the sources, and gives those of one order the same id.

use anyhow::{Context, Result};
use serde_json::Value;
use webhook_serializer::{
    protocol::entity::EntityKey,
    providers::{self, Verified},
    sources::{Source, Sources},
    time::{Env, Timestamp},
};

use super::{
    StarterChoices,
    document::{shop, shop_order},
};
use crate::local::samples::{self, DevelopmentKeys, SignedWebhook};

/// The largest number of samples of one provider.
const MOST: usize = 3;

pub(super) struct StarterEvent {
    pub path: String,
    pub text: String,
    pub source: String,
    /// The key of the event's order.
    pub key: String,
}

struct Candidate {
    name: String,
    event: Value,
    source: String,
    key: EntityKey,
    happened_at: Option<Timestamp>,
}

/// Returns samples for each source, in the sequence of their events.
pub(super) fn events(choices: &StarterChoices, sources: &Sources) -> Result<Vec<StarterEvent>> {
    let order = format!("{}/order/", choices.key);
    let mut chosen = Vec::new();
    for provider in &choices.providers {
        let source = sources.get(provider).context("each provider has a source")?;
        let candidates: Vec<Candidate> = samples::of_provider(provider)
            .into_iter()
            .filter_map(|(name, event)| candidate(name, event, source, sources).transpose())
            .collect::<Result<_>>()?;
        chosen.extend(of_one_key(candidates, &order));
    }
    if let Some(id) = shared_id(choices, &chosen, &order) {
        for event in &mut chosen {
            rename(event, &id, &order, sources)?;
        }
    }
    chosen.sort_by_key(|event| (event.happened_at.is_none(), event.happened_at));
    let event = |(number, event): (usize, Candidate)| {
        Ok(StarterEvent {
            path: format!("events/{number:02}-{}", event.name),
            text: serde_json::to_string_pretty(&event.event)? + "\n",
            source: event.source,
            key: event.key.to_string(),
        })
    };
    (1..).zip(chosen).map(event).collect()
}

/// Returns the id of the order that the samples share, or an empty text if they share none.
pub(super) fn order_id<'a>(events: &'a [StarterEvent], choices: &StarterChoices) -> &'a str {
    let order = format!("{}/order/", choices.key);
    events.iter().find_map(|event| event.key.strip_prefix(&order)).unwrap_or_default()
}

/// Returns the sample for the source. Returns `None` if the sample is a ping, which is not stored, or names no entity.
fn candidate(name: &str, event: &str, source: &Source, sources: &Sources) -> Result<Option<Candidate>> {
    let mut event: Value = serde_json::from_str(event)?;
    let path = format!("/webhooks/{}", source.name);
    event["requestContext"]["http"]["path"] = path.as_str().into();
    event["rawPath"] = path.into();
    let webhook = signed(&event, sources)?;
    let headers: providers::Headers = webhook.headers.iter().cloned().collect();
    let headers = headers.with_query(webhook.query.clone().unwrap_or_default());
    let request = providers::Request { headers: &headers, body: &webhook.body };
    let verified = source.verify_with(request, &DevelopmentKeys, Env::system().now());
    let is_stored = verified == Ok(Verified::Delivery) && webhook.incoming.entity != EntityKey::unrouted(&source.name);
    Ok(is_stored.then(|| Candidate {
        name: name.to_owned(),
        event,
        source: source.name.to_string(),
        key: webhook.incoming.entity,
        happened_at: webhook.incoming.event_time,
    }))
}

fn signed(event: &Value, sources: &Sources) -> Result<SignedWebhook> {
    samples::webhook(&event.to_string(), sources, Env::system().now())
}

/// Returns the samples of the key that starts with `order`, else of the key with the most samples.
fn of_one_key(mut candidates: Vec<Candidate>, order: &str) -> Vec<Candidate> {
    let count = |key: &EntityKey| candidates.iter().filter(|other| other.key == *key).count();
    let weight = |candidate: &&Candidate| (candidate.key.as_str().starts_with(order), count(&candidate.key));
    let Some(key) = candidates.iter().max_by_key(weight).map(|candidate| candidate.key.clone()) else {
        return Vec::new();
    };
    candidates.retain(|candidate| candidate.key == key);
    candidates.sort_by_key(|event| (event.happened_at.is_none(), event.happened_at));
    candidates.truncate(MOST);
    candidates
}

/// Returns the order id that all samples of the shop's order get: the shop's own.
fn shared_id(choices: &StarterChoices, chosen: &[Candidate], order: &str) -> Option<String> {
    let id = |event: &Candidate| event.key.as_str().strip_prefix(order).map(str::to_owned);
    let of_shop = chosen.iter().filter(|event| Some(event.source.as_str()) == shop(choices)).find_map(id);
    of_shop.or_else(|| chosen.iter().find_map(id))
}

/// Gives the event's order another id, if the shop writes that id into the provider's objects.
fn rename(event: &mut Candidate, id: &str, order: &str, sources: &Sources) -> Result<()> {
    let Some(own) = event.key.as_str().strip_prefix(order) else { return Ok(()) };
    if own == id || !matches!(shop_order(&event.source), providers::ShopOrder::Copied { .. }) {
        return Ok(());
    }
    for field in ["body", "rawQueryString"] {
        if let Some(text) = event.event[field].as_str() {
            event.event[field] = text.replace(own, id).into();
        }
    }
    event.key = signed(&event.event, sources)?.incoming.entity;
    Ok(())
}
