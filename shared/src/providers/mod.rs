//! The rules of each provider: how it signs its webhooks and identifies a delivery, and which
//! entity and time its events have.
//!
//! Each provider is a small module of pure functions over bytes, secrets and a time.
//! Signatures are checked over the bytes as received, in constant time, against every
//! configured secret. To add a provider, write its module, implement [`Provider`], and add a
//! line to `providers!`.

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
pub use generic::{Generic, GenericOptions, InvalidGeneric, InvalidValueLocation, ValueLocation};
pub use json::{is_pointer, pointer};
pub use public_key::RsaKey;
pub use published::{Address, Keys, NoKeys, Published, Uncertified};
pub use rule::{Example, Kind, Line, Rule};
pub(crate) use signature::is_near;
pub use signature::{Encoding, HashName};
#[cfg(feature = "ingest")]
pub(crate) use token::unescaped;

#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub headers: &'a Headers,
    /// The body, exactly as received.
    pub body: &'a [u8],
}

/// The headers of a request, and the query of its URL, in which some senders put a secret.
/// Header names are in lower case. If several headers have the same name, the first counts.
#[derive(Clone, Default)]
pub struct Headers {
    fields: Vec<(String, String)>,
    query: String,
}

impl Headers {
    /// Returns the first value of the header `name`, which must be in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a header that the provider always sends.
    fn required(&self, name: &str) -> Result<&str, Unverified> {
        self.get(name).ok_or_else(|| Unverified::Missing(name.into()))
    }

    /// Returns all headers. Their names are in lower case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Sets the query of the request's URL, as sent, without the question mark.
    #[must_use]
    pub fn with_query(self, query: impl Into<String>) -> Self {
        Self { query: query.into(), ..self }
    }

    pub fn query(&self) -> &str {
        &self.query
    }
}

/// Prints the headers without the query, which may hold a secret.
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

/// A shared secret. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "String")]
pub struct Secret(Form);

#[derive(Clone, PartialEq, Eq)]
enum Form {
    /// The text that the sender shows. The provider derives the key from this text.
    Text(String),
    /// The bytes of the key itself.
    Key(Vec<u8>),
}

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(Form::Text(secret.into()))
    }

    /// Decodes a secret that starts with `hex:` or `base64:`, for senders whose key is not
    /// text. Any other secret is returned unchanged.
    ///
    /// # Errors
    ///
    /// The text after the prefix is not in that encoding. The message does not repeat the
    /// text.
    pub fn decoded(self) -> Result<Self, &'static str> {
        let Some(text) = self.text() else { return Ok(self) };
        let (key, refused) = if let Some(digits) = text.strip_prefix("hex:") {
            (Encoding::Hex.decode(digits), "the text after `hex:` is not hexadecimal")
        } else if let Some(letters) = text.strip_prefix("base64:") {
            (Encoding::Base64.decode(letters), "the text after `base64:` is not base64")
        } else {
            return Ok(self);
        };
        key.map(|key| Self(Form::Key(key))).ok_or(refused)
    }

    pub fn expose(&self) -> &[u8] {
        match &self.0 {
            Form::Text(text) => text.as_bytes(),
            Form::Key(key) => key,
        }
    }

    /// Returns the secret as the sender shows it, or `None` if it was given as the
    /// bytes of the key.
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

/// The reason why a webhook could not be verified. Its message contains no secret and no
/// signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error("header {0} is missing")]
    Missing(String),
    #[error("header {0} cannot be read")]
    Malformed(String),
    /// The URL lacks the secret that the provider sends in it.
    #[error("the URL has no `?token=` with the source's secret")]
    NoToken,
    #[error("the signature was made at {0}, too far from now")]
    Stale(Timestamp),
    /// No configured secret or published key made the signature, or the webhook is meant for
    /// another recipient.
    #[error("no configured secret matches the signature")]
    Mismatch,
    /// The sender's published key has not been fetched from this address yet.
    #[error("the sender's key at {0} was not fetched")]
    Unfetched(Address),
    /// The document fetched from this address lacks the key. A cached document may be older
    /// than the key. If a fresh one lacks the key too, the sender has no such key.
    #[error("the document at {0} does not contain the sender's key")]
    Outdated(Address),
    /// The document at this address holds no usable key. The webhook itself may be valid:
    /// either the sender or this project is at fault.
    #[error("the sender's key at {0} cannot be used: {1}")]
    Unusable(Address, String),
    /// The certificate of the sender's key was rejected.
    #[error("the sender's certificate: {0}")]
    Certificate(Uncertified),
}

impl Unverified {
    fn malformed(name: &str) -> Self {
        Self::Malformed(name.into())
    }
}

/// The default limit on the difference between a signed time and now. Stripe and Standard
/// Webhooks recommend it.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// What a provider's rule finds in a verified webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The provider's id of this delivery, which is the same for every retry. Without such an
    /// id, it ends with the body's hash.
    pub delivery_id: DeliveryId,
    /// The time during which the provider retries a delivery that has no id: an equal body
    /// within this time is a repeat. `None` if the provider sent an id.
    pub repeated_within: Option<Duration>,
    /// The provider's topic, such as `orders/create`, or `unknown` if the sender gives none.
    /// It has at most 128 characters, none of them a control character.
    pub topic: String,
    /// The part of the topic that names the kind of object, such as `orders`. Never empty.
    /// Event times are compared only within a family.
    pub family: String,
    /// The shop, store or account that the webhook names.
    pub account: Option<String>,
    /// The time of the event by the provider's clock.
    pub event_time: Option<Timestamp>,
    /// The entity by the provider's own rule, such as `order/450789469`, without the source's
    /// prefix. `None` if the event names no entity.
    pub entity: Option<String>,
}

