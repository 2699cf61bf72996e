//! What each sender of webhooks does: how it signs, what it calls a delivery,
//! which entity an event belongs to, when it says the event happened.
//!
//! One small file for each provider, all of them pure: bytes, secrets and a
//! time in, an answer out. Signatures are checked over the bytes as received,
//! in constant time, against every configured secret. To add a provider, write
//! its file, implement [`Provider`], and name it in [`by_name`], [`rule_of`] and
//! [`NAMES`].

use std::time::Duration;

use crate::{protocol::entity::DeliveryId, time::Timestamp};

mod adobe_commerce;
mod adobe_io_events;
mod aftership;
mod bigcommerce;
mod describe;
mod easypost;
mod etsy;
mod event_time;
mod facts;
mod generic;
mod json;
mod options;
mod paypal;
mod public_key;
mod published;
mod rule;
mod shippo;
mod shipstation_v1;
mod shipstation_v2;
mod shopify;
mod signature;
mod square;
mod standard_webhooks;
mod stripe;
mod tables;
mod token;
mod woocommerce;

#[cfg(test)]
mod tests;

pub use facts::{Facts, IdPart, Payload, Reads, Resolution, Signed, UNDOCUMENTED_HORIZON};
pub use generic::{Generic, GenericOptions, InvalidGeneric, InvalidPlace, Place};
pub use json::{is_pointer, pointer};
pub use options::Options;
pub use public_key::RsaKey;
pub use published::{Address, Keys, NoKeys, Published, Uncertified};
pub use rule::{Example, Kind, Line, Rule};
pub(crate) use signature::is_near;
pub use signature::{Encoding, HashName};
#[cfg(feature = "ingest")]
pub(crate) use token::unescaped;

/// One webhook as it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The headers.
    pub headers: &'a Headers,
    /// The body's bytes, exactly as received.
    pub body: &'a [u8],
}

/// Request headers; names are lower-case, the first of several equal names
/// counts. And the query of the URL that was called, where some senders put a
/// secret.
#[derive(Clone, Default)]
pub struct Headers {
    fields: Vec<(String, String)>,
    query: String,
}

impl Headers {
    /// The first value of `name`, which must be lower-case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    /// The same, of a header that the provider always sends.
    fn required(&self, name: &str) -> Result<&str, Unverified> {
        self.get(name).ok_or_else(|| Unverified::Missing(name.into()))
    }

    /// All headers, names in lower case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same headers, of a request whose URL has this query, as it was sent
    /// and without the question mark.
    #[must_use]
    pub fn with_query(self, query: impl Into<String>) -> Self {
        Self { query: query.into(), ..self }
    }

    /// The URL's query, as it was sent.
    pub fn query(&self) -> &str {
        &self.query
    }
}

/// Without the query, which may hold a secret.
impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let field = |(name, value): (N, V)| (name.as_ref().to_ascii_lowercase(), value.into());
        Self { fields: headers.into_iter().map(field).collect(), query: String::new() }
    }
}

/// A shared secret. Never shown: its `Debug` hides it.
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "String")]
pub struct Secret(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    /// As the sender shows it; the provider's rules make the key of it.
    Text(String),
    /// The key itself.
    Key(Vec<u8>),
}

