//! Shopify's events. Every `orders/…` event carries the order as a snapshot,
//! with the refunds made so far; payments and refunds are facts by the id of
//! their transaction, which `refunds/create`, `order_transactions/create` and
//! the snapshots share.
//!
//! Amounts are read in the currency that the buyer sees, the one in which
//! transactions are made.

use serde::Deserialize;

use super::{
    amount::{Currency, Money},
    body::{Malformed, Scalar, currency, read},
    news::{Existence, News, Parcel, PaymentFact, Snapshot},
    state::{Payment, Progress},
};

#[derive(Deserialize)]
struct Order {
    /// Asked for since every order has one.
    #[serde(rename = "id")]
    _id: Scalar,
    currency: String,
    total_price: Scalar,
    total_price_set: Option<PriceSet>,
    total_outstanding: Option<Scalar>,
    financial_status: Option<String>,
    fulfillment_status: Option<String>,
    cancelled_at: Option<Scalar>,
    refunds: Option<Vec<Refund>>,
}

#[derive(Deserialize)]
struct PriceSet {
    presentment_money: Option<Price>,
}

#[derive(Deserialize)]
struct Price {
    amount: Scalar,
    currency_code: String,
}

#[derive(Deserialize)]
struct Refund {
    #[serde(rename = "id")]
    _id: Scalar,
    transactions: Option<Vec<Transaction>>,
}

#[derive(Deserialize)]
struct Transaction {
    id: Scalar,
    kind: String,
    status: String,
    amount: Option<Scalar>,
    currency: Option<String>,
}

#[derive(Deserialize)]
struct Fulfillment {
    id: Scalar,
    status: Option<String>,
}

#[derive(Deserialize)]
struct Deleted {
    #[serde(rename = "id")]
    _id: Scalar,
}

pub(super) fn news(topic: &str, body: &[u8]) -> Result<Option<News>, Malformed> {
    Ok(Some(match topic {
        "orders/create"
        | "orders/updated"
        | "orders/paid"
        | "orders/cancelled"
        | "orders/fulfilled"
        | "orders/partially_fulfilled" => order(topic, &read(body)?)?,
        "orders/delete" => {
            read::<Deleted>(body)?;
            News { existence: Some(Existence::Deleted), ..News::default() }
        }
        "fulfillments/create" | "fulfillments/update" => {
            let fulfillment: Fulfillment = read(body)?;
            News { parcels: vec![(fulfillment.id.id(), parcel(&fulfillment))], ..News::default() }
        }
        "refunds/create" => {
            let mut news = News::default();
            refund(&read(body)?, &mut news)?;
            news
        }
        "order_transactions/create" => {
            let mut news = News::default();
            transaction(&read(body)?, &mut news)?;
            news
        }
        _ => return Ok(None),
    }))
}

/// The snapshot. What the topic says counts as if the body said so: the body
/// of `orders/paid` may already show what came after the payment.
fn order(topic: &str, order: &Order) -> Result<News, Malformed> {
    let shop_currency = currency(&order.currency)?;
    let total = match order.total_price_set.as_ref().and_then(|set| set.presentment_money.as_ref()) {
        Some(price) => price.amount.money(&currency(&price.currency_code)?, "total_price_set")?,
        None => order.total_price.money(&shop_currency, "total_price")?,
    };
    let (payment, refund_progress) = match order.financial_status.as_deref() {
        Some("paid") => (Payment::Paid, Progress::None),
        Some("partially_refunded") => (Payment::Paid, Progress::Part),
        Some("refunded") => (Payment::Paid, Progress::Full),
        Some("partially_paid") => (Payment::Partial, Progress::None),
        Some("voided" | "expired") => (Payment::Failed, Progress::None),
        // Pending and authorized: nothing was paid yet.
        _ => (Payment::Unpaid, Progress::None),
    };
    let fulfilment = match order.fulfillment_status.as_deref() {
        Some("fulfilled") => Progress::Full,
        Some("partial") => Progress::Part,
        // Nothing, or what was sent came back.
        _ => Progress::None,
    };
    let is_paid = order.financial_status.as_deref() == Some("paid") || topic == "orders/paid";
    let paid = match payment {
        _ if is_paid => vec![total.clone()],
        Payment::Partial => paid_so_far(order, &shop_currency, &total)?.into_iter().collect(),
        _ => Vec::new(),
    };
    let mut news = News {
        snapshot: Some(Snapshot {
            is_cancelled: order.cancelled_at.is_some() || topic == "orders/cancelled",
            refund: refund_progress,
            fulfilment: match topic {
                "orders/fulfilled" => Progress::Full,
                "orders/partially_fulfilled" => fulfilment.max(Progress::Part),
                _ => fulfilment,
            },
            payment: if is_paid { Payment::Paid } else { payment },
            total,
            refunded: None,
        }),
        paid,
        ..News::default()
    };
    for made in order.refunds.iter().flatten() {
        refund(made, &mut news)?;
    }
    Ok(news)
}

