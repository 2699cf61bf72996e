//! Keys and identifiers: entity keys, sources, delivery identities, sequences and fencing tokens.
//!
//! Text from outside is parsed into these types once, where it enters the program.

mod identity;

use std::fmt;

pub use identity::{DeliveryId, Identity, IdentityHash};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unicode_normalization::{UnicodeNormalization, is_nfc};

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
        // Nearly all keys are, and the key of each row that is read passes here. Such text is NFC.
        let is_printable_ascii = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let is_normal = is_printable_ascii || is_nfc(text);
        let text = if is_normal { text.to_owned() } else { text.nfc().collect::<String>() };
        if !is_printable_ascii && text.chars().any(char::is_control) {
            return Err(InvalidEntityKey::ControlCharacter);
        }
        if !is_printable_ascii && text.contains(['\u{fffe}', '\u{ffff}']) {
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
        short_hash(&self.0)
    }

    /// Returns 64 bits of the hash of the account to which the entity belongs, in hexadecimal.
    ///
    /// The account is the key without its last two parts: the shop of `shopify/acme.example/order/1`, the source of
    /// `shopify/order/1`. A shorter key's account is its first part.
    pub fn account_hash(&self) -> String {
        let account = self.0.rsplitn(3, '/').nth(2).or_else(|| self.0.split('/').next());
        short_hash(account.unwrap_or_default())
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

/// Returns the first 64 bits of a text's SHA-256 hash in hexadecimal.
fn short_hash(text: &str) -> String {
    Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
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

    #[test]
    fn entities_of_one_account_have_its_hash() {
        let hash = |key: &str| EntityKey::parse(key).unwrap().account_hash();
        for (key, account) in [
            ("shopify/acme.example/order/1", "shopify/acme.example"),
            ("shopify/order/1", "shopify"),
            ("shopify/unrouted", "shopify"),
            ("shopify/eu/acme.example/order/1", "shopify/eu/acme.example"),
        ] {
            assert_eq!(hash(key), short_hash(account), "{key}");
        }
        assert_ne!(hash("shopify/acme.example/order/1"), hash("shopify/other.example/order/1"));
        // Another hash would split each account in two while versions change.
        assert_eq!(hash("shopify/order/1"), "8a72266588ef612e");
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
}
