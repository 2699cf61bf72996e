//! Identifies a delivery, so that a repeat is recognised: by the sender's id, or by the body's hash.

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::SourceName;
use crate::time::Timestamp;

/// The prefix of a delivery id that is a body's hash.
const HASH: &str = "sha256:";

/// The number of characters of a SHA-256 hash in base64 without padding.
const HASH_LETTERS: usize = 43;

/// The separator between a body's hash and the number of the period in which the body was received.
const PERIOD: char = '~';

/// The separator between a body's hash and the time in milliseconds at which the body was received.
const MOMENT: char = '@';

fn ends_with_hash(id: &str) -> bool {
    id.rsplit_once(HASH).is_some_and(|(_, hash)| hash.len() == HASH_LETTERS)
}

/// The id that a sender gave to a delivery. An id longer than [`DeliveryId::MAX_BYTES`] is replaced
/// by its SHA-256 hash.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct DeliveryId(String);

impl DeliveryId {
    /// The longest id in bytes that is kept unchanged.
    pub const MAX_BYTES: usize = 256;

    /// Creates the id from the sender's text.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.len() <= Self::MAX_BYTES { Self(text) } else { Self::from_body(text.as_bytes()) }
    }

    /// Creates the id from the body's hash, for a sender that gives no id.
    pub fn from_body(body: &[u8]) -> Self {
        Self(format!("{HASH}{}", URL_SAFE_NO_PAD.encode(Sha256::digest(body))))
    }

    /// Appends the time of receipt to an id that ends with a body's hash. So an equal body that is
    /// not a retry gets another id.
    ///
    /// The time is written as the number of the period that contains `at`. A period is as long as
    /// `retried_for`, the time for which the sender retries. If `retried_for` is zero, the time is
    /// written in milliseconds.
    #[must_use]
    pub fn received(self, at: Timestamp, retried_for: Duration) -> Self {
        let period = u64::try_from(retried_for.as_millis()).unwrap_or(u64::MAX);
        let suffix = match at.as_millis().checked_div(period) {
            Some(number) => format!("{PERIOD}{number}"),
            None => format!("{MOMENT}{}", at.as_millis()),
        };
        let is_short = self.0.len() + suffix.len() <= Self::MAX_BYTES;
        let id = if is_short { self } else { Self::from_body(self.0.as_bytes()) };
        Self(id.0 + &suffix)
    }

    /// Returns the id without the suffix that [`received`](Self::received) appended.
    pub fn as_sent(&self) -> &str {
        let mark = [PERIOD, MOMENT];
        let is_marked = |(id, number): &(&str, &str)| ends_with_hash(id) && number.bytes().all(|b| b.is_ascii_digit());
        self.0.rsplit_once(mark).filter(is_marked).map_or(&self.0, |(id, _)| id)
    }

    /// Returns the ids that an equal body has if it is received in the previous or the next period.
    /// `None` if this id contains no period.
    fn in_adjacent_periods(&self) -> Option<[Self; 2]> {
        let (id, number) = self.0.rsplit_once(PERIOD)?;
        let number: u64 = number.parse().ok().filter(|_| ends_with_hash(id))?;
        Some([number.wrapping_sub(1), number.wrapping_add(1)].map(|number| Self(format!("{id}{PERIOD}{number}"))))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for DeliveryId {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<DeliveryId> for String {
    fn from(id: DeliveryId) -> Self {
        id.0
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of a delivery. Repeats of the delivery have the same identity. A repeat has another
/// identity only if the sender gives no id, and the body arrives again in an adjacent period.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity {
    /// The delivery's source, which is its configured sender.
    pub source: SourceName,
    /// The sender's id of the delivery.
    pub delivery_id: DeliveryId,
    /// The number of redrives; 0 for the sender's own delivery.
    pub redrive: u32,
}

impl Identity {
    fn digest(&self) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.source.as_str())
            .chain_update([0])
            .chain_update(self.delivery_id.as_str())
            .chain_update([0])
            .chain_update(self.redrive.to_be_bytes())
            .finalize()
            .into()
    }

    #[doc(hidden)]
    pub fn hash(&self) -> IdentityHash {
        IdentityHash(self.digest()[..8].try_into().expect("eight of thirty-two"))
    }

    /// Returns the hashes of the identity that an equal body has if it is received one period
    /// earlier or later. A settled delivery with such a hash makes this delivery a repeat. A
    /// redriven delivery has no such hashes.
    pub(crate) fn adjacent_hashes(&self) -> impl Iterator<Item = IdentityHash> + use<> {
        let adjacent = if self.redrive == 0 { self.delivery_id.in_adjacent_periods() } else { None };
        let hash = |delivery_id| Self { delivery_id, source: self.source.clone(), redrive: 0 }.hash();
        adjacent.into_iter().flatten().map(hash).collect::<Vec<_>>().into_iter()
    }

    /// Returns a name of 22 characters: 128 bits of the identity's hash, enough to be unique among
    /// the deliveries of all entities.
    #[doc(hidden)]
    pub fn name(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.digest()[..16])
    }
}