/// The total less what is outstanding, which is told in the shop's currency.
fn paid_so_far(order: &Order, shop_currency: &Currency, total: &Money) -> Result<Option<Money>, Malformed> {
    let Some(outstanding) = &order.total_outstanding else { return Ok(None) };
    let outstanding = outstanding.money(shop_currency, "total_outstanding")?;
    let paid = Money { currency: total.currency.clone(), amount: total.amount - outstanding.amount };
    Ok((outstanding.currency == total.currency && paid.amount.is_positive()).then_some(paid))
}

fn refund(refund: &Refund, news: &mut News) -> Result<(), Malformed> {
    refund.transactions.iter().flatten().try_for_each(|made| transaction(made, news))
}

/// Only what came through moved money, and only a failure is worth knowing of
/// what did not; the rest is on its way.
fn transaction(transaction: &Transaction, news: &mut News) -> Result<(), Malformed> {
    let money = || {
        let of = currency(transaction.currency.as_deref().unwrap_or_default())?;
        transaction.amount.as_ref().ok_or(Malformed::Field("amount"))?.money(&of, "amount")
    };
    let id = transaction.id.id();
    match (transaction.kind.as_str(), transaction.status.as_str()) {
        ("sale" | "capture", "success") => news.payments.push((id, PaymentFact::Succeeded(money()?))),
        ("sale" | "capture" | "authorization", "failure" | "error") => news.payments.push((id, PaymentFact::Failed)),
        ("refund", "success") => news.refunds.push((id, money()?)),
        _ => {}
    }
    Ok(())
}

