//! Keys and identifiers: entity keys, sources, delivery identities, sequences and fencing tokens.
//!
//! Text from outside is parsed into these types once, where it enters the program.

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::time::Timestamp;

/// The prefix of the entity keys of jobs. No source may be named `cron`.
pub const JOBS: &str = "cron/";

/// The key of one entity: a namespace and a name, such as `shopify/order/450789469`,
/// `invoice_gen/SUB-1234` or `cron/nightly-report`.
///
/// A key is Unicode in the form NFC, of at most [`EntityKey::MAX_BYTES`] bytes. Two Unicode forms
/// of the same text are the same key. A key contains no control characters, and neither U+FFFE nor
/// U+FFFF, which SQS does not accept.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntityKey(String);

/// The reason why a text is not an entity key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntityKey {
    /// The text has no namespace or no name.
    #[error("a key is a namespace and a name joined by '/', such as `shopify/order/1001` or `invoice_gen/SUB-1234`")]
    Unnamed,
    /// The text is longer than [`EntityKey::MAX_BYTES`] after normalisation. Contains its length.
    #[error("a key has at most {max} bytes, this one has {0}", max = EntityKey::MAX_BYTES)]
    TooLong(usize),
    /// The text contains a control character.
    #[error("a key must not contain control characters")]
    ControlCharacter,
    /// The text contains U+FFFE or U+FFFF. SQS does not accept them, so no wake-up could name the
    /// key.
    #[error("a key must not contain U+FFFE or U+FFFF, which the queue cannot carry")]
    Noncharacter,
}

/// The name in the key `SOURCE/unrouted`, under which deliveries without an entity are parked.
const UNROUTED: &str = "unrouted";

impl EntityKey {
    /// The longest key, in bytes of UTF-8: a quarter of DynamoDB's limit for a partition
    /// key. With a key of up to 256 bytes, the largest entity row costs one write unit.
    pub const MAX_BYTES: usize = 512;

    /// Normalises `text` to NFC and validates it.
    pub fn parse(text: &str) -> Result<Self, InvalidEntityKey> {
        let text = if is_nfc(text) { text.to_owned() } else { text.nfc().collect::<String>() };
        if text.chars().any(char::is_control) {
            return Err(InvalidEntityKey::ControlCharacter);
        }
        if text.contains(['\u{fffe}', '\u{ffff}']) {
            return Err(InvalidEntityKey::Noncharacter);
        }
        if text.len() > Self::MAX_BYTES {
            return Err(InvalidEntityKey::TooLong(text.len()));
        }
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self(text)),
            _ => Err(InvalidEntityKey::Unnamed),
        }
    }

    /// Returns the key under which deliveries of `source` are parked if their entity cannot be
    /// determined.
    pub fn unrouted(source: &SourceName) -> Self {
        Self(format!("{source}/{UNROUTED}"))
    }

    /// Returns whether the key has the form of [`unrouted`](Self::unrouted).
    pub fn is_unrouted(&self) -> bool {
        self.0.split_once('/').is_some_and(|(_, name)| name == UNROUTED)
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns 64 bits of the key's hash in hexadecimal, for places that must not have the key, which may identify a
    /// person. No key has this form, because each key contains a slash.
    pub fn hash(&self) -> String {
        Sha256::digest(&self.0)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns whether a text has the form of a [`hash`](Self::hash).
    pub fn is_hash(text: &str) -> bool {
        text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// Returns whether the entity's row never expires. This holds for jobs, whose last tick is
    /// remembered forever.
    pub fn is_kept_forever(&self) -> bool {
        self.0.starts_with(JOBS)
    }
}

impl TryFrom<String> for EntityKey {
    type Error = InvalidEntityKey;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for EntityKey {
    type Err = InvalidEntityKey;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl From<EntityKey> for String {
    fn from(key: EntityKey) -> Self {
        key.0
    }
}

impl fmt::Display for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EntityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntityKey({:?})", self.0)
    }
}

/// The name of a source, as in the path `/webhooks/{source}`: 1 to 64 characters of `a-z`, `0-9`,
/// `-` and `_`. The name `cron` is reserved for jobs.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourceName(String);

/// The reason why a text is not a source name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceName {
    /// The text is empty, too long, or has a character that is not allowed.
    #[error("a source name is 1 to 64 of a-z, 0-9, '-' and '_', not {0:?}")]
    Form(String),
    /// The name is reserved for jobs.
    #[error("the source name \"cron\" is reserved: entities under `cron/` are jobs")]
    Reserved,
}

impl SourceName {
    /// Validates `text`.
    pub fn parse(text: &str) -> Result<Self, InvalidSourceName> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if !(1..=64).contains(&text.len()) || !text.chars().all(allowed) {
            return Err(InvalidSourceName::Form(text.chars().take(80).collect()));
        }
        if JOBS.strip_suffix('/') == Some(text) {
            return Err(InvalidSourceName::Reserved);
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SourceName {
    type Error = InvalidSourceName;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<SourceName> for String {
    fn from(name: SourceName) -> Self {
        name.0
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

/// A delivery's position in its entity's inbox. It has a meaning only in comparison with other
/// sequences of the same inbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Returns the following sequence.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the preceding sequence.
    pub fn previous(self) -> Self {
        Self(self.0 - 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fencing token: a number that grows with every grant of a lease and every settle, even if the
/// entity's row is deleted in between. One token belongs to one handler start. A receiver that
/// remembers the greatest token it has seen can refuse late writes of an earlier holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

impl FencingToken {
    /// Returns the token of the next grant or settle.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composed_and_decomposed_unicode_are_one_key() {
        let composed = EntityKey::parse("café/order/1").unwrap();
        let decomposed = EntityKey::parse("cafe\u{301}/order/1").unwrap();
        assert_eq!(composed, decomposed);
    }

    #[test]
    fn key_without_namespace_or_name_is_refused() {
        for text in ["", "order", "/order", "order/"] {
            assert_eq!(EntityKey::parse(text), Err(InvalidEntityKey::Unnamed), "{text:?}");
        }
    }

    /// Promise: an entity key has up to 512 bytes.
    #[test]
    fn key_longer_than_512_bytes_is_refused() {
        let longest = format!("n/{}", "x".repeat(EntityKey::MAX_BYTES - 2));
        assert!(EntityKey::parse(&longest).is_ok());
        assert_eq!(EntityKey::parse(&format!("{longest}x")), Err(InvalidEntityKey::TooLong(513)));
    }

    #[test]
    fn key_with_control_character_is_refused() {
        assert_eq!(EntityKey::parse("a/b\u{1f}c"), Err(InvalidEntityKey::ControlCharacter));
    }

    #[test]
    fn key_with_noncharacter_is_refused() {
        for character in ['\u{fffe}', '\u{ffff}'] {
            assert_eq!(EntityKey::parse(&format!("a/b{character}c")), Err(InvalidEntityKey::Noncharacter));
        }
        for character in ['\u{fffd}', '\u{10000}', '\u{1fffe}', '\u{10ffff}'] {
            assert!(EntityKey::parse(&format!("a/b{character}c")).is_ok(), "{character:?}");
        }
    }

    #[test]
    fn source_name_cron_is_reserved() {
        assert_eq!(SourceName::parse("cron"), Err(InvalidSourceName::Reserved));
        for name in ["cron2", "acron", "cro"] {
            assert!(SourceName::parse(name).is_ok(), "{name}");
        }
        for name in ["", "Shop", "a/b", &"x".repeat(65)] {
            assert!(matches!(SourceName::parse(name), Err(InvalidSourceName::Form(_))), "{name}");
        }
    }

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