impl Secret {
    /// Takes a secret as the sender shows it.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Form::Text(secret.into()))
    }

    /// With `hex:` or `base64:` in front, the key that is encoded behind it, for
    /// senders whose key is no text; anything else as it is.
    ///
    /// # Errors
    ///
    /// What is behind it is not in that encoding; says so without repeating it.
    pub fn decoded(self) -> Result<Self, &'static str> {
        let Some(text) = self.text() else { return Ok(self) };
        let (key, refused) = if let Some(digits) = text.strip_prefix("hex:") {
            (Encoding::Hex.decode(digits), "what is behind `hex:` is not hexadecimal")
        } else if let Some(letters) = text.strip_prefix("base64:") {
            (Encoding::Base64.decode(letters), "what is behind `base64:` is not base64")
        } else {
            return Ok(self);
        };
        key.map(|key| Self(Form::Key(key))).ok_or(refused)
    }

    /// The secret's bytes, for the code that signs and verifies.
    pub fn expose(&self) -> &[u8] {
        match &self.0 {
            Form::Text(text) => text.as_bytes(),
            Form::Key(key) => key,
        }
    }

    /// The secret as the sender shows it, for rules that make a key of it;
    /// `None`: these are the key's bytes already.
    pub fn text(&self) -> Option<&str> {
        match &self.0 {
            Form::Text(text) => Some(text),
            Form::Key(_) => None,
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Secrets as a document has them.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a secret is a text; several, while one is being rolled, are a list of texts")]
pub(crate) enum Secrets {
    One(Secret),
    Several(Vec<Secret>),
}

impl Default for Secrets {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl From<Secrets> for Vec<Secret> {
    fn from(secrets: Secrets) -> Self {
        match secrets {
            Secrets::One(secret) => vec![secret],
            Secrets::Several(secrets) => secrets,
        }
    }
}

/// Why a webhook is not believed. Each is answered 401; the text names no
/// secret and no signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A header that the provider always sends is not there.
    #[error("header {0} is missing")]
    Missing(String),
    /// A header is there and cannot be read.
    #[error("header {0} cannot be read")]
    Malformed(String),
    /// The secret that the provider sends in the URL is not there.
    #[error("the URL that was called has no `?token=`, which must hold the source's secret")]
    NoToken,
    /// Rightly signed, but at this time: too long ago, or too far in the future.
    #[error("the signature is of {0}, which is too far from now")]
    Stale(Timestamp),
    /// Signed with none of the configured secrets, or with none of the sender's
    /// keys, or for somebody else.
    #[error("no configured secret makes this signature")]
    Mismatch,
    /// The key that the sender publishes here is to be fetched; then it can be
    /// told.
    #[error("the sender's key at {0} was not fetched")]
    Unfetched(Address),
    /// What was fetched from here does not have the key: it may be older than the
    /// key is. Fetched just now, it means that the sender has no such key.
    #[error("there is no such key at {0}")]
    Outdated(Address),
    /// What is published here is no key that can be believed, which is the
    /// sender's mistake or ours, and says nothing about the webhook.
    #[error("the sender's key at {0} cannot be used: {1}")]
    Unusable(Address, String),
    /// The certificate of the sender's key does not speak for it.
    #[error("the sender's certificate: {0}")]
    Certificate(Uncertified),
}

impl Unverified {
    /// The header of that name cannot be read.
    fn malformed(name: &str) -> Self {
        Self::Malformed(name.into())
    }
}

/// How far a signed time may be from ours, where a source does not say. Stripe's
/// and Standard Webhooks' own recommendation.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// What a verified webhook is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// What the provider calls this delivery; the same for every retry.
    pub delivery_id: DeliveryId,
    /// How long the provider retries a delivery without an id: its `delivery_id`
    /// ends with the body's hash. `None`: the id is the provider's own.
    pub repeated_within: Option<Duration>,
    /// What happened, in the provider's words: `orders/create`. At most 128
    /// characters, none of them a control character; `unknown` when the sender
    /// does not say.
    pub topic: String,
    /// Events whose times can be compared: the part of the topic that names
    /// the thing, such as `orders`. Never empty.
    pub family: String,
    /// Whose it is: the shop, store or account that the provider names.
    pub account: Option<String>,
    /// When it happened, by the provider's clock.
    pub event_time: Option<Timestamp>,
    /// The entity by the provider's own rule, without the source in front:
    /// `order/450789469`. `None`: it cannot be found.
    pub entity: Option<String>,
}

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// It is a delivery.
    Delivery,
    /// A sender's check whether anybody is there: answer 200, keep nothing.
    Ping,
}