fn parcel(fulfillment: &Fulfillment) -> Parcel {
    match fulfillment.status.as_deref() {
        Some("success") => Parcel::Sent,
        Some("cancelled" | "error" | "failure") => Parcel::Cancelled,
        _ => Parcel::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::news::FactId, *};

    fn order_body(rest: &str) -> String {
        format!(r#"{{"id":450789469,"currency":"USD","total_price":"48.20"{rest}}}"#)
    }

    fn of(topic: &str, body: &str) -> News {
        news(topic, body.as_bytes()).unwrap().unwrap()
    }

    fn usd(amount: &str) -> Money {
        Money::from_stored(&format!("{amount} USD")).unwrap()
    }

    #[test]
    fn the_financial_status_says_how_far_payment_and_refund_are() {
        for (status, payment, refund, paid) in [
            ("null", Payment::Unpaid, Progress::None, None),
            (r#""pending""#, Payment::Unpaid, Progress::None, None),
            (r#""authorized""#, Payment::Unpaid, Progress::None, None),
            (r#""partially_paid""#, Payment::Partial, Progress::None, Some(usd("20.00"))),
            (r#""paid""#, Payment::Paid, Progress::None, Some(usd("48.20"))),
            (r#""partially_refunded""#, Payment::Paid, Progress::Part, None),
            (r#""refunded""#, Payment::Paid, Progress::Full, None),
            (r#""voided""#, Payment::Failed, Progress::None, None),
        ] {
            let rest = format!(r#","financial_status":{status},"total_outstanding":"28.20""#);
            let news = of("orders/updated", &order_body(&rest));
            let snapshot = news.snapshot.unwrap();
            assert_eq!((snapshot.payment, snapshot.refund), (payment, refund), "{status}");
            assert_eq!(news.paid, Vec::from_iter(paid), "{status}");
        }
    }

    #[test]
    fn the_topic_counts_as_if_the_body_said_so() {
        let snapshot = |topic, rest: &str| of(topic, &order_body(rest)).snapshot.unwrap();
        assert_eq!(snapshot("orders/paid", "").payment, Payment::Paid);
        assert_eq!(of("orders/paid", &order_body("")).paid, [usd("48.20")]);
        assert!(snapshot("orders/cancelled", "").is_cancelled);
        assert_eq!(snapshot("orders/fulfilled", "").fulfilment, Progress::Full);
        let fulfilled = r#","fulfillment_status":"fulfilled""#;
        assert_eq!(snapshot("orders/partially_fulfilled", "").fulfilment, Progress::Part);
        assert_eq!(snapshot("orders/partially_fulfilled", fulfilled).fulfilment, Progress::Full);
    }

    #[test]
    fn money_is_what_the_buyer_sees() {
        let set = r#","total_price_set":{"presentment_money":{"amount":"44.10","currency_code":"EUR"}}"#;
        assert_eq!(of("orders/create", &order_body(set)).snapshot.unwrap().total.to_string(), "44.10 EUR");
        let partial = format!(r#"{set},"financial_status":"partially_paid","total_outstanding":"28.20""#);
        assert_eq!(of("orders/updated", &order_body(&partial)).paid, [], "what is outstanding is told in USD");
    }

    #[test]
    fn a_transaction_is_one_fact_wherever_it_is_told() {
        let made = r#"{"id":245135271310201194,"kind":"refund","status":"success","amount":"21.60","currency":"USD"}"#;
        let refund = format!(r#"{{"id":1,"transactions":[{made}]}}"#);
        let expected = [(FactId::new("245135271310201194"), usd("21.60"))];
        assert_eq!(of("order_transactions/create", made).refunds, expected);
        assert_eq!(of("refunds/create", &refund).refunds, expected);
        assert_eq!(of("orders/updated", &order_body(&format!(r#","refunds":[{refund}]"#))).refunds, expected);
    }

    #[test]
    fn only_a_transaction_that_came_through_moves_money() {
        let of = |kind, status| {
            let body = format!(r#"{{"id":1,"kind":"{kind}","status":"{status}","amount":"48.20","currency":"USD"}}"#);
            of("order_transactions/create", &body)
        };
        let paid = [(FactId::new("1"), PaymentFact::Succeeded(usd("48.20")))];
        assert_eq!(of("sale", "success").payments, paid);
        assert_eq!(of("capture", "success").payments, paid);
        assert_eq!(of("sale", "failure").payments, [(FactId::new("1"), PaymentFact::Failed)]);
        for (kind, status) in
            [("authorization", "success"), ("sale", "pending"), ("void", "success"), ("refund", "pending")]
        {
            assert_eq!(of(kind, status), News::default(), "{kind} {status}");
        }
    }

    #[test]
    fn a_fulfillment_is_sent_when_it_succeeded() {
        for (status, expected) in [
            (r#""success""#, Parcel::Sent),
            (r#""pending""#, Parcel::Pending),
            ("null", Parcel::Pending),
            (r#""cancelled""#, Parcel::Cancelled),
        ] {
            let news = of("fulfillments/update", &format!(r#"{{"id":9,"status":{status}}}"#));
            assert_eq!(news.parcels, [(FactId::new("9"), expected)]);
        }
    }

    #[test]
    fn a_body_that_lacks_what_its_topic_promises_is_refused() {
        for (topic, body) in [
            ("orders/paid", r#"{"id":1,"currency":"USD"}"#),
            ("orders/paid", r#"{"currency":"USD","total_price":"1.00"}"#),
            ("orders/paid", r#"{"id":1,"currency":"USD","total_price":true}"#),
            ("orders/delete", "{}"),
            ("fulfillments/create", r#"{"status":"success"}"#),
            ("refunds/create", r#"{"transactions":[]}"#),
            ("refunds/create", r#"{"id":1,"transactions":[{"id":1,"kind":"refund","status":"success"}]}"#),
            ("order_transactions/create", r#"{"id":1,"kind":"sale"}"#),
        ] {
            assert!(news(topic, body.as_bytes()).is_err(), "{topic} {body}");
        }
    }
}
