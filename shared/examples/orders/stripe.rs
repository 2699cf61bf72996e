//! Stripe's events. A payment is a fact by the id of its payment intent, a
//! refund by the id of the charge it is made on: `charge.refunded` tells how
//! much of the charge went back so far, so that the most told is what counts.
//! What was authorized and never captured is let go by a `charge.refunded` too:
//! no more went back than was captured.

use serde::Deserialize;

use super::{
    amount::{Amount, Currency, Money},
    body::{Malformed, Scalar, currency, read},
    news::{News, PaymentFact},
    state::Dispute,
};

#[derive(Deserialize)]
struct Event<T> {
    data: Data<T>,
}

#[derive(Deserialize)]
struct Data<T> {
    object: T,
}

#[derive(Deserialize)]
struct PaymentIntent {
    id: Scalar,
    amount: Scalar,
    amount_received: Option<Scalar>,
    currency: String,
}

#[derive(Deserialize)]
struct Charge {
    id: Scalar,
    amount: Scalar,
    amount_captured: Option<Scalar>,
    amount_refunded: Scalar,
    currency: String,
    payment_intent: Option<Scalar>,
}

#[derive(Deserialize)]
struct ChargeDispute {
    id: Scalar,
    status: String,
}

pub(super) fn news(topic: &str, body: &[u8]) -> Result<Option<News>, Malformed> {
    Ok(Some(match topic {
        "payment_intent.succeeded" => {
            let intent = object::<PaymentIntent>(body)?;
            let amount = intent.amount_received.as_ref().unwrap_or(&intent.amount);
            let money = money(amount, &intent.currency, "amount_received")?;
            News { payments: vec![(intent.id.id(), PaymentFact::Succeeded(money))], ..News::default() }
        }
        "payment_intent.payment_failed" | "payment_intent.canceled" => {
            let intent = object::<PaymentIntent>(body)?;
            News { payments: vec![(intent.id.id(), PaymentFact::Failed)], ..News::default() }
        }
        "charge.refunded" => {
            let charge = object::<Charge>(body)?;
            let captured = charge.amount_captured.as_ref().unwrap_or(&charge.amount);
            let paid = money(captured, &charge.currency, "amount_captured")?;
            let refunded = money(&charge.amount_refunded, &charge.currency, "amount_refunded")?;
            let payment = charge.payment_intent.as_ref().unwrap_or(&charge.id).id();
            if !paid.amount.is_positive() {
                return Ok(Some(News { payments: vec![(payment, PaymentFact::Failed)], ..News::default() }));
            }
            let back = Money { amount: refunded.amount.min(paid.amount), ..refunded };
            News {
                payments: vec![(payment, PaymentFact::Succeeded(paid))],
                refunds: vec![(charge.id.id(), back)],
                ..News::default()
            }
        }
        "charge.dispute.created" | "charge.dispute.updated" | "charge.dispute.closed" => {
            let dispute = object::<ChargeDispute>(body)?;
            let standing = match dispute.status.as_str() {
                "won" | "lost" | "warning_closed" | "prevented" => Dispute::Closed,
                _ => Dispute::Open,
            };
            News { disputes: vec![(dispute.id.id(), standing)], ..News::default() }
        }
        _ => return Ok(None),
    }))
}

fn object<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T, Malformed> {
    read::<Event<T>>(body).map(|event| event.data.object)
}

fn money(minor: &Scalar, of: &str, field: &'static str) -> Result<Money, Malformed> {
    let currency = currency(of)?;
    let amount = Amount::parse_minor(minor.as_str(), decimals(&currency)).ok_or(Malformed::Field(field))?;
    Ok(Money { currency, amount })
}

