//! What order is kept for and what is kept in order: entity keys, sources,
//! delivery identities, sequences and fencing tokens.
//!
//! Everything here is parsed once, at the edge; a value of one of these types
//! is valid by construction. Ids never pass through a float.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::{UnicodeNormalization, is_nfc};

/// How the keys of jobs begin. No sender's deliveries are kept under them.
pub const JOBS: &str = "cron/";

/// The key of one entity: a namespace and a name, such as
/// `shopify/order/450789469`, `invoice_gen/SUB-1234` or `cron/nightly-report`.
///
/// Unicode NFC, at most [`EntityKey::MAX_BYTES`] bytes, without control
/// characters and without U+FFFE and U+FFFF: of the rest there is none that a
/// message of SQS could not carry. Two spellings of one text are one key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntityKey(String);

/// Why a text is not an entity key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntityKey {
    /// There is no namespace, no name, or an empty one.
    #[error("a key is a namespace and a name joined by '/', such as `shopify/order/1001` or `invoice_gen/SUB-1234`")]
    Unnamed,
    /// Longer than [`EntityKey::MAX_BYTES`] after normalisation.
    #[error("a key has at most {max} bytes, this one has {0}", max = EntityKey::MAX_BYTES)]
    TooLong(usize),
    /// Holds a control character.
    #[error("a key has no control characters")]
    ControlCharacter,
    /// Holds a character that no message of the queue can carry, so that nobody
    /// could be woken for it.
    #[error("a key has no U+FFFE and no U+FFFF, which the queue cannot carry")]
    Noncharacter,
}

impl EntityKey {
    /// The longest key, in bytes of UTF-8: a quarter of what DynamoDB allows
    /// for a partition key. Up to 256 of them a full entity row stays one write
    /// unit.
    pub const MAX_BYTES: usize = 512;

    /// Normalises and checks `text`.
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

