//! The rules of each provider: how it signs its webhooks and identifies a delivery, and which
//! entity and time its events have.
//!
//! Each provider is a small module of pure functions over bytes, secrets and a time.
//! Signatures are checked over the bytes as received, in constant time, against every
//! configured secret. `CONTRIBUTING.md` says how to add a provider.

use std::{borrow::Cow, time::Duration};

use crate::{protocol::entity::DeliveryId, time::Timestamp};

mod adobe_commerce;
mod adobe_io_events;
mod adyen;
mod aftership;
mod amazon_sp_api;
mod bigcommerce;
mod chargebee;
mod checkout_com;
mod commercetools;
mod describe;
mod easypost;
mod etsy;
mod event_time;
mod facts;
mod generic;
mod github;
#[cfg(any(test, feature = "verify"))]
mod guessable;
mod inlet;
mod json;
mod klarna;
mod mollie;
mod mollie_classic;
mod paypal;
mod preset;
mod public_key;
mod published;
mod razorpay;
mod rule;
mod sendcloud;
mod shippo;
mod shipstation_v1;
mod shipstation_v2;
mod shopify;
mod signature;
mod signing;
mod slack;
mod square;
pub(crate) mod standard_webhooks;
mod stripe;
mod tables;
mod tiktok_shop;
mod token;
mod twilio;
mod unverified;
mod woocommerce;

#[cfg(test)]
mod tests;

pub use describe::is_known as is_known_topic;
pub(crate) use describe::{FORM, QUERY, parameter};
pub use facts::{
    Facts, FailureLimit, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts, UNDOCUMENTED_HORIZON,
};
pub use generic::{Generic, GenericOptions, InvalidGeneric, InvalidValueLocation, ValueLocation};
#[cfg(any(test, feature = "verify"))]
pub use guessable::is_placeholder_id;
pub use inlet::{Envelope, Inlet};
pub(crate) use json::json_text;
pub use json::{has_lone_surrogate, is_pointer, pointer, unreadable, wide};
pub use paypal::crc32;
pub use public_key::{RsaKey, sign_by_rsa};
pub use published::{Address, Keys, NoKeys, Published, Uncertified};
pub use rule::{EntityKind, Example, Rule, RuleLine};
pub use signature::{Encoding, HashName};
pub use signing::{Part, Signing, TimePlace};
#[cfg(feature = "ingest")]
pub(crate) use token::unescaped;
pub use unverified::Unverified;

#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub headers: &'a Headers,
    /// The body, exactly as received.
    pub body: &'a [u8],
}

/// The headers of a request, and the query of its URL. Some senders put a secret into the query.
/// Header names are in lower case. If several headers have the same name, the first one counts. A header with bytes that
/// are not UTF-8 counts as missing, because two values with such bytes may look the same.
#[derive(Clone, Default)]
pub struct Headers {
    fields: Vec<(String, String)>,
    query: String,
}