/// The first 64 bits of the SHA-256 hash of an [`Identity`]. As text it has 11 characters.
///
/// Within one entity 64 bits are enough. Among 37 million entities with a million deliveries each,
/// only one pair of deliveries of the same entity is expected to share a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdentityHash([u8; 8]);

impl IdentityHash {
    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn from_stored(text: &str) -> Option<Self> {
        let mut bytes = [0; 8];
        (URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) == Ok(8)).then_some(Self(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Display for IdentityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for IdentityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdentityHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redriven_delivery_has_a_new_identity() {
        let own =
            Identity { source: SourceName::parse("shop").unwrap(), delivery_id: DeliveryId::new("7"), redrive: 0 };
        let again = Identity { redrive: 1, ..own.clone() };
        assert_ne!(own.hash(), again.hash());
        assert_eq!((own.hash().to_string().len(), own.name().len()), (11, 22));
    }

    fn received(id: &str, seconds: u64, retried_for: u64) -> DeliveryId {
        let id = if id.len() > 100 { DeliveryId(id.into()) } else { DeliveryId::from_body(id.as_bytes()) };
        id.received(Timestamp::from_secs(seconds), Duration::from_secs(retried_for))
    }

    fn is_repeat(id: &DeliveryId, of: &DeliveryId) -> bool {
        let identity = |delivery_id: &DeliveryId| Identity {
            source: SourceName::parse("shop").unwrap(),
            delivery_id: delivery_id.clone(),
            redrive: 0,
        };
        let id = identity(id);
        let of = identity(of).hash();
        id.hash() == of || id.adjacent_hashes().any(|hash| hash == of)
    }

    #[test]
    fn equal_body_is_repeat_within_senders_retry_period() {
        let first = received("{}", 1000, 60);
        for (seconds, expected) in [(940, true), (1000, true), (1060, true), (1120, false), (880, false)] {
            let second = received("{}", seconds, 60);
            assert_eq!((is_repeat(&second, &first), is_repeat(&first, &second)), (expected, expected), "{seconds}");
            assert!(!is_repeat(&received("[]", seconds, 60), &first), "another body");
        }
        for seconds in 0..240 {
            assert!(is_repeat(&received("{}", 1000 + seconds % 61, 60), &first), "{seconds}");
        }
    }

    #[test]
    fn equal_body_is_new_if_sender_never_retries() {
        let at = |millis| DeliveryId::from_body(b"{}").received(Timestamp::from_millis(millis), Duration::ZERO);
        assert!(is_repeat(&at(1000), &at(1000)), "one request");
        assert!(!is_repeat(&at(1001), &at(1000)));
        assert_eq!(at(1001).as_sent(), at(1000).as_sent());
    }

    #[test]
    fn redriven_delivery_is_not_sought_in_adjacent_retry_periods() {
        let identity =
            Identity { source: SourceName::parse("shop").unwrap(), delivery_id: received("{}", 1000, 60), redrive: 1 };
        assert_eq!(identity.adjacent_hashes().count(), 0);
        assert_eq!(Identity { redrive: 0, ..identity }.adjacent_hashes().count(), 2);
    }

    #[test]
    fn senders_delivery_id_is_the_same_in_every_retry_period() {
        let hash = DeliveryId::from_body(b"{}").0;
        for id in ["evt_1".to_owned(), "a~5".into(), hash.clone(), format!("{hash}~x"), format!("{hash}@5")] {
            let id = DeliveryId(id);
            assert_eq!(id.in_adjacent_periods(), None, "{id}");
            assert!(id.as_sent() == id.as_str() || id.as_str().ends_with("@5"), "{id}");
        }
    }

    #[test]
    fn overlong_id_with_body_hash_is_repeat_in_next_retry_period() {
        let long = format!("{}/{}", "x".repeat(205), DeliveryId::from_body(b"{}"));
        let first = received(&long, 1000, 60);
        let second = received(&long, 1060, 60);
        assert!(first.0.len() <= DeliveryId::MAX_BYTES && is_repeat(&second, &first));
        assert_eq!(DeliveryId::new(first.0.clone()), first);
    }

    #[test]
    fn overlong_delivery_id_is_replaced_by_a_hash() {
        let id = DeliveryId::new("x".repeat(300));
        assert!(id.as_str().starts_with("sha256:"));
        assert_ne!(id, DeliveryId::new("x".repeat(301)));
    }
}
