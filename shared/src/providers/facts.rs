//! What a provider's documentation says about its webhooks, as data: where an
//! event says what, and how the provider signs, sends and repeats. What can be
//! read out of it is used by the code; the rest is what the page about the
//! providers is made of.

use std::time::Duration;

/// Where an event says what, and how long it is repeated. A place is a JSON pointer into the body or, if it
/// does not start with a slash, a header's name in lower case; of several, the
/// first that holds something counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// What names a delivery over all its retries. Has an [`IdPart::At`], if its
    /// sender gives an id, and ends with that or with the body's hash.
    pub delivery_id: &'static [IdPart],
    /// What happened.
    pub topic: &'static [&'static str],
    /// What stands between the words of a topic.
    pub between_words: &'static [char],
    /// The shop or account.
    pub account: &'static [&'static str],
    /// When it happened.
    pub event_time: &'static [&'static str],
    /// The time from the first attempt to the last retry; `None`: its
    /// documentation does not say.
    pub horizon: Option<Duration>,
}

impl Reads {
    /// How long an equal body counts as a repeat, if its sender gives no id.
    pub fn retried_for(&self) -> Duration {
        self.horizon.unwrap_or(UNDOCUMENTED_HORIZON)
    }

    /// Whether no delivery has an id of its sender's.
    pub fn names_by_body(&self) -> bool {
        !self.delivery_id.iter().any(|part| matches!(part, IdPart::At(_)))
    }
}

/// The longest [`Reads::horizon`] of those that are documented.
pub const UNDOCUMENTED_HORIZON: Duration = Duration::from_secs(3 * 24 * 3600);

/// A part of what names a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdPart {
    /// The shop or account.
    Account,
    /// The topic.
    Topic,
    /// What stands at these places; where that is nothing, the body's hash.
    At(&'static [&'static str]),
    /// What stands at these places, or nothing.
    Maybe(&'static [&'static str]),
    /// The body's hash.
    Body,
}

/// How a provider signs, sends and repeats.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// What its secret is, and where it is shown.
    pub secret: &'static str,
    /// How it signs.
    pub signature: &'static str,
    /// What the signature covers.
    pub signed: Signed,
    /// What its payload tells.
    pub payload: Payload,
    /// How finely its event time is told; `None`: it tells none.
    pub resolution: Option<Resolution>,
    /// How long it waits for an answer; `None`: its documentation does not say.
    pub deadline: Option<Duration>,
    /// How many retries it makes; `None`: its documentation does not say.
    pub retries: Option<u32>,
    /// What makes it switch an endpoint off.
    pub switches_off: &'static str,
    /// Its checks whether anybody is there, and what each is answered.
    pub checks: &'static str,
    /// What else there is to know.
    pub care: &'static str,
    /// Where all of this is from.
    pub sources: &'static [&'static str],
}

/// What a signature covers. Whatever else a request says could be anybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed {
    /// The body.
    pub body: bool,
    /// Of the body its checksum alone, which keeps nobody from making another
    /// body that fits.
    pub by_checksum: bool,
    /// These headers, by their names in lower case.
    pub headers: &'static [&'static str],
    /// The time of the attempt, so that a request cannot be sent again later.
    pub time: bool,
    /// The URL that is called.
    pub url: bool,
}

impl Signed {
    /// The body, and nothing else.
    pub const BODY: Self = Self { body: true, by_checksum: false, headers: &[], time: false, url: false };
}

/// What a payload tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The thing as it was when the event happened; the same in every retry.
    Snapshot,
    /// The thing as it is when it is sent.
    Current,
    /// Only which thing it was: the rest is to be fetched.
    Reference,
    /// It depends on the event.
    Depends,
}

/// How finely a clock ticks. Events in the same tick cannot be put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// In whole seconds.
    Seconds,
    /// In milliseconds, or finer.
    Milliseconds,
}