impl Headers {
    /// Returns the value of the header `name`, which must be in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of the header `name`, without white space around it. Lambda joins the values of a
    /// header that comes several times by commas. `None` if the header is missing or has only empty values.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.get(name)?.split(',').map(str::trim).find(|value| !value.is_empty())
    }

    fn required(&self, name: &str) -> Result<&str, Unverified> {
        self.get(name).ok_or_else(|| Unverified::Missing(name.into()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Sets the query of the request's URL, as sent and without the question mark.
    #[must_use]
    pub fn with_query(self, query: impl Into<String>) -> Self {
        Self { query: query.into(), ..self }
    }

    pub fn query(&self) -> &str {
        &self.query
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let field = |(name, value): (N, V)| (name.as_ref().to_ascii_lowercase(), value.into());
        let is_readable = |(_, value): &(String, String)| !value.contains(char::REPLACEMENT_CHARACTER);
        Self { fields: headers.into_iter().map(field).filter(is_readable).collect(), query: String::new() }
    }
}

#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "String")]
pub struct Secret(SecretForm);

#[derive(Clone, PartialEq, Eq)]
enum SecretForm {
    /// The text that the sender's web page shows. The provider's rules derive the key from this text.
    Text(String),
    /// The bytes of the key, decoded from a secret with the prefix `hex:` or `base64:`.
    Key(Vec<u8>),
}

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(SecretForm::Text(secret.into()))
    }

    /// Decodes a secret that starts with `hex:` or `base64:`, for senders whose key is not text. Any
    /// other secret is returned unchanged. An error message does not repeat the secret.
    pub fn decoded(self) -> Result<Self, &'static str> {
        let Some(text) = self.text() else { return Ok(self) };
        let (key, refused) = if let Some(digits) = text.strip_prefix("hex:") {
            (Encoding::Hex.decode(digits), "the text after `hex:` is not hexadecimal")
        } else if let Some(letters) = text.strip_prefix("base64:") {
            (Encoding::Base64.decode(letters), "the text after `base64:` is not base64")
        } else {
            return Ok(self);
        };
        key.map(|key| Self(SecretForm::Key(key))).ok_or(refused)
    }

    /// Returns what makes the secret guessable, or `None` if nothing is known to.
    #[cfg(any(test, feature = "verify"))]
    pub fn guessable(&self) -> Option<&'static str> {
        guessable::guessable(self)
    }

    pub fn expose(&self) -> &[u8] {
        match &self.0 {
            SecretForm::Text(text) => text.as_bytes(),
            SecretForm::Key(key) => key,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match &self.0 {
            SecretForm::Text(text) => Some(text),
            SecretForm::Key(_) => None,
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

/// The default limit on the difference between the time in a signature and the current time. Stripe
/// and Standard Webhooks recommend this limit.
pub const TOLERANCE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The provider's id of this delivery, which all retries share. If the provider sends no id, this
    /// value contains the hash of the body instead.
    pub delivery_id: DeliveryId,
    /// The period in which a second delivery with the same body counts as a repeat. It is the time over
    /// which the provider retries. `None` if the provider sends an id.
    pub repeated_within: Option<Duration>,
    /// The provider's topic, such as `orders/create`, or `unknown` if the sender gives none. The topic
    /// has at most 128 characters, and no control characters.
    pub topic: String,
    /// The topic family: the part of the topic that names the kind of object, such as `orders`. Never
    /// empty. Event times are compared only between deliveries of the same topic family.
    pub family: String,
    pub account: Option<String>,
    /// The time of the event, by the provider's clock.
    pub event_time: Option<Timestamp>,
    /// The entity that the provider's rules find, such as `order/450789469`, without the source's prefix.
    /// `None` if the event names no entity.
    pub entity: Option<String>,
}

impl Described {
    pub fn has_topic(&self) -> bool {
        describe::is_known(&self.topic)
    }
}

/// A verified request, whose time is still to be compared with the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    pub verified: Verified,
    /// The time that the sender signed, if it signs one.
    pub signed_at: Option<Timestamp>,
}

impl Proof {
    pub(crate) const DELIVERY: Self = Self { verified: Verified::Delivery, signed_at: None };
    pub(crate) const PING: Self = Self { verified: Verified::Ping, signed_at: None };

    /// Checks that the signed time, if there is one, differs from `now` by at most `tolerance`. A stale time means a
    /// replay or a wrong clock, never a forgery.
    pub fn near(self, now: Timestamp, tolerance: Duration) -> Result<Verified, Unverified> {
        match self.signed_at {
            Some(at) if now.since(at) > tolerance || at.since(now) > tolerance => Err(Unverified::Stale(at)),
            _ => Ok(self.verified),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    Delivery,
    /// A test request with which the sender checks that the endpoint answers. The answer is 200, and
    /// nothing is stored.
    Ping,
}

pub trait Provider: Send + Sync + std::fmt::Debug {
    /// Returns why this provider cannot verify webhooks with `secret`, or `None` if it can. A Lambda function refuses
    /// to start with such a secret. The default implementation refuses empty secrets.
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        signature::HmacKey::of(secret).is_none().then(|| signature::no_key(secret))
    }

    /// Verifies that the sender signed the request with one of `secrets`. The implementation tries every
    /// secret, so the time that it takes does not reveal which one matched. The default implementation
    /// refuses every request, for providers with a [`published`](Self::published) key.
    fn verify(&self, _request: Request<'_>, _secrets: &[Secret]) -> Result<Proof, Unverified> {
        Err(Unverified::Mismatch)
    }

    /// Reads the topic, entity and other fields of a verified request. The function never fails: a
    /// missing value gets the default that [`Described`] documents.
    fn describe(&self, request: Request<'_>) -> Described {
        tables::describe(self.reads().expect("a provider without tables has its own method"), request)
    }

    /// Returns the table of what the provider's requests hold. `None` for `generic`, whose options replace it.
    fn reads(&self) -> Option<&Reads> {
        None
    }

    /// Returns how the provider's events arrive. Those of `generic` may arrive in any way.
    fn inlet(&self) -> Inlet {
        self.reads().map_or(Inlet::WebhooksOrQueue(&[]), |reads| reads.inlet)
    }

    /// Signs `body` as the provider would, for samples, local runs and tests. Returns headers that
    /// replace those of the same name in `headers`. Returns no headers if `secret` is unusable, or
    /// if only the provider has the private key.
    fn sign(&self, _headers: &Headers, _body: &[u8], _secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns `body` with signatures under `secret` in the places of those that it has. `None` if the provider does not
    /// sign inside the body.
    fn signed_body(&self, _body: &[u8], _secret: &Secret) -> Option<Vec<u8>> {
        None
    }

    /// Returns the rules for a provider that publishes its public key. `None` if the provider uses
    /// secrets and [`Provider::verify`].
    fn published(&self) -> Option<&dyn Published> {
        None
    }

    /// Returns whether the provider retries a delivery that was not answered 2xx. Providers that do not
    /// document this count as retrying.
    fn has_retries(&self) -> bool {
        self.reads().is_none_or(Reads::has_retries)
    }

    /// Returns whether two events may have equal bodies, and the second would count as a repeat of the first. Only
    /// `generic` knows of this, from its options.
    fn may_mistake_events_for_repeats(&self) -> bool {
        false
    }

    /// Returns this provider's rules for the URL that is registered with it, if the provider signs this
    /// URL. Otherwise returns `None`. The parameter `url` must equal the registered URL byte for byte.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider signs the URL and `url` is missing or invalid, or if `url` is
    /// given for a provider that does not sign it.
    fn with_url(&self, url: Option<&str>) -> Result<Option<Box<dyn Provider>>, String> {
        match url {
            None => Ok(None),
            Some(_) => Err("`url` is only for providers that sign the URL they call; remove it".into()),
        }
    }

    /// Returns the query parameter of the provider's test request, a GET whose answer must repeat the parameter's value.
    fn challenge(&self) -> Option<&str> {
        self.reads()?.challenge
    }

    /// Returns the value that the answer to a verified test request must repeat as `challenge`.
    fn posted_challenge<'a>(&self, request: Request<'a>) -> Option<Cow<'a, str>> {
        pointer(request.body, self.reads()?.posted_challenge?)
    }

    /// Returns the body that the provider requires in the answer to an accepted delivery. `None` if it reads only the
    /// answer's status.
    fn answer(&self) -> Option<&str> {
        self.reads()?.answer
    }

    /// Returns the query of the URL that the provider calls, if the provider sends the secret in the
    /// query instead of a signature.
    fn query(&self, _secret: &Secret) -> Option<String> {
        None
    }
}

/// Whether this build can verify webhooks. Without the feature `verify`, a build contains only the
/// providers' names and facts.
pub const VERIFIES: bool = cfg!(any(test, feature = "verify"));

pub(crate) fn standard_webhooks() -> &'static dyn Provider {
    &standard_webhooks::STANDARD_WEBHOOKS
}

