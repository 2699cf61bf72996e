//! Facts from the providers' documentation, as data: the locations of an event's fields, and
//! how the provider signs, sends and retries. The code reads events with them, and the
//! providers page is generated from them.

use std::time::Duration;

/// The locations of an event's fields. A location that begins with a slash is a JSON pointer
/// into the body; any other is a header's name in lower case. Of a field's locations, the
/// first one with a non-empty value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// The parts of a delivery's id, which all its retries share. If the sender gives an id,
    /// one part is [`IdPart::At`]. The last part is that id or the body's hash.
    pub delivery_id: &'static [IdPart],
    pub topic: &'static [&'static str],
    /// The separators between the words of a topic.
    pub between_words: &'static [char],
    pub account: &'static [&'static str],
    pub event_time: &'static [&'static str],
    /// The time from a delivery's first attempt to its last retry; `None` if it is not
    /// documented.
    pub horizon: Option<Duration>,
}

impl Reads {
    /// Returns how long an equal body counts as a repeat, if the sender gives no delivery id.
    pub fn retried_for(&self) -> Duration {
        self.horizon.unwrap_or(UNDOCUMENTED_HORIZON)
    }

    /// Returns whether only the body's hash identifies a delivery.
    pub fn names_by_body(&self) -> bool {
        !self.delivery_id.iter().any(|part| matches!(part, IdPart::At(_)))
    }
}

/// The horizon of a provider that does not document one: the longest that any provider
/// documents.
pub const UNDOCUMENTED_HORIZON: Duration = Duration::from_secs(3 * 24 * 3600);

/// A part from which a delivery's id is composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPart {
    Account,
    Topic,
    /// The first non-empty value at these locations; if there is none, the body's hash.
    At(&'static [&'static str]),
    /// The first non-empty value at these locations; if there is none, the empty text.
    Maybe(&'static [&'static str]),
    Body,
}

/// A provider's documented way to sign, send and retry.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The kind of secret, and the provider's page that shows it.
    pub secret: &'static str,
    pub signature: &'static str,
    pub signed: Signed,
    pub payload: Payload,
    /// The resolution of the event's time. `None` if events have no time.
    pub resolution: Option<Resolution>,
    /// The provider's timeout for an answer; `None` if it is not documented.
    pub deadline: Option<Duration>,
    /// The number of retries; `None` if it is not documented.
    pub retries: Option<u32>,
    /// The failures in a row after which the provider disables an endpoint.
    pub switches_off: &'static str,
    /// The liveness checks that the provider sends, and the answer to each.
    pub checks: &'static str,
    /// Remarks for operators.
    pub care: &'static str,
    /// The documents that these facts come from.
    pub sources: &'static [&'static str],
}

/// The parts of a request that a signature covers. Anybody who has seen a request can change
/// its other parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed {
    pub body: bool,
    /// Whether the signature covers only a checksum of the body, so that another body with the
    /// same checksum is accepted.
    pub by_checksum: bool,
    /// The signed headers, in lower case.
    pub headers: &'static [&'static str],
    /// Whether the time of the attempt is signed, which prevents later replays.
    pub time: bool,
    pub url: bool,
}

impl Signed {
    /// A signature that covers only the body.
    pub const BODY: Self = Self { body: true, by_checksum: false, headers: &[], time: false, url: false };
}

/// The kind of data that a webhook's payload holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The payload holds the object at the time of the event. A retry holds the same state.
    Snapshot,
    /// The payload holds the object at the time of sending. A retry may hold a newer state.
    Current,
    /// The payload holds only the id of the object.
    Reference,
    /// The kind of data depends on the kind of event.
    Depends,
}

/// The resolution of a provider's event times. Events within the same second or millisecond
/// cannot be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    Seconds,
    /// Milliseconds or finer.
    Milliseconds,
}
