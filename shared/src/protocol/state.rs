//! The entity's row as a typed value.

use std::{collections::BTreeMap, fmt, time::Duration};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{
    attempt::Retries,
    entity::{EntityKey, FencingToken, Sequence},
    format::{CorruptRow, attribute as a, check_format, shortened},
    hold::Hold,
    receipt::Recent,
    table::Row,
};
use crate::time::{CLOCKS_APART, Nonce, Timestamp};

/// What holds an entity, besides whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseKind {
    /// A worker, which must empty the inbox.
    Drain,
    /// A cron job, a user's request, a script.
    Exclusive,
}

impl LeaseKind {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseKind::Drain => "drain",
            LeaseKind::Exclusive => "exclusive",
        }
    }
}

/// For people, about a holder: function, instance, request. At most
/// [`HolderInfo::MAX_BYTES`]; longer ones are cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HolderInfo(String);

impl HolderInfo {
    /// The most bytes kept.
    pub const MAX_BYTES: usize = 60;

    /// Takes a description.
    pub fn new(text: &str) -> Self {
        Self(shortened(text, Self::MAX_BYTES))
    }

    /// The description.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The lease as a row shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Held {
    /// The acquire call that got it.
    pub holder: Nonce,
    /// What it is for.
    pub kind: LeaseKind,
    /// Until when, by its holder's clock.
    pub expires_at: Timestamp,
}

/// Why an entity waits for an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockReason {
    /// The delivery at `head + 1` used up its attempts, and its source says to
    /// block.
    Attempts,
    /// The delivery at `head + 1` is not there and was claimed so long ago
    /// that it may have been deleted by retention.
    Expired,
    /// [`VANISHED_BEFORE_START`] workers in a row vanished with the delivery at
    /// `head + 1` before they could start its handler.
    Vanished,
}

impl BlockReason {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            BlockReason::Attempts => "attempts",
            BlockReason::Expired => "expired",
            BlockReason::Vanished => "vanished",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        [BlockReason::Attempts, BlockReason::Expired, BlockReason::Vanished]
            .into_iter()
            .find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The newest event time applied of each topic family. Keeps the
/// [`EventTimes::FAMILIES`] newest families. A family is named by 22 bits of its
/// hash; one that shares them with another can only make an event look older.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EventTimes(BTreeMap<u32, Timestamp>);

impl EventTimes {
    /// As many families as 40 bytes hold.
    pub const FAMILIES: usize = 5;

    /// Bytes of a family in the row: its tag, and the time in milliseconds.
    const ENTRY_BYTES: usize = 8;

    /// Milliseconds until the year 2109.
    const TIME_BITS: u32 = 42;

    const TAG_BITS: u32 = 64 - Self::TIME_BITS;

    fn tag(family: &str) -> u32 {
        let digest = Sha256::digest(family);
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) >> (32 - Self::TAG_BITS)
    }

    /// The newest time applied of `family`.
    pub fn of(&self, family: &str) -> Option<Timestamp> {
        self.0.get(&Self::tag(family)).copied()
    }

    /// Whether an event at `time` may be older than one applied of a family that
    /// was dropped. A dropped family's newest time is not above any kept one.
    pub fn may_have_dropped_since(&self, time: Timestamp) -> bool {
        self.0.len() >= Self::FAMILIES && self.0.values().min().is_some_and(|oldest| time <= *oldest)
    }

    /// The times after an event of `family` at `time` was applied.
    #[must_use]
    pub fn applied(&self, family: &str, time: Timestamp) -> Self {
        let mut times = self.0.clone();
        let time = time.min(Timestamp::from_millis((1 << Self::TIME_BITS) - 1));
        let newest = times.entry(Self::tag(family)).or_insert(time);
        *newest = time.max(*newest);
        while times.len() > Self::FAMILIES {
            let oldest = times.iter().min_by_key(|(_, time)| **time).map(|(tag, _)| *tag);
            times.retain(|tag, _| Some(*tag) != oldest);
        }
        Self(times)
    }