/// The kind of a verified request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    Delivery,
    /// A liveness check of the sender. It is answered 200, and nothing is stored.
    Ping,
}

/// The rules of one provider for its webhooks.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Returns why this provider cannot use `secret`, or `None` if it can. No webhook could be
    /// verified with such a secret, so a configuration that contains one is refused at the
    /// start. The default refuses empty secrets.
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        signature::objection(secret, &[], signature::EMPTY)
    }

    /// Verifies that the sender signed the request with one of `secrets`. All secrets are
    /// tried, in a time that does not reveal which one matched. The default refuses every
    /// request; providers with a [`published`](Self::published) key keep it.
    fn verify(&self, _request: Request<'_>, _secrets: &[Secret], _now: Timestamp) -> Result<Verified, Unverified> {
        Err(Unverified::Mismatch)
    }

    /// Describes a verified request. This never fails: a missing value gets the
    /// default that [`Described`] documents.
    fn describe(&self, request: Request<'_>) -> Described;

    /// Returns the headers with which the provider would sign `body`, for samples, local runs
    /// and tests. `headers` are the request's other headers; a returned header replaces one of
    /// the same name. Returns none if `secret` is unusable, and for providers with a
    /// [`published`](Self::published) key, because only they have the private key.
    fn sign(&self, _headers: &Headers, _body: &[u8], _secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns how to verify with a key that the sender publishes, or `None` if
    /// the provider uses secrets and [`Provider::verify`].
    fn published(&self) -> Option<&dyn Published> {
        None
    }

    /// Returns the number of consecutive failures after which the provider disables an
    /// endpoint. `None` if the provider does not document the number.
    fn failure_limit(&self) -> Option<u32> {
        None
    }

    /// Returns whether the provider retries a delivery that was not answered 2xx. `true` if
    /// the provider's documentation does not say.
    fn has_retries(&self) -> bool {
        true
    }

    /// Returns the name of the query parameter that a provider sends in a GET to test the
    /// endpoint. The answer must repeat the parameter's value before the provider sends
    /// webhooks.
    fn challenge(&self) -> Option<&'static str> {
        None
    }

    /// Returns this provider for `url`, the URL that is registered with it, byte for byte.
    /// Returns `None` if the provider does not sign the URL.
    ///
    /// # Errors
    ///
    /// The provider signs the URL, and `url` is missing or invalid. Or `url` is given, and the
    /// provider does not sign it.
    fn with_url(&self, url: Option<&str>) -> Result<Option<Box<dyn Provider>>, String> {
        match url {
            None => Ok(None),
            Some(_) => Err("`url` is only for providers that sign the URL they call; remove it".into()),
        }
    }

    /// Returns the query of the URL that the provider calls, if the query holds the secret. It
    /// is the counterpart of [`sign`](Self::sign).
    fn query(&self, _secret: &Secret) -> Option<String> {
        None
    }

    /// Returns the JSON body that the provider requires in the answer to an accepted delivery.
    /// `None` if the provider only reads the answer's status.
    fn answer(&self) -> Option<&'static str> {
        None
    }
}

/// Whether this build can verify webhooks. A build without the feature `verify` contains only
/// the providers' names and facts.
pub const VERIFIES: bool = cfg!(any(test, feature = "verify"));

/// Returns the signing rules of Standard Webhooks, with which the handler `forward` signs too.
pub(crate) fn standard_webhooks() -> &'static dyn Provider {
    &standard_webhooks::STANDARD_WEBHOOKS
}

/// Declares the providers: for each, the name that sources use, the module, and the
/// implementation. `generic` has no implementation here, because its options make it.
macro_rules! providers {
    ($($name:literal $(=> $module:ident::$provider:ident)?,)*) => {
        /// The names by which a source can choose its `provider`.
        pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];

        /// Returns the provider called `name`. Returns `None` for `generic`, for an unknown
        /// name, and in a build that cannot verify.
        pub fn by_name(name: &str) -> Option<&'static dyn Provider> {
            if !VERIFIES {
                return None;
            }
            match name {
                $($($name => Some(&$module::$provider),)?)*
                _ => None,
            }
        }

        /// Returns the facts about the provider called `name`. Returns `None` for unknown
        /// names, and for `generic`, which the source's options describe.
        pub fn rule_of(name: &str) -> Option<Rule> {
            match name {
                $($($name => Some($module::RULE),)?)*
                _ => None,
            }
        }
    };
}

providers! {
    "adobe-commerce" => adobe_commerce::AdobeCommerce,
    "adobe-io-events" => adobe_io_events::AdobeIoEvents,
    "aftership" => aftership::AfterShip,
    "bigcommerce" => bigcommerce::BIGCOMMERCE,
    "easypost" => easypost::EasyPost,
    "etsy" => etsy::ETSY,
    "generic",
    "paypal" => paypal::PayPal,
    "shippo" => shippo::Shippo,
    "shipstation-v1" => shipstation_v1::ShipStationV1,
    "shipstation-v2" => shipstation_v2::ShipStationV2,
    "shopify" => shopify::Shopify,
    "square" => square::WITHOUT_URL,
    "standard-webhooks" => standard_webhooks::STANDARD_WEBHOOKS,
    "stripe" => stripe::Stripe,
    "woocommerce" => woocommerce::WooCommerce,
}