/// How many digits of an amount of `currency` stand behind the point
/// (docs.stripe.com/currencies, "minor units in API amounts"). ISK and UGX have
/// no smaller unit any more, and are still counted in hundredths.
fn decimals(currency: &Currency) -> u8 {
    match currency.as_str() {
        "BIF" | "CLP" | "DJF" | "GNF" | "JPY" | "KMF" | "KRW" | "MGA" | "PYG" | "RWF" | "VND" | "VUV" | "XAF"
        | "XOF" | "XPF" => 0,
        "BHD" | "JOD" | "KWD" | "OMR" | "TND" => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::news::FactId, *};

    fn of(topic: &str, object: &str) -> News {
        news(topic, format!(r#"{{"data":{{"object":{object}}}}}"#).as_bytes()).unwrap().unwrap()
    }

    fn fact(id: &str, money: &str) -> (FactId, PaymentFact) {
        (FactId::new(id), PaymentFact::Succeeded(Money::from_stored(money).unwrap()))
    }

    #[test]
    fn amounts_are_in_the_smallest_unit_of_their_currency() {
        for (currency, shown) in [
            ("usd", "48.20 USD"),
            ("jpy", "4820 JPY"),
            ("kwd", "4.820 KWD"),
            ("isk", "48.20 ISK"),
            ("ugx", "48.20 UGX"),
        ] {
            let object = format!(r#"{{"id":"pi","amount":9,"amount_received":4820,"currency":"{currency}"}}"#);
            assert_eq!(of("payment_intent.succeeded", &object).payments, [fact("pi", shown)]);
        }
    }

    #[test]
    fn a_refund_tells_of_the_payment_too() {
        let charge = |rest: &str| {
            let object = format!(r#"{{"id":"ch","amount":4820,"amount_refunded":2160,"currency":"usd"{rest}}}"#);
            of("charge.refunded", &object)
        };
        let refunds = [(FactId::new("ch"), Money::from_stored("21.60 USD").unwrap())];
        let news = charge(r#","amount_captured":4000,"payment_intent":"pi""#);
        assert_eq!((news.payments, news.refunds), (vec![fact("pi", "40.00 USD")], refunds.to_vec()));
        assert_eq!(charge(r#","payment_intent":null"#).payments, [fact("ch", "48.20 USD")]);
    }

    #[test]
    fn no_more_went_back_than_was_captured() {
        let charge = |captured| {
            let object = format!(
                r#"{{"id":"ch","amount":4820,"amount_captured":{captured},"amount_refunded":4820,"currency":"usd"}}"#
            );
            of("charge.refunded", &object)
        };
        assert_eq!(charge(4000).refunds, [(FactId::new("ch"), Money::from_stored("40.00 USD").unwrap())]);
        let called_off = News { payments: vec![(FactId::new("ch"), PaymentFact::Failed)], ..News::default() };
        assert_eq!(charge(0), called_off);
    }

    #[test]
    fn a_payment_that_failed_or_was_called_off_is_one_that_failed() {
        for topic in ["payment_intent.payment_failed", "payment_intent.canceled"] {
            let news = of(topic, r#"{"id":"pi","amount":4820,"amount_received":0,"currency":"usd"}"#);
            assert_eq!(news.payments, [(FactId::new("pi"), PaymentFact::Failed)]);
        }
    }

    #[test]
    fn a_dispute_is_open_until_it_is_decided() {
        for (status, expected) in
            [("needs_response", Dispute::Open), ("under_review", Dispute::Open), ("won", Dispute::Closed)]
        {
            let news = of("charge.dispute.updated", &format!(r#"{{"id":"dp","status":"{status}"}}"#));
            assert_eq!(news.disputes, [(FactId::new("dp"), expected)]);
        }
    }

    #[test]
    fn a_body_that_lacks_what_its_topic_promises_is_refused() {
        for body in [
            "{}",
            r#"{"data":{}}"#,
            r#"{"data":{"object":{"id":"pi","currency":"usd"}}}"#,
            r#"{"data":{"object":{"id":"pi","amount":48.20,"currency":"usd"}}}"#,
            r#"{"data":{"object":{"id":"pi","amount":4820,"currency":"u"}}}"#,
        ] {
            assert!(news("payment_intent.succeeded", body.as_bytes()).is_err(), "{body}");
        }
    }
}
