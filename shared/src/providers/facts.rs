//! Facts from the providers' documentation, as data: the locations of an event's
//! fields, and how the provider signs, sends and retries. The code uses what it
//! needs to read events; the providers page is generated from the rest.

use std::time::Duration;

/// The locations of an event's fields. A location is a JSON pointer into the
/// body or, without a leading slash, a header's name in lower case; of several,
/// the first non-empty one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// The parts of an id that all retries of a delivery share. It contains an
    /// [`IdPart::At`] if the sender gives an id, and ends with that or the body's hash.
    pub delivery_id: &'static [IdPart],
    /// The event's topic.
    pub topic: &'static [&'static str],
    /// The separators between the words of a topic.
    pub between_words: &'static [char],
    /// The shop or account.
    pub account: &'static [&'static str],
    /// The time of the event.
    pub event_time: &'static [&'static str],
    /// The time from the first attempt to the last retry; `None` if it is not documented.
    pub horizon: Option<Duration>,
}

impl Reads {
    /// Returns how long an equal body counts as a repeat if the sender gives no id.
    pub fn retried_for(&self) -> Duration {
        self.horizon.unwrap_or(UNDOCUMENTED_HORIZON)
    }

    /// Returns whether deliveries are identified by their body's hash only.
    pub fn names_by_body(&self) -> bool {
        !self.delivery_id.iter().any(|part| matches!(part, IdPart::At(_)))
    }
}

/// The longest documented [`Reads::horizon`].
pub const UNDOCUMENTED_HORIZON: Duration = Duration::from_secs(3 * 24 * 3600);

/// A part of a delivery's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPart {
    /// The shop or account.
    Account,
    /// The topic.
    Topic,
    /// The first non-empty value at these locations, or else the body's hash.
    At(&'static [&'static str]),
    /// The first non-empty value at these locations, if any.
    Maybe(&'static [&'static str]),
    /// The body's hash.
    Body,
}

/// A provider's documented way to sign, send and retry.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The kind of secret, and the provider's page that shows it.
    pub secret: &'static str,
    /// The signature scheme.
    pub signature: &'static str,
    /// The parts of a request that the signature covers.
    pub signed: Signed,
    /// The kind of payload.
    pub payload: Payload,
    /// The resolution of the event time; `None` if events have none.
    pub resolution: Option<Resolution>,
    /// The provider's timeout for an answer; `None` if it is not documented.
    pub deadline: Option<Duration>,
    /// The number of retries; `None` if it is not documented.
    pub retries: Option<u32>,
    /// The failures after which the provider disables an endpoint.
    pub switches_off: &'static str,
    /// The provider's liveness checks, and the answer to each.
    pub checks: &'static str,
    /// Further remarks.
    pub care: &'static str,
    /// The documents that these facts come from.
    pub sources: &'static [&'static str],
}

/// The parts of a request that a signature covers. Anybody can change the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed {
    /// The body.
    pub body: bool,
    /// Only a checksum of the body is signed, so another body with the same checksum is accepted.
    pub by_checksum: bool,
    /// The signed headers, in lower case.
    pub headers: &'static [&'static str],
    /// The time of the attempt, which prevents later replays.
    pub time: bool,
    /// The URL of the request.
    pub url: bool,
}

impl Signed {
    /// The body alone.
    pub const BODY: Self = Self { body: true, by_checksum: false, headers: &[], time: false, url: false };
}

/// The kind of data in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The object at the time of the event; the same in every retry.
    Snapshot,
    /// The object at the time of sending.
    Current,
    /// The object's id only.
    Reference,
    /// It depends on the event.
    Depends,
}

/// The resolution of a clock. Events within the same tick cannot be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Whole seconds.
    Seconds,
    /// Milliseconds or finer.
    Milliseconds,
}
