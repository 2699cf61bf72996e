//! The entity's row, parsed into [`EntityState`].

mod event_times;

use std::{fmt, time::Duration};

use super::{
    attempt::Retries,
    entity::{EntityKey, FencingToken, Sequence},
    format::{CorruptRow, attribute as a, check_format, shortened},
    hold::Hold,
    receipt::{Recent, Spilled},
    table::Row,
    waits::{SourceTag, Waits},
};
use crate::time::{CLOCKS_APART, Nonce, Timestamp};
pub use event_times::EventTimes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseKind {
    /// The lease of a worker that drains the inbox.
    Drain,
    /// The lease of any other holder, such as a request, a job or a script.
    Exclusive,
}

impl LeaseKind {
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseKind::Drain => "drain",
            LeaseKind::Exclusive => "exclusive",
        }
    }
}

/// A description of a lease's holder for operators: function, instance, request. The text is cut to
/// [`HolderInfo::MAX_BYTES`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HolderInfo(String);

impl HolderInfo {
    pub const MAX_BYTES: usize = 60;

    pub fn new(text: &str) -> Self {
        Self(shortened(text, Self::MAX_BYTES))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Held {
    /// The nonce of the acquire call that was granted the lease.
    pub holder: Nonce,
    pub kind: LeaseKind,
    /// The end of the lease, by the store's time.
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockReason {
    /// The retries of the delivery at `head + 1` have ended, and its source is configured to block.
    Attempts,
    /// The delivery at `head + 1` is missing. It was claimed so long ago that its retention may
    /// have ended.
    Expired,
    /// [`VANISHED_BEFORE_START`] consecutive lease holders vanished with the delivery at `head + 1`
    /// without a recorded handler start.
    Vanished,
}

impl BlockReason {
    pub fn as_str(self) -> &'static str {
        match self {
            BlockReason::Attempts => "attempts",
            BlockReason::Expired => "expired",
            BlockReason::Vanished => "vanished",
        }
    }

    /// Parses the text that [`as_str`](Self::as_str) returns.
    pub fn parse(text: &str) -> Option<Self> {
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EntityState {
    pub entity: EntityKey,
    /// The last claimed sequence.
    pub tail: Sequence,
    /// The last settled sequence.
    pub head: Sequence,
    pub token: FencingToken,
    pub held: Option<Held>,
    /// The description of the lease's holder, or of the operator who released the lease by force.
    pub holder_info: Option<HolderInfo>,
    /// The nonce of the newest claim; after a restore, the nonce of the restore.
    pub last_claim: Option<Nonce>,
    /// The receipts of the newest settled sequences, up to `head` and without gaps.
    pub recent: Recent,
    /// The places where receipts may be that have left this row.
    pub spilled: Spilled,
    /// The number of failed attempts of the delivery at `head + 1`. If `has_attempts_of_latest`
    /// returns true, the attempts are those of a whole `latest` group.
    pub attempts: u32,
    /// Greater than 0 if the delivery at `head + 1` is a suspect: the number of consecutive lease
    /// holders that vanished without a recorded handler start. A recorded start, a failure and a
    /// hand-over set the number of a suspect to 1; a settle sets it to 0.
    pub suspect: u32,
    /// The fencing token of the newest recorded handler start.
    pub started: Option<FencingToken>,
    /// The sequence up to which deliveries are started one at a time, because a group failed, or a
    /// lease holder vanished with it. A value equal to `head` has another meaning: see
    /// `has_attempts_of_latest`.
    pub one_by_one: Option<Sequence>,
    /// The earliest time of the next handler start of the delivery at `head + 1`.
    pub retry_at: Option<Timestamp>,
    pub last_error: Option<String>,
    /// The retries of the delivery at `head + 1`, valid only if `last_error` is set.
    pub retries: Retries,
    /// A lower bound for the claim times of all sequences that are not settled.
    pub pending_since: Option<Timestamp>,
    pub blocked: Option<BlockReason>,
    /// Set exactly if `last_error` or `blocked` is, except in rows of an older version.
    pub waits: Option<Waits>,
    pub hold: Hold,
    /// The time until which drains yield to an exclusive waiter.
    pub yield_until: Option<Timestamp>,
    /// The time until which only drains are granted the lease, so that deliveries get their turn
    /// after an exclusive lease.
    pub turn_until: Option<Timestamp>,
    /// The hand-over, if there is one. While a drain has the lease, the value `ABOUT_TO` means that
    /// the drain will hand over. While the entity is free or exclusively leased, the value is the
    /// time at which a wake-up with the row's token is due.
    pub handover: Option<Timestamp>,
    pub newest_event_time: EventTimes,
}

/// The value of `suspect` once a lease holder did not vanish with the suspect. It counts the first holder, which made
/// the delivery a suspect.
pub(crate) const FIRST_HOLDER: u32 = 1;

/// The longest `last_error`, in bytes, of a row that is full of receipts.
pub const LAST_ERROR_BYTES: usize = 51;

/// The longest `last_error` of any row, in bytes.
pub const LONGEST_LAST_ERROR: usize = 200;

/// The value of `last_error` if a lease holder vanished with the delivery at `head + 1`.
pub const HOLDER_VANISHED: &str = "holder vanished";

/// The value of `last_error` if a delivery inherits the waits of the delivery before it.
pub(crate) const CARRIED_OVER: &str = "the previous delivery did not reach the destination";

/// The value of `last_error` of a delivery that a breaker refused before its first start.
pub const NOT_TRIED: &str = "not tried: other orders of its source fail or hang";

/// Returns whether a stored `last_error` means that the delivery was not tried.
///
/// Only the text says so in rows that a version without `waits` wrote. So the text is part of the stored format, and
/// must not change.
pub(crate) fn is_not_tried(last_error: &str) -> bool {
    last_error == NOT_TRIED
}

pub const LARGEST_GROUP: u8 = 25;

/// The number of consecutive lease holders that may vanish with a delivery, without a recorded
/// handler start, before the entity is blocked.
pub const VANISHED_BEFORE_START: u32 = 10;

/// The value of the attribute `handover` while a drain that will hand over still has the lease.
pub(crate) const ABOUT_TO: Timestamp = Timestamp::from_millis(1);

/// The time after which a hand-over's wake-up counts as lost, measured from the wake-up's due time.
/// Claims then send wake-ups again.
pub const OVERDUE: Duration = Duration::from_secs(300);

pub const LONGEST_LEASE: Duration = Duration::from_secs(900);

/// The longest time by which the end of a valid lease may lie in the future. A lease that ends
/// later comes from a wrong clock, and counts as expired.
pub(crate) const FARTHEST_EXPIRY: Duration = LONGEST_LEASE.saturating_add(CLOCKS_APART);

impl EntityState {
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
                // Receipts that do not end at `head` would belong to other sequences.
                Some(bytes) => Recent::from_stored(bytes)
                    .filter(|recent| recent.last().is_some_and(|last| last.sequence == head))
                    .ok_or(CorruptRow::Attribute(a::RECENT))?,
            },
            spilled: Spilled::from_stored(row.get(a::SPILLED)).ok_or(CorruptRow::Attribute(a::SPILLED))?,
            attempts: row.number(a::ATTEMPTS).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            suspect: row.number(a::SUSPECT).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            started: row.number(a::STARTED).map(FencingToken),
            one_by_one: row.number(a::ONE_BY_ONE).map(Sequence),
            retry_at: time(a::RETRY_AT),
            last_error: row.text(a::LAST_ERROR).map(str::to_owned),
            // The settle of an older version removes only `last_error`.
            retries: match row.bytes(a::RETRIES).filter(|_| row.text(a::LAST_ERROR).is_some()) {
                None => Retries::default(),
                Some(bytes) => Retries::from_stored(bytes).ok_or(CorruptRow::Attribute(a::RETRIES))?,
            },
            pending_since: time(a::PENDING_SINCE),
            blocked: match row.text(a::BLOCKED) {
                None => None,
                Some(text) => Some(BlockReason::parse(text).ok_or(CorruptRow::Attribute(a::BLOCKED))?),
            },
            waits: row.bytes(a::WAITS).and_then(|bytes| Waits::from_stored(bytes)),
            hold: Hold::parse(row)?,
            yield_until: time(a::YIELD_UNTIL),
            turn_until: time(a::TURN_UNTIL),
            handover: time(a::HANDOVER),
            newest_event_time: row.bytes(a::NEWEST_EVENT_TIME).and_then(EventTimes::from_stored).unwrap_or_default(),
        })
    }

