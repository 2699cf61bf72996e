//! Facts from the providers' documentation, as data. The code uses them to read events, and the
//! documentation page about providers is generated from them.

use std::time::Duration;

use super::{describe, inlet::Inlet, rule::RuleLine, signing::Signing};

/// The contents of a provider's requests, and the provider's behaviour, as far as the functions need them. A location
/// that begins with a slash is a JSON pointer into the body, `{form:NAME}` a field of a form, `{query:NAME}` a parameter of
/// the URL; any other is the name of a header in lower case. If a field has several locations, the first one with a non-empty value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    pub inlet: Inlet,
    /// The parts that form a delivery's id, which all its retries share. If the sender gives an id, one
    /// of the parts is [`IdPart::At`].
    pub delivery_id: &'static [IdPart],
    pub topic: &'static [&'static str],
    pub between_words: &'static [char],
    pub account: &'static [&'static str],
    pub event_time: &'static [&'static str],
    /// Where events hold the entity's id.
    pub lines: &'static [RuleLine],
    pub shop_order: ShopOrder,
    /// The time from the first attempt of a delivery to the last retry, or `None` if the provider does
    /// not document it. Zero if the provider never retries.
    pub horizon: Option<Duration>,
    /// The consecutive failures after which the provider disables an endpoint, or `None` if the provider documents no
    /// number.
    pub failure_limit: Option<FailureLimit>,
    /// The query parameter of the provider's test request, if it sends one: a GET, whose answer must repeat the
    /// parameter's value.
    pub challenge: Option<&'static str>,
    /// The JSON pointer to the challenge in the provider's test request, if that is a POST. The answer repeats the value
    /// as `challenge`.
    pub posted_challenge: Option<&'static str>,
    /// The body that the provider requires in the answer to an accepted delivery. `None` if it reads only the
    /// answer's status.
    pub answer: Option<&'static str>,
}

/// The place of the shop's order id in events. Several senders can share an inbox by this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShopOrder {
    /// Not all events of an order have the id.
    Absent,
    /// The sender is the shop: the entity `order/ID` names its order.
    Own,
    Copied {
        /// The place in the provider's objects into which the shop writes its order's id.
        to: &'static str,
        /// The fields of an entity template that hold the id then.
        fields: &'static [&'static str],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureLimit {
    /// The endpoint is disabled at this number.
    At(u32),
    /// The endpoint is disabled once this number is exceeded.
    Above(u32),
}

impl FailureLimit {
    pub fn number(self) -> u32 {
        match self {
            Self::At(number) | Self::Above(number) => number,
        }
    }
}

impl Reads {
    /// The usual values, and no locations.
    pub(super) const DEFAULT: Self = Self {
        inlet: Inlet::Webhooks,
        delivery_id: &[],
        topic: &[],
        between_words: describe::BETWEEN_WORDS,
        account: &[],
        event_time: &[],
        lines: &[],
        shop_order: ShopOrder::Absent,
        horizon: None,
        failure_limit: None,
        challenge: None,
        posted_challenge: None,
        answer: None,
    };

    /// Returns the time for which a second delivery with the same body counts as a repeat. This time
    /// matters only if the sender gives no id.
    pub fn retried_for(&self) -> Duration {
        if self.delivery_id.contains(&IdPart::Request) {
            return Duration::ZERO;
        }
        self.horizon.unwrap_or(UNDOCUMENTED_HORIZON)
    }

    pub fn has_retries(&self) -> bool {
        self.horizon != Some(Duration::ZERO)
    }

    pub fn names_by_body(&self) -> bool {
        !self.delivery_id.iter().any(|part| matches!(part, IdPart::At(_)))
    }
}

/// The retry period assumed for a provider that documents none. It is the longest period that any
/// provider documents.
pub const UNDOCUMENTED_HORIZON: Duration = Duration::from_secs(3 * 24 * 3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPart {
    Account,
    Topic,
    /// The first non-empty value at these locations. If all are empty, the hash of the body.
    At(&'static [&'static str]),
    /// The first non-empty value at these locations. If all are empty, the empty text.
    Maybe(&'static [&'static str]),
    Body,
    /// Each request is a delivery: equal bodies are different events.
    Request,
}

#[derive(Debug, Clone, Copy)]
pub struct Facts {
    pub secret: &'static str,
    /// The signature, if it is an HMAC in a header. The page describes it, and adds the text `signature`.
    pub signing: Option<&'static Signing>,
    pub signature: &'static str,
    pub signed: SignedParts,
    pub payload: Payload,
    pub resolution: Option<Resolution>,
    /// How long the provider waits for an answer, or `None` if it does not document this.
    pub deadline: Option<Duration>,
    /// The number of retries, or `None` if the provider does not document it or never retries.
    pub retries: Option<u32>,
    /// What makes the provider disable an endpoint, after the number in [`Reads::failure_limit`].
    pub switches_off: &'static str,
    /// The provider's test requests, after the one in [`Reads::challenge`].
    pub checks: &'static str,
    pub care: &'static str,
    /// The web pages that state these facts.
    pub sources: &'static [&'static str],
}

impl Facts {
    /// The facts of a provider that sends no webhooks. `payload`, `resolution`, `care` and `sources` are still to be given.
    pub(super) const WITHOUT_WEBHOOKS: Self = Self {
        secret: "",
        signing: None,
        signature: "",
        signed: SignedParts { body: false, ..SignedParts::BODY },
        payload: Payload::Depends,
        resolution: None,
        deadline: None,
        retries: None,
        switches_off: "",
        checks: "",
        care: "",
        sources: &[],
    };
}

/// The parts of a request that a signature covers. Anybody who has seen a request can change the
/// parts that are not covered, and send it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedParts {
    pub body: bool,
    /// Set if the signature covers only a checksum of the body, so that another body with the same checksum is
    /// accepted.
    pub by_checksum: bool,
    /// The fields of the body that are signed, if the rest is not.
    pub fields: &'static [&'static str],
    pub headers: &'static [&'static str],
    /// Set if the time of the attempt is signed and checked, so that an old request is refused when it is sent again.
    pub time: bool,
    pub url: bool,
}

impl SignedParts {
    pub const BODY: Self = Self { body: true, by_checksum: false, fields: &[], headers: &[], time: false, url: false };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The state of the object at the time of the event. A retry holds the same state.
    Snapshot,
    /// The state of the object at the time of sending. A retry may hold a newer state than the first
    /// attempt.
    Current,
    Reference,
    Depends,
}

/// The resolution of the times in a provider's events. The order of two events within the same second
/// or millisecond is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    Seconds,
    /// Milliseconds or finer.
    Milliseconds,
}