    /// Where verified deliveries of `source` are parked whose entity could not
    /// be found.
    pub fn unrouted(source: &SourceName) -> Self {
        Self(format!("{source}/unrouted"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the rows of this key must outlive idleness. A cron job's last
    /// tick is remembered however long ago it was.
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

/// The name of one configured sender, as it stands in `/webhooks/{source}`:
/// 1 to 64 of `a-z`, `0-9`, `-` and `_`, but not `cron`, which is the jobs'.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourceName(String);

/// The text is not a source name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceName {
    /// It has other characters, none, or too many.
    #[error("a source name is 1 to 64 of a-z, 0-9, '-' and '_', not {0:?}")]
    Form(String),
    /// Its entities would be jobs.
    #[error("the source name \"cron\" is reserved: entities under `cron/` are jobs")]
    Reserved,
}

impl SourceName {
    /// Checks `text`.
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

    /// The name as text.
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

/// What the sender calls one delivery. Longer ids than
/// [`DeliveryId::MAX_BYTES`] are replaced by their SHA-256.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct DeliveryId(String);

impl DeliveryId {
    /// The longest id kept as it came, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Takes the sender's id.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.len() <= Self::MAX_BYTES { Self(text) } else { Self::from_body(text.as_bytes()) }
    }

    /// For senders that give no id: the body's own hash, so that the same
    /// bytes are the same delivery.
    pub fn from_body(body: &[u8]) -> Self {
        Self(format!("sha256:{}", URL_SAFE_NO_PAD.encode(Sha256::digest(body))))
    }

    /// The id as text.
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

/// What makes two deliveries the same one: who sent it, what the sender calls
/// it, and how often an operator put it back.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity {
    /// The configured sender.
    pub source: SourceName,
    /// The sender's own id.
    pub delivery_id: DeliveryId,
    /// 0 for the sender's own delivery; one more each time it is put back.
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

    /// What it is known by among the deliveries of its entity.
    #[doc(hidden)]
    pub fn hash(&self) -> IdentityHash {
        IdentityHash(self.digest()[..8].try_into().expect("eight of thirty-two"))
    }

    /// What it is known by among all there are, to others: 128 bits of its hash,
    /// as 22 characters.
    #[doc(hidden)]
    pub fn name(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.digest()[..16])
    }
}

/// 64 bits of SHA-256 over an [`Identity`]: enough to tell the deliveries of one
/// entity apart. Of a million, two share it once in 37 million entities. As text
/// 11 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdentityHash([u8; 8]);

impl IdentityHash {
    /// Takes a hash back from its bytes.
    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// Takes a hash back from its text.
    pub(crate) fn from_stored(text: &str) -> Option<Self> {
        let mut bytes = [0; 8];
        (URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) == Ok(8)).then_some(Self(bytes))
    }

    /// Its bytes.
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

/// A delivery's place in its entity's inbox. Only its order means anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The place behind this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place in front of this one.
    pub fn previous(self) -> Self {
        Self(self.0 - 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Grows with every grant of a lease and with every settle, also over release,
/// take-over and deletion of the row: one token is one handler start. Whoever
/// remembers the greatest token it has seen can refuse a late holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

impl FencingToken {
    /// The token that the next grant or settle makes.
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
    fn two_spellings_of_one_text_are_one_key() {
        let composed = EntityKey::parse("café/order/1").unwrap();
        let decomposed = EntityKey::parse("cafe\u{301}/order/1").unwrap();
        assert_eq!(composed, decomposed);
    }

    #[test]
    fn a_key_needs_a_namespace_and_a_name() {
        for text in ["", "order", "/order", "order/"] {
            assert_eq!(EntityKey::parse(text), Err(InvalidEntityKey::Unnamed), "{text:?}");
        }
    }

    #[test]
    fn a_key_longer_than_512_bytes_is_refused() {
        let longest = format!("n/{}", "x".repeat(EntityKey::MAX_BYTES - 2));
        assert!(EntityKey::parse(&longest).is_ok());
        assert_eq!(EntityKey::parse(&format!("{longest}x")), Err(InvalidEntityKey::TooLong(513)));
    }

    #[test]
    fn a_key_with_a_control_character_is_refused() {
        assert_eq!(EntityKey::parse("a/b\u{1f}c"), Err(InvalidEntityKey::ControlCharacter));
    }

    #[test]
    fn a_key_with_what_the_queue_cannot_carry_is_refused() {
        for character in ['\u{fffe}', '\u{ffff}'] {
            assert_eq!(EntityKey::parse(&format!("a/b{character}c")), Err(InvalidEntityKey::Noncharacter));
        }
        for character in ['\u{fffd}', '\u{10000}', '\u{1fffe}', '\u{10ffff}'] {
            assert!(EntityKey::parse(&format!("a/b{character}c")).is_ok(), "{character:?}");
        }
    }

    #[test]
    fn the_jobs_namespace_is_no_source_s() {
        assert_eq!(SourceName::parse("cron"), Err(InvalidSourceName::Reserved));
        for name in ["cron2", "acron", "cro"] {
            assert!(SourceName::parse(name).is_ok(), "{name}");
        }
        for name in ["", "Shop", "a/b", &"x".repeat(65)] {
            assert!(matches!(SourceName::parse(name), Err(InvalidSourceName::Form(_))), "{name}");
        }
    }

    #[test]
    fn a_redriven_delivery_has_an_identity_of_its_own() {
        let own =
            Identity { source: SourceName::parse("shop").unwrap(), delivery_id: DeliveryId::new("7"), redrive: 0 };
        let again = Identity { redrive: 1, ..own.clone() };
        assert_ne!(own.hash(), again.hash());
        assert_eq!((own.hash().to_string().len(), own.name().len()), (11, 22));
    }

    #[test]
    fn an_overlong_delivery_id_is_kept_as_its_hash() {
        let id = DeliveryId::new("x".repeat(300));
        assert!(id.as_str().starts_with("sha256:"));
        assert_ne!(id, DeliveryId::new("x".repeat(301)));
    }
}