    /// As it is stored; `None` when there is nothing to store.
    pub fn to_stored(&self) -> Option<Bytes> {
        let entry =
            |(tag, time): (&u32, &Timestamp)| (u64::from(*tag) << Self::TIME_BITS | time.as_millis()).to_be_bytes();
        let stored: Bytes = self.0.iter().flat_map(entry).collect();
        (!stored.is_empty()).then_some(stored)
    }

    fn from_stored(bytes: &Bytes) -> Option<Self> {
        let entry = |bytes: &[u8]| {
            let entry = u64::from_be_bytes(bytes.try_into().ok()?);
            let time = entry & ((1 << Self::TIME_BITS) - 1);
            Some(((entry >> Self::TIME_BITS) as u32, Timestamp::from_millis(time)))
        };
        bytes.chunks(Self::ENTRY_BYTES).map(entry).collect::<Option<_>>().map(Self)
    }
}

/// One entity's row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntityState {
    /// Whose row it is.
    pub entity: EntityKey,
    /// The last sequence claimed.
    pub tail: Sequence,
    /// The last sequence settled.
    pub head: Sequence,
    /// The newest fencing token.
    pub token: FencingToken,
    /// The lease, while somebody has it.
    pub held: Option<Held>,
    /// Who has the lease, or who released it by force, for people.
    pub holder_info: Option<HolderInfo>,
    /// The nonce of the newest claim.
    pub last_claim: Option<Nonce>,
    /// What became of the newest of what was settled, up to `head`.
    pub recent: Recent,
    /// Whether receipts stand elsewhere that have left the row.
    pub spilled: bool,
    /// How often the delivery at `head + 1` was started and failed.
    pub attempts: u32,
    /// How many holders in a row vanished with the delivery at `head + 1`
    /// without a written start.
    pub suspect: u32,
    /// The token of the newest start that was written down.
    pub started: Option<FencingToken>,
    /// Up to this place each delivery is handled by itself: a group with them
    /// failed, or its holder vanished. `head`: `attempts` are those of the latest,
    /// which stands for the delivery at `head + 1`.
    pub one_by_one: Option<Sequence>,
    /// Not before this is it tried again.
    pub retry_at: Option<Timestamp>,
    /// What it failed of last.
    pub last_error: Option<String>,
    /// How long it has waited for its retries; counts only beside `last_error`.
    pub retries: Retries,
    /// No undecided claim is older than this.
    pub pending_since: Option<Timestamp>,
    /// Why the entity waits for an operator.
    pub blocked: Option<BlockReason>,
    /// Whether an operator keeps drains off.
    pub hold: Hold,
    /// Until when an exclusive waiter asks to be let in.
    pub yield_until: Option<Timestamp>,
    /// Until when deliveries go first: an exclusive holder left them waiting.
    pub turn_until: Option<Timestamp>,
    /// While held: the draining holder is about to let go. While free: the last
    /// holder let go behind a wake-up under the row's token, which is due at this
    /// time; nobody was granted the lease since.
    pub handover: Option<Timestamp>,
    /// The newest event times applied.
    pub newest_event_time: EventTimes,
}

/// The most bytes of a failure's text that are kept.
pub const LAST_ERROR_BYTES: usize = 64;

/// The `last_error` of a delivery whose holder died with it.
pub const HOLDER_VANISHED: &str = "holder vanished";

/// The most deliveries that one start of a handler may be about.
pub const LARGEST_GROUP: u8 = 25;

/// So many holders in a row may vanish with a delivery before they have started
/// it; then its entity is blocked.
pub const VANISHED_BEFORE_START: u32 = 10;

/// The value of `handover` while the lease is held: its holder is about to hand over.
pub(crate) const ABOUT_TO: Timestamp = Timestamp::from_millis(1);

/// A hand-over's wake-up that is this late may be lost: claims owe one again.
pub const OVERDUE: Duration = Duration::from_secs(300);

/// The longest that a lease may be granted or renewed for.
pub const LONGEST_LEASE: Duration = Duration::from_secs(900);

/// A lease that ends further ahead was written by a clock that is far off, and
/// counts as expired.
pub(crate) const FARTHEST_EXPIRY: Duration = LONGEST_LEASE.saturating_add(CLOCKS_APART);

