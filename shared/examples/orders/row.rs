//! The row of an order, and the order of a row.
//!
//! | attribute | |
//! |---|---|
//! | `order` | the key: the entity key |
//! | `v` | the row's format |
//! | `revision` | how many deliveries it has seen |
//! | `state`, `payment`, `refund`, `fulfilment`, `life` | as words |
//! | `total` | what it costs: `48.20 USD` |
//! | `paid`, `refunded` | by currency: `{USD: 48.20}` |
//! | `incomplete` | there, if facts were left out |
//! | `views` | by source: what it told |
//! | `history` | the last deliveries, as lists without names, which would cost more than what they name |
//!
//! From `state` to `refunded` they are written for other readers of the table
//! and never read here: they follow from `views`.

use std::collections::BTreeMap;

use super::{
    amount::{Amount, Currency, Money, Totals},
    history::{Entry, Remark},
    news::{FactId, Parcel, PaymentFact, Snapshot},
    order::Order,
    state::{Dispute, Payment, Progress, State},
    view::{Told, View},
};
use crate::{
    protocol::{
        entity::{Sequence, SourceName},
        table::{Row, Value},
    },
    time::Timestamp,
};

/// How many deliveries an order's history goes back, where they fit in.
pub const HISTORY_ENTRIES: usize = 40;

/// The most bytes of a row, by DynamoDB's count and without its key, which has
/// up to 517 more. Every event writes the whole row, and in a transaction that
/// costs twice: 14 write units at the most. The history gives way. An order of
/// ten events has about 1500 bytes: 4 units.
pub const ROW_BYTES: usize = 6 * 1024;

/// The format that this version writes, and the newest it reads.
const FORMAT: u32 = 1;

/// Why a stored order cannot be used. It is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorruptOrder {
    /// Written by a newer version of this software.
    #[error("an order of format {0} was met, this version reads up to {FORMAT}: deploy the newer version everywhere")]
    Newer(u64),
    /// An attribute is absent, or not what is written there.
    #[error("an order has no readable attribute `{0}`")]
    Attribute(&'static str),
}

type Map = BTreeMap<String, Value>;

const HISTORY: &str = "history";

/// The row without its key.
pub(super) fn to_row(order: &Order) -> Row {
    without_history(order).with(HISTORY, Value::L(order.history.iter().map(entry).collect()))
}

pub(super) fn size_without_history(order: &Order) -> usize {
    without_history(order).size()
}

/// Drops the oldest deliveries until the rest fits.
pub(super) fn trim_history(order: &mut Order) {
    let mut room = ROW_BYTES.saturating_sub(size_without_history(order) + HISTORY.len() + Value::L(Vec::new()).size());
    let fits = |delivery: &&Entry| {
        let size = 1 + entry(delivery).size();
        room.checked_sub(size).map(|left| room = left).is_some()
    };
    let kept = order.history.iter().rev().take(HISTORY_ENTRIES).take_while(fits).count();
    order.history.drain(..order.history.len() - kept);
}

fn without_history(order: &Order) -> Row {
    let standing = order.standing();
    let views = order.views.iter().map(|(source, told)| (source.as_str().to_owned(), view(told))).collect();
    let mut row = Row::new()
        .with("v", FORMAT)
        .with("revision", order.revision)
        .with("state", order.state().as_str())
        .with("payment", standing.payment.as_str())
        .with("refund", standing.refund.as_str())
        .with("fulfilment", standing.fulfilment.as_str())
        .with("life", standing.life.as_str())
        .with("paid", totals(&order.paid()))
        .with("refunded", totals(&order.refunded()))
        .with("views", Value::M(views));
    if let Some(total) = order.total() {
        row.set("total", total.to_string());
    }
    if order.is_incomplete {
        row.set("incomplete", Value::Bool(true));
    }
    row
}

fn totals(totals: &Totals) -> Value {
    Value::M(totals.iter().map(|(currency, amount)| (currency.to_string(), amount.to_string().into())).collect())
}

fn time(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| time.as_millis().into())
}