    /// Returns the longest error, in bytes, with which a write of the row still costs one unit.
    /// Later receipts may fill the same room, because the settle that adds them removes the error.
    pub fn error_bytes(&self) -> usize {
        (LAST_ERROR_BYTES + self.recent.free_bytes(&self.entity)).min(LONGEST_LAST_ERROR)
    }

    /// Returns the value that `waits` must have. The stored value tells the source.
    pub fn due_waits(&self) -> Option<Waits> {
        let source = self.waits.map_or_else(SourceTag::default, |waits| waits.source);
        Waits::of(self.last_error.as_deref(), &self.retries, self.blocked, source)
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub fn waiting(&self) -> u64 {
        self.tail.0.saturating_sub(self.head.0)
    }

    pub fn is_on_hold(&self) -> bool {
        self.hold.since().is_some()
    }

    pub fn is_stopped(&self) -> bool {
        self.blocked.is_some() || self.is_on_hold()
    }

    pub fn next(&self) -> Sequence {
        self.head.next()
    }

    pub fn is_one_by_one(&self) -> bool {
        self.is_suspect() || self.one_by_one.is_some_and(|last| self.head < last)
    }

    /// Returns whether `attempts` are those of a whole `latest` group, whose last delivery was
    /// started in place of the others.
    pub fn has_attempts_of_latest(&self) -> bool {
        self.one_by_one == Some(self.head)
    }

    pub fn is_suspect(&self) -> bool {
        self.suspect > 0
    }

    /// Returns whether the newest lease holder recorded a handler start of the delivery at `head +
    /// 1`.
    pub fn is_started(&self) -> bool {
        self.started == Some(self.token)
    }

    pub fn was_handed_over(&self, now: Timestamp) -> bool {
        self.held.is_none() && self.is_awaited(now)
    }

    /// Returns whether a valid exclusive lease is followed by a wake-up that carries its token.
    pub fn is_followed(&self, now: Timestamp) -> bool {
        let is_exclusive = |held: &Held| held.kind == LeaseKind::Exclusive && held.runs(now);
        self.held.as_ref().is_some_and(is_exclusive) && self.is_awaited(now)
    }

    fn is_awaited(&self, now: Timestamp) -> bool {
        self.handover.is_some_and(|due| now < due + OVERDUE)
    }

    pub fn is_retried_later(&self, now: Timestamp) -> bool {
        self.last_error.is_some() && self.retry_at.is_some_and(|at| at > now)
    }
}

impl Held {
    /// Returns whether the lease is valid at `now`. A lease that is not valid can be taken over,
    /// but the entity is not free.
    pub fn runs(&self, now: Timestamp) -> bool {
        self.expires_at > now && self.expires_at <= now + FARTHEST_EXPIRY
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{
        super::{
            entity::IdentityHash,
            format::FORMAT,
            receipt::{Receipt, Settlement},
            table::Value,
        },
        *,
    };

    fn remembered(entity: &EntityKey, at: u64) -> Recent {
        let receipt = |sequence| Receipt {
            sequence: Sequence(sequence),
            identity: Some(IdentityHash::from_bytes([255; 8])),
            settlement: Settlement::Applied,
            token: FencingToken(at),
            attempts: 31,
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
            // A free row has a time here, which is shorter than the lease that it lacks.
            .with(a::HANDOVER, 1_u32)
            .with(a::LAST_ERROR, "x".repeat(LAST_ERROR_BYTES))
            .with(a::WAITS, Bytes::from_static(&[0; Waits::BYTES]))
            .with(a::PENDING_SINCE, 1_799_999_999_999_u64)
            .with(a::BLOCKED, BlockReason::Attempts.as_str())
            .with(a::HOLD, Value::N(-1_799_999_999_999))
            .with(a::YIELD_UNTIL, 1_799_999_999_999_u64)
            // Not `turn_until`, which only a free row has.
            .with(a::NEWEST_EVENT_TIME, times.to_stored().unwrap())
    }

    #[test]
    fn row_with_key_up_to_256_bytes_costs_one_write_unit() {
        for bytes in 3..=256 {
            let size = fullest(bytes).size();
            assert!(size <= 1024, "{size} bytes with a key of {bytes}");
        }
        let holds = |bytes: usize| {
            remembered(&EntityKey::parse(&format!("n/{}", "x".repeat(bytes - 2))).unwrap(), 99).iter().len()
        };
        assert_eq!([19, 20, 41, 42, 64, 256, 512].map(holds), [21, 20, 20, 19, 18, 10, 1]);
        assert!(fullest(512).size() <= 1100, "{} bytes", fullest(512).size());
    }

    #[test]
    fn longest_error_costs_no_second_write_unit() {
        let mut longest = Vec::new();
        for bytes in 3..=256 {
            let full = fullest(bytes);
            let mut recent = EntityState::parse(&full).unwrap().recent;
            let most = recent.iter().len();
            for receipts in (1..=most).rev() {
                recent.drop_beyond(receipts);
                let row = full.clone().with(a::RECENT, recent.to_stored().unwrap());
                let error_bytes = EntityState::parse(&row).unwrap().error_bytes();
                let size = row.with(a::LAST_ERROR, "x".repeat(error_bytes)).size();
                assert!(size <= 1024, "{size} bytes with a key of {bytes} and {receipts} receipts");
                longest.push(error_bytes);
            }
        }
        assert!(longest.contains(&LAST_ERROR_BYTES) && longest.contains(&LONGEST_LAST_ERROR));
        for fixed in [CARRIED_OVER, HOLDER_VANISHED, NOT_TRIED] {
            assert!(fixed.len() <= LAST_ERROR_BYTES, "{} bytes: {fixed}", fixed.len());
        }
    }

    #[test]
    fn stored_text_of_an_untried_delivery_is_recognised() {
        assert!(is_not_tried("not tried: other orders of its source fail or hang"));
        assert!(![CARRIED_OVER, HOLDER_VANISHED, "no"].into_iter().any(is_not_tried));
    }

    #[test]
    fn row_of_another_format_is_refused() {
        let row = fullest(64).with(a::VERSION, FORMAT + 1);
        assert_eq!(EntityState::parse(&row), Err(CorruptRow::Newer(u64::from(FORMAT) + 1)));
        let row = fullest(64).with(a::VERSION, FORMAT - 1);
        assert_eq!(EntityState::parse(&row), Err(CorruptRow::Older(u64::from(FORMAT) - 1)));
    }

    #[test]
    fn row_is_refused_unless_receipts_end_at_head() {
        for row in [fullest(64).with(a::HEAD, 1_799_999_999_998_u64), fullest(64).with(a::RECENT, Bytes::new())] {
            assert_eq!(EntityState::parse(&row), Err(CorruptRow::Attribute(a::RECENT)));
        }
    }

    #[test]
    fn block_reason_is_stored_by_name() {
        let reasons = [BlockReason::Attempts, BlockReason::Expired, BlockReason::Vanished];
        assert_eq!(reasons.map(|reason| reason.to_string()), ["attempts", "expired", "vanished"]);
        for reason in reasons {
            let row = fullest(64).with(a::BLOCKED, reason.to_string());
            assert_eq!(EntityState::parse(&row).unwrap().blocked, Some(reason));
        }
    }

    #[test]
    fn lease_expiring_too_far_ahead_is_not_valid() {
        let now = Timestamp::from_millis(1_000_000_000);
        let held = |expires_at| Held { holder: Nonce::from_parts(now, 1), kind: LeaseKind::Drain, expires_at };
        assert!(held(now + FARTHEST_EXPIRY).runs(now));
        assert!(!held(now + FARTHEST_EXPIRY + Duration::from_millis(1)).runs(now));
        assert!(!held(now).runs(now));
    }
}