impl EntityState {
    /// Reads an `entities` row.
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let number = |name| row.number(name).ok_or(CorruptRow::Attribute(name));
        let time = |name| row.number(name).map(Timestamp::from_millis);
        let held = match row.text(a::HOLDER) {
            None => None,
            Some(holder) => Some(Held {
                holder: Nonce::from_stored(holder),
                kind: match row.text(a::KIND) {
                    Some("drain") => LeaseKind::Drain,
                    Some("exclusive") => LeaseKind::Exclusive,
                    _ => return Err(CorruptRow::Attribute(a::KIND)),
                },
                expires_at: time(a::EXPIRES_AT).ok_or(CorruptRow::Attribute(a::EXPIRES_AT))?,
            }),
        };
        let head = Sequence(number(a::HEAD)?);
        Ok(Self {
            entity: EntityKey::parse(row.text(a::ENTITY).ok_or(CorruptRow::Attribute(a::ENTITY))?)?,
            tail: Sequence(number(a::TAIL)?),
            head,
            token: FencingToken(number(a::TOKEN)?),
            held,
            holder_info: row.text(a::HOLDER_INFO).map(HolderInfo::new),
            last_claim: row.text(a::LAST_CLAIM).map(Nonce::from_stored),
            recent: match row.bytes(a::RECENT) {
                None => Recent::default(),
                // One that does not name `head` would take other places for those it speaks of.
                Some(bytes) => Recent::from_stored(bytes)
                    .filter(|recent| recent.last().is_some_and(|last| last.sequence == head))
                    .ok_or(CorruptRow::Attribute(a::RECENT))?,
            },
            spilled: row.get(a::SPILLED).is_some(),
            attempts: row.number(a::ATTEMPTS).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            suspect: row.number(a::SUSPECT).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            started: row.number(a::STARTED).map(FencingToken),
            one_by_one: row.number(a::ONE_BY_ONE).map(Sequence),
            retry_at: time(a::RETRY_AT),
            last_error: row.text(a::LAST_ERROR).map(str::to_owned),
            // A settle of a version that does not know it leaves it behind.
            retries: match row.bytes(a::RETRIES).filter(|_| row.text(a::LAST_ERROR).is_some()) {
                None => Retries::default(),
                Some(bytes) => Retries::from_stored(bytes).ok_or(CorruptRow::Attribute(a::RETRIES))?,
            },
            pending_since: time(a::PENDING_SINCE),
            blocked: match row.text(a::BLOCKED) {
                None => None,
                Some(text) => Some(BlockReason::from_stored(text).ok_or(CorruptRow::Attribute(a::BLOCKED))?),
            },
            hold: Hold::parse(row)?,
            yield_until: time(a::YIELD_UNTIL),
            turn_until: time(a::TURN_UNTIL),
            handover: time(a::HANDOVER),
            newest_event_time: row.bytes(a::NEWEST_EVENT_TIME).and_then(EventTimes::from_stored).unwrap_or_default(),
        })
    }

    /// Whether every claimed sequence is settled.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// How many sequences are claimed and not settled.
    pub fn waiting(&self) -> u64 {
        self.tail.0.saturating_sub(self.head.0)
    }

    /// Whether nobody but an operator lets it go on: it is blocked, or on hold.
    pub fn is_stopped(&self) -> bool {
        self.blocked.is_some() || self.hold.since().is_some()
    }

    /// The sequence to be decided next.
    pub fn next(&self) -> Sequence {
        self.head.next()
    }

    /// Whether the delivery at `head + 1` is to be handled by itself.
    pub fn is_one_by_one(&self) -> bool {
        self.is_suspect() || self.one_by_one.is_some_and(|last| self.head < last)
    }

    /// Whether `attempts` are those of the latest, which stands for the delivery
    /// at `head + 1` and others.
    pub fn is_stood_for(&self) -> bool {
        self.one_by_one == Some(self.head)
    }

    /// Whether a holder vanished with the delivery at `head + 1`.
    pub fn is_suspect(&self) -> bool {
        self.suspect > 0
    }

    /// Whether the newest start of the delivery at `head + 1` was written down
    /// by the newest holder.
    pub fn is_started(&self) -> bool {
        self.started == Some(self.token)
    }

    /// Whether the last holder let go behind a wake-up that nobody has acted on
    /// since, and that is not overdue.
    pub fn was_handed_over(&self, now: Timestamp) -> bool {
        self.held.is_none() && self.handover.is_some_and(|due| now < due + OVERDUE)
    }

    /// Whether the delivery at `head + 1` waits for its next attempt.
    pub fn is_retried_later(&self, now: Timestamp) -> bool {
        self.last_error.is_some() && self.retry_at.is_some_and(|at| at > now)
    }
}