fn view(view: &View) -> Value {
    fn facts<V>(facts: &BTreeMap<FactId, V>, value: impl Fn(&V) -> Value) -> Value {
        Value::M(facts.iter().map(|(id, fact)| (id.as_str().to_owned(), value(fact))).collect())
    }
    let parcel = |(at, parcel): &(Option<Timestamp>, Parcel)| Value::L(vec![time(*at), parcel.as_str().into()]);
    let payment = |payment: &PaymentFact| match payment {
        PaymentFact::Failed => FAILED.into(),
        PaymentFact::Succeeded(money) => money.to_string().into(),
    };
    let mut map: Vec<(&str, Value)> = vec![
        ("shown_paid", totals(&view.shown_paid)),
        ("payments", facts(&view.payments, payment)),
        ("refunds", facts(&view.refunds, |money| money.to_string().into())),
        ("parcels", facts(&view.parcels, parcel)),
        ("disputes", facts(&view.disputes, |dispute| dispute.as_str().into())),
    ];
    map.retain(|(_, value)| *value != Value::M(Map::new()));
    map.extend(view.newest.map(|at| ("newest", time(Some(at)))));
    map.extend(view.told.as_ref().map(|told| ("snapshot", snapshot(told))));
    map.extend(view.is_deleted.then_some(("deleted", Value::Bool(true))));
    Value::M(map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

const FAILED: &str = "failed";

fn snapshot(told: &Told) -> Value {
    let Snapshot { is_cancelled, refund, fulfilment, payment, total, refunded } = &told.snapshot;
    let mut map: Vec<(&str, Value)> = vec![
        ("at", time(told.at)),
        ("cancelled", Value::Bool(*is_cancelled)),
        ("refund", refund.as_str().into()),
        ("fulfilment", fulfilment.as_str().into()),
        ("payment", payment.as_str().into()),
        ("total", total.to_string().into()),
    ];
    map.extend(refunded.as_ref().map(|money| ("refunded", money.to_string().into())));
    Value::M(map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn entry(entry: &Entry) -> Value {
    Value::L(vec![
        entry.at.as_millis().into(),
        time(entry.event_time),
        entry.source.as_str().into(),
        entry.topic.as_str().into(),
        entry.delivery_id.as_str().into(),
        entry.sequence.0.into(),
        entry.from.map_or(Value::Null, |state| state.as_str().into()),
        entry.to.as_str().into(),
        entry.remark.as_str().into(),
    ])
}

/// Reads a row.
pub(super) fn from_row(row: &Row) -> Result<Order, CorruptOrder> {
    let corrupt = CorruptOrder::Attribute;
    match row.number("v") {
        Some(format) if format > u64::from(FORMAT) => return Err(CorruptOrder::Newer(format)),
        Some(_) => {}
        None => return Err(corrupt("v")),
    }
    let Some(Value::M(views)) = row.get("views") else { return Err(corrupt("views")) };
    let Some(Value::L(history)) = row.get(HISTORY) else { return Err(corrupt(HISTORY)) };
    let view = |(source, view): (&String, &Value)| Some((SourceName::parse(source).ok()?, read_view(view)?));
    Ok(Order {
        revision: row.number("revision").ok_or(corrupt("revision"))?,
        views: views.iter().map(view).collect::<Option<_>>().ok_or(corrupt("views"))?,
        is_incomplete: row.get("incomplete").is_some(),
        history: history.iter().map(read_entry).collect::<Option<_>>().ok_or(corrupt(HISTORY))?,
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::S(text) => Some(text),
        _ => None,
    }
}

fn money(value: &Value) -> Option<Money> {
    Money::from_stored(text(value)?)
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::N(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// An inner `None`: there was no time. An outer one: this is none.
fn read_time(value: &Value) -> Option<Option<Timestamp>> {
    match value {
        Value::Null => Some(None),
        value => number(value).map(Timestamp::from_millis).map(Some),
    }
}

/// The entries of the map at `name`; of none, where there is no such map.
fn read_map<K: Ord, V>(
    map: &Map,
    name: &str,
    key: impl Fn(&str) -> Option<K>,
    value: impl Fn(&Value) -> Option<V>,
) -> Option<BTreeMap<K, V>> {
    match map.get(name) {
        None => Some(BTreeMap::new()),
        Some(Value::M(map)) => map.iter().map(|(id, fact)| Some((key(id)?, value(fact)?))).collect(),
        Some(_) => None,
    }
}

fn read_view(value: &Value) -> Option<View> {
    let Value::M(map) = value else { return None };
    let id = |id: &str| Some(FactId::new(id));
    let payment = |value: &Value| match text(value)? {
        FAILED => Some(PaymentFact::Failed),
        _ => money(value).map(PaymentFact::Succeeded),
    };
    let parcel = |value: &Value| match value {
        Value::L(parts) => match parts.as_slice() {
            [at, parcel] => Some((read_time(at)?, Parcel::from_stored(text(parcel)?)?)),
            _ => None,
        },
        _ => None,
    };
    Some(View {
        newest: map.get("newest").map_or(Some(None), read_time)?,
        told: map.get("snapshot").map_or(Some(None), |told| read_snapshot(told).map(Some))?,
        shown_paid: read_map(map, "shown_paid", Currency::parse, |amount| Amount::from_stored(text(amount)?))?
            .into_iter()
            .collect(),
        payments: read_map(map, "payments", id, payment)?,
        refunds: read_map(map, "refunds", id, money)?,
        parcels: read_map(map, "parcels", id, parcel)?,
        disputes: read_map(map, "disputes", id, |dispute| Dispute::from_stored(text(dispute)?))?,
        is_deleted: map.get("deleted").is_some(),
    })
}

fn read_snapshot(value: &Value) -> Option<Told> {
    let Value::M(map) = value else { return None };
    let word = |name| map.get(name).and_then(text);
    Some(Told {
        at: read_time(map.get("at")?)?,
        snapshot: Snapshot {
            is_cancelled: *map.get("cancelled")? == Value::Bool(true),
            refund: Progress::from_stored(word("refund")?)?,
            fulfilment: Progress::from_stored(word("fulfilment")?)?,
            payment: Payment::from_stored(word("payment")?)?,
            total: money(map.get("total")?)?,
            refunded: map.get("refunded").map_or(Some(None), |value| money(value).map(Some))?,
        },
    })
}

fn read_entry(value: &Value) -> Option<Entry> {
    let Value::L(parts) = value else { return None };
    let [at, event_time, source, topic, delivery_id, sequence, from, to, remark] = parts.as_slice() else {
        return None;
    };
    Some(Entry {
        at: Timestamp::from_millis(number(at)?),
        event_time: read_time(event_time)?,
        source: SourceName::parse(text(source)?).ok()?,
        topic: text(topic)?.to_owned(),
        delivery_id: text(delivery_id)?.to_owned(),
        sequence: Sequence(number(sequence)?),
        from: match from {
            Value::Null => None,
            from => Some(State::from_stored(text(from)?)?),
        },
        to: State::from_stored(text(to)?)?,
        remark: Remark::from_stored(text(remark)?)?,
    })
}