/// One provider's rules.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Why `secret` cannot be what the sender signs with, for whoever put it
    /// there; `None`: it can. With one that is empty nothing is verified, with
    /// one of another kind nothing that the sender signs: a configuration that
    /// holds one is better refused at the start than by every webhook.
    fn objection(&self, secret: &Secret) -> Option<&'static str>;

    /// Whether the sender signed these bytes with one of `secrets`. All of
    /// them are tried, in a time that does not tell which one it was. By default
    /// it has not: for providers that are [`published`](Self::published).
    fn verify(&self, _request: Request<'_>, _secrets: &[Secret], _now: Timestamp) -> Result<Verified, Unverified> {
        Err(Unverified::Mismatch)
    }

    /// What a verified request is about. Total: whatever cannot be found is
    /// replaced as this type's fields say, so that nothing verified is refused.
    fn describe(&self, request: Request<'_>) -> Described;

    /// The headers that the provider would sign `body` with: for samples,
    /// local runs and tests. `headers` are those it sends besides; the ones
    /// returned take the place of any of the same name. None if `secret` is
    /// not usable, and by default: nobody else has the key of a provider that is
    /// [`published`](Self::published).
    fn sign(&self, _headers: &Headers, _body: &[u8], _secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        Vec::new()
    }

    /// How it is verified by a key that the sender publishes; `None`: by secrets,
    /// as [`Provider::verify`] does.
    fn published(&self) -> Option<&dyn Published> {
        None
    }

    /// So many failures in a row make the provider switch an endpoint off; `None`:
    /// no such number is known.
    fn failures_in_a_row(&self) -> Option<u32> {
        None
    }

    /// Whether the provider sends again what was not answered 2xx. Of one that does
    /// not say, it is believed.
    fn tries_again(&self) -> bool {
        true
    }

    /// The parameter of a GET's query whose value is to be answered, before
    /// anything is posted.
    fn challenge(&self) -> Option<&'static str> {
        None
    }

    /// This provider as `options` have it; `None`: as it is.
    ///
    /// # Errors
    ///
    /// Which option it lacks or has no use for, for whoever wrote the options.
    fn with(&self, options: &Options) -> Result<Option<Box<dyn Provider>>, String> {
        match options.url {
            None => Ok(None),
            Some(_) => Err("`url` is for providers that sign the URL they call; leave it out".into()),
        }
    }

    /// The query of the URL that the provider calls, if the secret stands in
    /// it; the counterpart of [`sign`](Self::sign).
    fn query(&self, _secret: &Secret) -> Option<String> {
        None
    }

    /// The body, JSON, that the provider demands in the answer to a delivery
    /// that was taken; `None`: it looks at the status alone.
    fn answer(&self) -> Option<&'static str> {
        None
    }
}

/// Whether this build verifies webhooks. One that does not carries none of the
/// code for it, and knows the providers by their names alone.
pub const VERIFIES: bool = cfg!(any(test, feature = "verify"));

/// The signing rules of Standard Webhooks, by which `forward` signs too.
pub(crate) fn standard_webhooks() -> &'static dyn Provider {
    &standard_webhooks::STANDARD_WEBHOOKS
}

/// The provider of that name, as `provider = "…"` gives it; `None` if there is
/// none, or this build verifies nothing. The generic one needs options and is
/// deserialized from them.
pub fn by_name(name: &str) -> Option<&'static dyn Provider> {
    if !VERIFIES {
        return None;
    }
    Some(match name {
        "adobe-commerce" => &adobe_commerce::AdobeCommerce,
        "adobe-io-events" => &adobe_io_events::AdobeIoEvents,
        "aftership" => &aftership::AfterShip,
        "bigcommerce" => &bigcommerce::BIGCOMMERCE,
        "easypost" => &easypost::EasyPost,
        "etsy" => &etsy::ETSY,
        "paypal" => &paypal::PayPal,
        "shippo" => &shippo::Shippo,
        "shipstation-v1" => &shipstation_v1::ShipStationV1,
        "shipstation-v2" => &shipstation_v2::ShipStationV2,
        "shopify" => &shopify::Shopify,
        "square" => &square::WITHOUT_URL,
        "standard-webhooks" => &standard_webhooks::STANDARD_WEBHOOKS,
        "stripe" => &stripe::Stripe,
        "woocommerce" => &woocommerce::WooCommerce,
        _ => return None,
    })
}

/// What is known of the provider of that name; `None` if there is no such
/// provider, and for `generic`, whose options say it.
pub fn rule_of(name: &str) -> Option<Rule> {
    Some(match name {
        "adobe-commerce" => adobe_commerce::RULE,
        "adobe-io-events" => adobe_io_events::RULE,
        "aftership" => aftership::RULE,
        "bigcommerce" => bigcommerce::RULE,
        "easypost" => easypost::RULE,
        "etsy" => etsy::RULE,
        "paypal" => paypal::RULE,
        "shippo" => shippo::RULE,
        "shipstation-v1" => shipstation_v1::RULE,
        "shipstation-v2" => shipstation_v2::RULE,
        "shopify" => shopify::RULE,
        "square" => square::RULE,
        "standard-webhooks" => standard_webhooks::RULE,
        "stripe" => stripe::RULE,
        "woocommerce" => woocommerce::RULE,
        _ => return None,
    })
}

/// The names that [`by_name`] knows, and `generic`.
pub const NAMES: [&str; 16] = [
    "adobe-commerce",
    "adobe-io-events",
    "aftership",
    "bigcommerce",
    "easypost",
    "etsy",
    "generic",
    "paypal",
    "shippo",
    "shipstation-v1",
    "shipstation-v2",
    "shopify",
    "square",
    "standard-webhooks",
    "stripe",
    "woocommerce",
];