impl Held {
    /// Whether the lease runs at `now`. One that has expired may be taken over;
    /// it is not free.
    pub fn runs(&self, now: Timestamp) -> bool {
        self.expires_at > now && self.expires_at <= now + FARTHEST_EXPIRY
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            entity::IdentityHash,
            format::FORMAT,
            receipt::{Receipt, Settlement},
            table::Value,
        },
        *,
    };

    /// What a row remembers at most whose key has so many bytes.
    fn remembered(entity: &EntityKey, at: u64) -> Recent {
        let receipt = |sequence| Receipt {
            sequence: Sequence(sequence),
            identity: Some(IdentityHash::from_bytes([255; 8])),
            settlement: Settlement::Applied,
            token: FencingToken(at),
            attempts: 255,
            settled_at: Timestamp::from_millis(at),
            took: Some(Duration::from_secs(60)),
        };
        let first = at + 1 - Recent::capacity(entity) as u64;
        (first..=at).fold(Recent::default(), |recent, at| recent.with(receipt(at), Duration::from_secs(1)))
    }

    fn fullest(key_bytes: usize) -> Row {
        let mut times = EventTimes::default();
        for family in ["orders", "fulfillments", "refunds", "order_transactions", "disputes", "carts"] {
            times = times.applied(family, Timestamp::from_millis(1_799_999_999_999));
        }
        let nonce = Nonce::from_parts(Timestamp::from_millis(1_799_999_999_999), u128::MAX);
        let key = EntityKey::parse(&format!("n/{}", "x".repeat(key_bytes - 2))).unwrap();
        Row::new()
            .with(a::ENTITY, key.as_str())
            .with(a::VERSION, FORMAT)
            .with(a::TAIL, 1_799_999_999_999_u64)
            .with(a::HEAD, 1_799_999_999_999_u64)
            .with(a::TOKEN, 1_799_999_999_999_u64)
            .with(a::HOLDER, nonce.as_str())
            .with(a::KIND, LeaseKind::Exclusive.as_str())
            .with(a::EXPIRES_AT, 1_799_999_999_999_u64)
            .with(a::HOLDER_INFO, "x".repeat(HolderInfo::MAX_BYTES))
            .with(a::LAST_CLAIM, nonce.as_str())
            .with(a::RECENT, remembered(&key, 1_799_999_999_999).to_stored().unwrap())
            .with(a::SPILLED, 1_u32)
            .with(a::ONE_BY_ONE, 1_799_999_999_999_u64)
            .with(a::ATTEMPTS, 999_u32)
            .with(a::RETRIES, Retries::default().crashed().to_stored().unwrap())
            .with(a::RETRY_AT, 1_799_999_999_999_u64)
            .with(a::SUSPECT, VANISHED_BEFORE_START)
            .with(a::STARTED, 1_799_999_999_999_u64)
            // While the lease is held; the time that a free row has is shorter than the lease.
            .with(a::HANDOVER, 1_u32)
            .with(a::LAST_ERROR, "x".repeat(LAST_ERROR_BYTES))
            .with(a::PENDING_SINCE, 1_799_999_999_999_u64)
            .with(a::BLOCKED, BlockReason::Attempts.as_str())
            .with(a::HOLD, Value::N(-1_799_999_999_999))
            .with(a::YIELD_UNTIL, 1_799_999_999_999_u64)
            // Not `turn_until`, which is shorter than the lease that it never stands beside.
            .with(a::NEWEST_EVENT_TIME, times.to_stored().unwrap())
    }

    #[test]
    fn the_fullest_entity_row_costs_one_write_unit_where_its_key_is_at_most_256_bytes_long() {
        for bytes in 3..=256 {
            let size = fullest(bytes).size();
            assert!(size <= 1024, "{size} bytes with a key of {bytes}");
        }
        let holds = |bytes: usize| {
            remembered(&EntityKey::parse(&format!("n/{}", "x".repeat(bytes - 2))).unwrap(), 99).iter().len()
        };
        assert_eq!([24, 36, 64, 256, 512].map(holds), [18, 17, 16, 9, 1]);
        assert!(fullest(512).size() <= 1100, "{} bytes", fullest(512).size());
    }

    #[test]
    fn the_fullest_entity_row_parses() {
        let state = EntityState::parse(&fullest(512)).unwrap();
        assert_eq!(state.newest_event_time.of("carts"), Some(Timestamp::from_millis(1_799_999_999_999)));
        assert!(state.held.is_some());
    }

    #[test]
    fn a_row_of_another_format_is_refused() {
        let row = fullest(64).with(a::VERSION, FORMAT + 1);
        assert_eq!(EntityState::parse(&row), Err(CorruptRow::Newer(3)));
        let row = fullest(64).with(a::VERSION, FORMAT - 1);
        assert_eq!(EntityState::parse(&row), Err(CorruptRow::Older(1)));
    }

    #[test]
    fn a_row_whose_memory_does_not_end_at_head_is_refused() {
        for row in [fullest(64).with(a::HEAD, 1_799_999_999_998_u64), fullest(64).with(a::RECENT, Bytes::new())] {
            assert_eq!(EntityState::parse(&row), Err(CorruptRow::Attribute(a::RECENT)));
        }
    }

    #[test]
    fn event_times_keep_the_newest_of_each_family() {
        let [early, late] = [Timestamp::from_millis(1), Timestamp::from_millis(2)];
        let times = EventTimes::default().applied("orders", late).applied("orders", early);
        assert_eq!(times.of("orders"), Some(late));
        assert_eq!(times.of("refunds"), None);
        assert_eq!(EventTimes::from_stored(&times.to_stored().unwrap()), Some(times));
    }

    #[test]
    fn sixth_family_drops_the_oldest_event_time() {
        let at = Timestamp::from_millis;
        let families = ["a", "b", "c", "d", "e"];
        let five = (1..).zip(families).fold(EventTimes::default(), |all, (time, family)| all.applied(family, at(time)));
        let of = |times: &EventTimes| families.map(|family| times.of(family).map(Timestamp::as_millis));
        assert_eq!(of(&five), [1, 2, 3, 4, 5].map(Some));
        let six = five.applied("f", at(6));
        assert_eq!((of(&six), six.of("f")), ([None, Some(2), Some(3), Some(4), Some(5)], Some(at(6))));
    }

    #[test]
    fn an_event_time_beyond_what_a_row_can_hold_is_read_as_it_was_kept() {
        let times = EventTimes::default().applied("orders", Timestamp::from_millis(u64::MAX));
        assert_eq!(EventTimes::from_stored(&times.to_stored().unwrap()), Some(times.clone()));
        let now = Timestamp::from_millis(1_799_999_999_999);
        assert!(times.of("orders") > Some(now), "and what has a time of today is older");
    }

    #[test]
    fn a_block_is_told_and_stored_by_its_reason_s_name() {
        let reasons = [BlockReason::Attempts, BlockReason::Expired, BlockReason::Vanished];
        assert_eq!(reasons.map(|reason| reason.to_string()), ["attempts", "expired", "vanished"]);
        for reason in reasons {
            let row = fullest(64).with(a::BLOCKED, reason.to_string());
            assert_eq!(EntityState::parse(&row).unwrap().blocked, Some(reason));
        }
    }

    #[test]
    fn a_lease_that_ends_further_ahead_than_any_may_does_not_run() {
        let now = Timestamp::from_millis(1_000_000_000);
        let held = |expires_at| Held { holder: Nonce::from_parts(now, 1), kind: LeaseKind::Drain, expires_at };
        assert!(held(now + FARTHEST_EXPIRY).runs(now));
        assert!(!held(now + FARTHEST_EXPIRY + Duration::from_millis(1)).runs(now));
        assert!(!held(now).runs(now));
    }
}
