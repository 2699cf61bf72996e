//! WooCommerce's events. Each is the order as it stood when the event was
//! delivered, with all its refunds; since a shop can also take a refund back,
//! refunds are part of the snapshot and no facts of their own.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    amount::{Currency, Money},
    body::{Malformed, Scalar, currency, read},
    news::{Existence, News, Snapshot},
    state::{Payment, Progress},
};

/// What tells the shop's own body from those of others that use its topics.
#[derive(Deserialize)]
struct Probe {
    id: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Order {
    #[serde(rename = "id")]
    _id: Scalar,
    status: String,
    currency: String,
    total: Scalar,
    date_paid: Option<Scalar>,
    date_paid_gmt: Option<Scalar>,
    refunds: Option<Vec<Refund>>,
}

#[derive(Deserialize)]
struct Refund {
    total: Scalar,
}

#[derive(Deserialize)]
struct Deleted {
    #[serde(rename = "id")]
    _id: Scalar,
}

pub(super) fn news(topic: &str, body: &[u8]) -> Result<Option<News>, Malformed> {
    let understood = matches!(topic, "order.created" | "order.updated" | "order.deleted" | "order.restored");
    if !understood || read::<Probe>(body)?.id.is_none() {
        return Ok(None);
    }
    if topic == "order.deleted" {
        read::<Deleted>(body)?;
        return Ok(Some(News { existence: Some(Existence::Deleted), ..News::default() }));
    }
    let existence = (topic == "order.restored").then_some(Existence::Restored);
    order(&read(body)?).map(|news| Some(News { existence, ..news }))
}

fn order(order: &Order) -> Result<News, Malformed> {
    let currency = currency(&order.currency)?;
    let total = order.total.money(&currency, "total")?;
    let refunded = refunded(order, &currency)?;
    let dates = [&order.date_paid, &order.date_paid_gmt];
    let has_date = dates.into_iter().flatten().any(|date| !date.as_str().is_empty());
    let is_paid = has_date || matches!(order.status.as_str(), "processing" | "completed" | "refunded");
    let payment = match order.status.as_str() {
        _ if is_paid => Payment::Paid,
        "failed" => Payment::Failed,
        // Pending and on-hold wait for it; a shop's own statuses say nothing of it.
        _ => Payment::Unpaid,
    };
    let snapshot = Snapshot {
        is_cancelled: matches!(order.status.as_str(), "cancelled" | "trash"),
        refund: match order.status.as_str() {
            "refunded" => Progress::Full,
            _ if refunded.is_some() => Progress::Part,
            _ => Progress::None,
        },
        fulfilment: if order.status == "completed" { Progress::Full } else { Progress::None },
        payment,
        total: total.clone(),
        refunded,
    };
    let paid = if is_paid { vec![total] } else { Vec::new() };
    Ok(News { snapshot: Some(snapshot), paid, ..News::default() })
}

/// The refunds together. Each is told as a negative amount.
fn refunded(order: &Order, currency: &Currency) -> Result<Option<Money>, Malformed> {
    let mut sum: Option<Money> = None;
    for refund in order.refunds.iter().flatten() {
        let Money { amount, .. } = refund.total.money(currency, "refunds")?;
        let amount = sum.map_or(amount.abs(), |sum| sum.amount + amount.abs());
        sum = Some(Money { currency: currency.clone(), amount });
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(topic: &str, rest: &str) -> News {
        let body = format!(r#"{{"id":727,"currency":"USD","total":"26.60"{rest}}}"#);
        news(topic, body.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn the_status_says_where_the_order_stands() {
        for (status, payment, refund, fulfilment, is_cancelled) in [
            ("pending", Payment::Unpaid, Progress::None, Progress::None, false),
            ("on-hold", Payment::Unpaid, Progress::None, Progress::None, false),
            ("processing", Payment::Paid, Progress::None, Progress::None, false),
            ("completed", Payment::Paid, Progress::None, Progress::Full, false),
            ("cancelled", Payment::Unpaid, Progress::None, Progress::None, true),
            ("refunded", Payment::Paid, Progress::Full, Progress::None, false),
            ("failed", Payment::Failed, Progress::None, Progress::None, false),
            ("awaiting-pickup", Payment::Unpaid, Progress::None, Progress::None, false),
        ] {
            let snapshot = of("order.updated", &format!(r#","status":"{status}""#)).snapshot.unwrap();
            assert_eq!(
                (snapshot.payment, snapshot.refund, snapshot.fulfilment, snapshot.is_cancelled),
                (payment, refund, fulfilment, is_cancelled),
                "{status}"
            );
        }
    }

    #[test]
    fn an_order_with_a_date_of_payment_is_paid() {
        let news = of("order.updated", r#","status":"cancelled","date_paid_gmt":"2026-01-05T14:01:40""#);
        assert_eq!(news.snapshot.unwrap().payment, Payment::Paid);
        assert_eq!(news.paid[0].to_string(), "26.60 USD");
    }

    #[test]
    fn refunds_are_summed_from_their_negative_totals() {
        let news = of(
            "order.updated",
            r#","status":"processing","refunds":[{"id":1,"total":"-5.00"},{"id":2,"total":"-1.605"}]"#,
        );
        let snapshot = news.snapshot.unwrap();
        assert_eq!(snapshot.refunded.unwrap().to_string(), "6.605 USD");
        assert_eq!(snapshot.refund, Progress::Part);
        assert_eq!(news.refunds, []);
    }

    #[test]
    fn an_order_can_be_thrown_away_and_taken_back() {
        let deleted = news("order.deleted", br#"{"id":727}"#).unwrap().unwrap();
        assert_eq!(deleted, News { existence: Some(Existence::Deleted), ..News::default() });
        assert_eq!(of("order.restored", r#","status":"pending""#).existence, Some(Existence::Restored));
    }

    #[test]
    fn the_same_topic_in_other_words_is_not_understood() {
        assert_eq!(news("order.updated", br#"{"event":"order.updated","order":{"id":1}}"#), Ok(None));
        assert_eq!(news("order.refunded", br#"{"id":727}"#), Ok(None));
        assert!(news("order.updated", br#"{"id":727,"status":"pending"}"#).is_err());
        assert!(news("order.updated", b"id=727").is_err());
    }
}