/// Declares the providers. Each line has the name that sources use, the module and the
/// implementation. The name `generic` has no implementation here, because the options of each source
/// create it.
macro_rules! providers {
    ($($name:literal $(=> $module:ident::$provider:ident)?,)*) => {
        pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];

        /// Returns the rules of the provider called `name`. Returns `None` for `generic`, for an unknown
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

        /// Returns the names of the providers that send webhooks.
        pub fn webhook_senders() -> impl Iterator<Item = &'static str> {
            NAMES.into_iter().filter(|name| by_name(name).is_none_or(|provider| provider.inlet().has_webhooks()))
        }

        /// Returns the rows of the shared test cases, of each folder.
        #[cfg(test)]
        fn rows() -> Vec<tests::rows::ProviderRow> {
            [generic::tests::rows(), $($($module::tests::rows(),)?)*].into_iter().flatten().collect()
        }

        /// Returns the samples in `events/` of each folder, and what they must describe.
        #[cfg(test)]
        fn samples() -> Vec<tests::rows::Expected> {
            [generic::tests::SAMPLES, $($($module::tests::SAMPLES,)?)*].concat()
        }

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
    "adyen" => adyen::Adyen,
    "aftership" => aftership::AfterShip,
    "amazon-sp-api" => amazon_sp_api::AMAZON_SP_API,
    "bigcommerce" => bigcommerce::BIGCOMMERCE,
    "chargebee" => chargebee::CHARGEBEE,
    "checkout-com" => checkout_com::CHECKOUT_COM,
    "commercetools" => commercetools::COMMERCETOOLS,
    "easypost" => easypost::EASYPOST,
    "etsy" => etsy::ETSY,
    "generic",
    "github" => github::GITHUB,
    "klarna" => klarna::KLARNA,
    "mollie" => mollie::MOLLIE,
    "mollie-classic" => mollie_classic::MOLLIE_CLASSIC,
    "paypal" => paypal::PayPal,
    "razorpay" => razorpay::RAZORPAY,
    "sendcloud" => sendcloud::SENDCLOUD,
    "shippo" => shippo::Shippo,
    "shipstation-v1" => shipstation_v1::SHIPSTATION_V1,
    "shipstation-v2" => shipstation_v2::ShipStationV2,
    "shopify" => shopify::Shopify,
    "slack" => slack::SLACK,
    "square" => square::WITHOUT_URL,
    "standard-webhooks" => standard_webhooks::STANDARD_WEBHOOKS,
    "stripe" => stripe::STRIPE,
    "tiktok-shop" => tiktok_shop::TikTokShop,
    "twilio" => twilio::WITHOUT_URL,
    "woocommerce" => woocommerce::WooCommerce,
}
