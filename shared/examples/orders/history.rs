//! An order's last deliveries, for whoever wants to know how it came to be
//! what it is.

use std::fmt;

use super::state::{State, words};
use crate::{
    protocol::{
        entity::{Sequence, SourceName},
        format::shortened,
    },
    time::Timestamp,
};

/// The most bytes kept of a topic.
const TOPIC_BYTES: usize = 48;

/// The most bytes kept of a delivery id: a UUID, a SHA-256 in base64.
const DELIVERY_ID_BYTES: usize = 52;

words! {
    /// What became of one delivery.
    Remark {
        /// It told something new.
        Applied = "applied",
        /// It told nothing new.
        Nothing = "nothing_new",
        /// It was ignored as late: it shows the order as it was before the
        /// newest that is known. Facts in it were taken.
        Late = "late",
        /// Its topic is none that is understood.
        Unknown = "unknown",
        /// Facts in it were left out: the row has no room for them.
        NoRoom = "no_room",
    }
}

/// One delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When it was accepted, by our clock.
    pub at: Timestamp,
    /// When it happened, by the source's clock.
    pub event_time: Option<Timestamp>,
    /// Who sent it.
    pub source: SourceName,
    /// What happened; at most 48 bytes of it.
    pub topic: String,
    /// The sender's id, as [`short_delivery_id`] leaves it.
    pub delivery_id: String,
    /// Its place in the inbox, where its receipt tells more.
    pub sequence: Sequence,
    /// The order's state before; `None`: it was new.
    pub from: Option<State>,
    /// The order's state afterwards.
    pub to: State,
    /// What became of it.
    pub remark: Remark,
}

impl fmt::Display for Entry {
    /// One line: `2026-01-05T14:00:02.614Z shopify orders/paid 1da8: received
    /// -> paid`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.map_or("new", State::as_str);
        write!(f, "{} {} {} {}: {from} -> {}", self.at, self.source, self.topic, self.delivery_id, self.to)?;
        if self.remark == Remark::Applied { Ok(()) } else { write!(f, " ({})", self.remark) }
    }
}

/// What is kept of a topic.
pub(super) fn short_topic(topic: &str) -> String {
    shortened(topic, TOPIC_BYTES)
}

/// What is kept of a sender's delivery id: the part behind the last slash, at
/// most 52 bytes. What ids have in front of a slash is the shop and the topic.
pub fn short_delivery_id(id: &str) -> String {
    let last = id.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(id);
    shortened(last, DELIVERY_ID_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_id_is_kept_from_its_last_slash_on() {
        let hash = format!("sha256:{}", "x".repeat(43));
        for (id, kept) in [
            ("example.myshopify.com/orders/paid/1da83e8a-c086", "1da83e8a-c086"),
            ("evt_1", "evt_1"),
            ("a/", "a/"),
            (format!("https://store.example.com/order.created/727/{hash}").as_str(), hash.as_str()),
            ("é".repeat(60).as_str(), "é".repeat(26).as_str()),
        ] {
            assert_eq!(short_delivery_id(id), kept);
        }
    }
}
