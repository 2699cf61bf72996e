//! Receipts: records of settled deliveries. The newest receipts are part of their entity's row.
//! Older receipts are in pages, or in rows of their own.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    entity::{EntityKey, FencingToken, IdentityHash, Sequence},
    format::{CorruptRow, attribute as a, check_format},
    keys::receipt_identity,
    table::{Row, Value},
};
use crate::time::Timestamp;

pub use paged::{PAGES, PagedReceipts};

mod paged;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Settlement {
    Applied,
    Repeat,
    /// A tombstone: the sequence was claimed but never filled.
    Void,
    Parked,
    /// A newer delivery of the entity replaced this delivery, as the source's configuration allows.
    /// Either the newer delivery's handler ran for both, or the newer delivery had already been
    /// applied.
    Superseded,
}

impl Settlement {
    /// All settlements. The index of a settlement in this list is its number in stored rows.
    pub const ALL: [Self; 5] = [Self::Applied, Self::Repeat, Self::Void, Self::Parked, Self::Superseded];

    pub fn as_str(self) -> &'static str {
        match self {
            Settlement::Applied => "applied",
            Settlement::Repeat => "repeat",
            Settlement::Void => "void",
            Settlement::Parked => "parked",
            Settlement::Superseded => "superseded",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|settlement| settlement.as_str() == text)
    }
}

impl fmt::Display for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub sequence: Sequence,
    /// The identity of the delivery; `None` for a tombstone.
    pub identity: Option<IdentityHash>,
    pub settlement: Settlement,
    /// The fencing token under which the sequence was settled. The handler start, if there was one,
    /// had the same token, unless a rewind or the end of one has replaced the token since.
    pub token: FencingToken,
    /// The number of attempts; the entity's row and pages store at most 31.
    pub attempts: u32,
    pub settled_at: Timestamp,
    /// The run time of the handler; the entity's row and pages store at most 17 minutes. A function ends after 15.
    pub took: Option<Duration>,
}

impl Receipt {
    /// Returns the identity that readers of receipts outside the entity's row look for. `None` for repeats
    /// and tombstones, whose receipts need not be kept.
    pub fn spills(&self) -> Option<IdentityHash> {
        self.identity.filter(|_| self.settlement != Settlement::Repeat)
    }

    /// Returns the number of attempts in words, since the entity's row and pages count no more than 31.
    pub fn attempts_text(&self) -> String {
        let is_most = u64::from(self.attempts) >= largest(bits::ATTEMPTS);
        format!("{}{}", self.attempts, if is_most { " or more" } else { "" })
    }

    /// Returns the approximate time of the handler start, or `None` if there was no start.
    pub fn started_at(&self) -> Option<Timestamp> {
        let took = self.took?;
        Some(Timestamp::from_millis(self.settled_at.as_millis().saturating_sub(millis(took))))
    }

    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let number = |name| row.number(name).ok_or(CorruptRow::Attribute(name));
        Ok(Self {
            identity: Some(receipt_identity(row).ok_or(CorruptRow::Attribute(a::ITEM))?),
            sequence: Sequence(number(a::SEQUENCE)?),
            settlement: row
                .text(a::OUTCOME)
                .and_then(Settlement::from_stored)
                .ok_or(CorruptRow::Attribute(a::OUTCOME))?,
            token: FencingToken(number(a::TOKEN)?),
            attempts: row.number(a::ATTEMPTS).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            settled_at: Timestamp::from_millis(number(a::SETTLED_AT)?),
            took: row.number(a::TOOK).map(Duration::from_millis),
        })
    }
}

/// Adds `receipt` to `receipts` under `key`. Of two receipts of a delivery, the one under the later token
/// counts, because the delivery was settled again after a rewind.
pub fn keep_latest<K: Ord>(receipts: &mut BTreeMap<K, Receipt>, key: K, receipt: &Receipt) {
    let known = receipts.entry(key).or_insert_with(|| receipt.clone());
    if known.token < receipt.token {
        known.clone_from(receipt);
    }
}

/// The places outside the entity's row where receipts may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Spilled {
    /// Set if receipts may have rows of their own.
    pub rows: bool,
    /// Set if there may be pages of receipts.
    pub pages: bool,
}

impl Spilled {
    pub const ROWS: Self = Self { rows: true, pages: false };
    pub const PAGES: Self = Self { rows: false, pages: true };
    pub const ANYWHERE: Self = Self { rows: true, pages: true };

    pub fn is_anywhere(self) -> bool {
        self.rows || self.pages
    }

    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self { rows: self.rows || more.rows, pages: self.pages || more.pages }
    }

    pub(crate) fn to_stored(self) -> u32 {
        u32::from(self.rows) | u32::from(self.pages) << 1
    }

    pub(crate) fn from_stored(stored: Option<&Value>) -> Option<Self> {
        match stored {
            None => Some(Self::default()),
            Some(Value::N(number @ 1..=3)) => Some(Self { rows: number & 1 != 0, pages: number & 2 != 0 }),
            Some(_) => None,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The receipts in an entity's row, oldest first: one for each of the newest settled sequences, up
/// to `head` and without gaps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recent {
    receipts: VecDeque<Receipt>,
    keep_until: Timestamp,
}

impl Default for Recent {
    fn default() -> Self {
        Self { receipts: VecDeque::new(), keep_until: Timestamp::from_millis(0) }
    }
}

/// The size of a stored receipt: the identity, and its numbers.
const RECEIPT_BYTES: usize = 8 + NUMBERS_BYTES;

/// The size of a receipt's numbers: outcome, attempts, token, time and duration.
const NUMBERS_BYTES: usize = 14;

/// The number of bits of each of a receipt's numbers, in their stored sequence. 42 bits hold times in milliseconds up to
/// the year 2109. An order's first token is such a time.
mod bits {
    pub(super) const OUTCOME: u32 = 3;
    pub(super) const ATTEMPTS: u32 = 5;
    pub(super) const TOKEN: u32 = 42;
    pub(super) const SETTLED_AT: u32 = 42;
    pub(super) const TOOK: u32 = 20;
}

const _: () =
    assert!(bits::OUTCOME + bits::ATTEMPTS + bits::TOKEN + bits::SETTLED_AT + bits::TOOK == 8 * NUMBERS_BYTES as u32);

/// The size of the header before the stored receipts: the last sequence, and `keep_until`.
const HEADER_BYTES: usize = 6 + 6;

/// The bytes of an entity's row that are available for its key and its receipts. With more, the
/// largest row would cost a second write unit.
pub(super) const ROOM: usize = 493;

/// The stored form of an absent duration.
const NONE: u64 = largest(bits::TOOK);

impl Recent {
    /// Returns the number of receipts that an entity's row can hold at a cost of one write unit.
    /// The number is at least 1, even if the row then costs more.
    pub fn capacity(entity: &EntityKey) -> usize {
        let room = ROOM.saturating_sub(entity.as_str().len() + HEADER_BYTES);
        (room / RECEIPT_BYTES).max(1)
    }

    /// Returns the number of bytes that further receipts may fill in the entity's row.
    pub(super) fn free_bytes(&self, entity: &EntityKey) -> usize {
        Self::capacity(entity).saturating_sub(self.receipts.len()) * RECEIPT_BYTES
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Receipt> + ExactSizeIterator {
        self.receipts.iter()
    }

    /// Returns the receipt of the last settled sequence, `head`. `None` if nothing was settled, or
    /// if the receipts were erased.
    pub fn last(&self) -> Option<&Receipt> {
        self.receipts.back()
    }

    pub fn at(&self, sequence: Sequence) -> Option<&Receipt> {
        self.iter().find(|receipt| receipt.sequence == sequence)
    }

    /// Returns whether one of these receipts says that the delivery with `identity` was settled,
    /// other than as a repeat.
    pub fn holds(&self, identity: IdentityHash) -> bool {
        self.iter().any(|receipt| receipt.spills() == Some(identity))
    }

    /// Returns the time until which the receipts must be kept to recognise repeats.
    pub fn keep_until(&self) -> Timestamp {
        self.keep_until
    }

    /// Returns these receipts followed by `receipt`, which must be kept for `retention` after its
    /// settle.
    #[must_use]
    pub fn with(&self, receipt: Receipt, retention: Duration) -> Self {
        let mut recent = self.clone();
        recent.keep_until = recent.keep_until.max(receipt.settled_at + retention).min(Timestamp::LATEST);
        recent.receipts.push_back(receipt);
        recent
    }

    pub fn drop_beyond(&mut self, capacity: usize) -> Vec<Receipt> {
        let beyond = self.receipts.len().saturating_sub(capacity);
        self.receipts.drain(..beyond).collect()
    }

    #[must_use]
    pub fn up_to(&self, last: Sequence) -> Self {
        let mut recent = self.clone();
        recent.receipts.retain(|receipt| receipt.sequence <= last);
        recent
    }

    #[must_use]
    pub fn since(&self, first: Sequence) -> Self {
        let mut recent = self.clone();
        recent.receipts.retain(|receipt| receipt.sequence >= first);
        recent
    }

    /// Returns these receipts with `older` in front of them.
    #[must_use]
    pub fn behind(mut self, older: Vec<Receipt>) -> Self {
        older.into_iter().rev().for_each(|receipt| self.receipts.push_front(receipt));
        self
    }

    /// Iterates over the receipts that must leave the entity's row, oldest first, before another
    /// receipt fits into `capacity`.
    pub fn next_beyond(&self, capacity: usize) -> impl Iterator<Item = &Receipt> {
        self.iter().take((self.receipts.len() + 1).saturating_sub(capacity))
    }

    pub fn to_stored(&self) -> Option<Bytes> {
        let last = self.last()?;
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.receipts.len() * RECEIPT_BYTES);
        bytes.put_uint(capped(last.sequence.0, 48), 6);
        bytes.put_uint(capped(self.keep_until.as_millis(), 48), 6);
        for receipt in &self.receipts {
            bytes.put_slice(receipt.identity.as_ref().map_or(&[0; 8], IdentityHash::as_bytes).as_slice());
            bytes.put_slice(&packed(receipt).to_be_bytes()[size_of::<u128>() - NUMBERS_BYTES..]);
        }
        Some(bytes.freeze())
    }

    pub fn from_stored(bytes: &Bytes) -> Option<Self> {
        let (header, receipts) = bytes.split_at_checked(HEADER_BYTES)?;
        if receipts.is_empty() || receipts.len() % RECEIPT_BYTES != 0 {
            return None;
        }
        let (last, keep_until) = header.split_at(6);
        let behind = (receipts.len() / RECEIPT_BYTES) as u64;
        let first = (number(last) + 1).checked_sub(behind)?;
        let stored = (first..).zip(receipts.chunks_exact(RECEIPT_BYTES));
        let receipts = stored.map(|(at, bytes)| read(Sequence(at), bytes)).collect::<Option<_>>()?;
        Some(Self { receipts, keep_until: Timestamp::from_millis(number(keep_until)) })
    }
}

fn packed(receipt: &Receipt) -> u128 {
    let outcome = Settlement::ALL.iter().position(|settlement| *settlement == receipt.settlement);
    let numbers = [
        (outcome.expect("all are listed") as u64, bits::OUTCOME),
        (receipt.attempts.into(), bits::ATTEMPTS),
        (receipt.token.0, bits::TOKEN),
        (receipt.settled_at.as_millis(), bits::SETTLED_AT),
        (receipt.took.map_or(NONE, |took| millis(took).min(NONE - 1)), bits::TOOK),
    ];
    numbers.into_iter().fold(0, |packed, (number, bits)| packed << bits | u128::from(capped(number, bits)))
}

fn read(sequence: Sequence, stored: &[u8]) -> Option<Receipt> {
    let (identity, numbers) = stored.split_first_chunk()?;
    let mut packed = numbers.iter().fold(0, |packed: u128, byte| packed << 8 | u128::from(*byte));
    // The last number comes first.
    let mut next = |bits: u32| {
        let number = (packed & u128::from(largest(bits))) as u64;
        packed >>= bits;
        number
    };
    let took = next(bits::TOOK);
    let settled_at = next(bits::SETTLED_AT);
    let token = next(bits::TOKEN);
    let attempts = next(bits::ATTEMPTS);
    let settlement = *Settlement::ALL.get(next(bits::OUTCOME) as usize)?;
    Some(Receipt {
        sequence,
        identity: (settlement != Settlement::Void).then(|| IdentityHash::from_bytes(*identity)),
        settlement,
        token: FencingToken(token),
        attempts: attempts as u32,
        settled_at: Timestamp::from_millis(settled_at),
        took: (took != NONE).then(|| Duration::from_millis(took)),
    })
}

/// Returns the largest number that `bits` bits can hold.
const fn largest(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn capped(number: u64, bits: u32) -> u64 {
    number.min(largest(bits))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn receipts() -> impl Strategy<Value = Vec<Receipt>> {
        let one = (
            prop::sample::select(Settlement::ALL.to_vec()),
            any::<[u8; 8]>(),
            0..largest(bits::TOKEN),
            0_u32..32,
            0..largest(bits::SETTLED_AT),
            prop::option::of(0_u64..NONE),
        );
        let receipt =
            |(settlement, identity, token, attempts, settled_at, took): (_, _, _, _, _, Option<u64>)| Receipt {
                sequence: Sequence(0),
                identity: (settlement != Settlement::Void).then(|| IdentityHash::from_bytes(identity)),
                settlement,
                token: FencingToken(token),
                attempts,
                settled_at: Timestamp::from_millis(settled_at),
                took: took.map(Duration::from_millis),
            };
        prop::collection::vec(one.prop_map(receipt), 1..30)
    }

    fn recent(receipts: Vec<Receipt>, first: u64) -> Recent {
        let with = |recent: Recent, (at, receipt)| {
            recent.with(Receipt { sequence: Sequence(at), ..receipt }, Duration::from_secs(1))
        };
        (first..).zip(receipts).fold(Recent::default(), with)
    }

    proptest! {
        #[test]
        fn stored_receipts_are_read_unchanged(receipts in receipts(), first in 1_u64..1 << 47) {
            let mut recent = recent(receipts, first);
            // Times are stored in 48 bits.
            recent.keep_until = recent.keep_until.min(Timestamp::from_millis((1 << 48) - 1));
            let stored = recent.to_stored().unwrap();
            prop_assert_eq!(stored.len(), HEADER_BYTES + recent.receipts.len() * RECEIPT_BYTES);
            prop_assert_eq!(Recent::from_stored(&stored), Some(recent));
        }

        #[test]
        fn number_beyond_its_bits_changes_no_other(token: u64, attempts: u32, settled_at: u64, took: u64) {
            let settled_at = Timestamp::from_millis(settled_at);
            let took = Some(Duration::from_millis(took));
            let identity = Some(IdentityHash::from_bytes([7; 8]));
            let settlement = Settlement::Superseded;
            let receipt = Receipt {
                sequence: Sequence(1), identity, settlement, token: FencingToken(token), attempts, settled_at, took,
            };
            let stored = recent(vec![receipt.clone()], 1).to_stored().unwrap();
            let read = Recent::from_stored(&stored).unwrap();
            let expected = Receipt {
                token: FencingToken(token.min((1 << 42) - 1)),
                attempts: attempts.min(31),
                settled_at: settled_at.min(Timestamp::from_millis((1 << 42) - 1)),
                took: took.map(|took| took.min(Duration::from_millis((1 << 20) - 2))),
                ..receipt
            };
            prop_assert_eq!(read.at(Sequence(1)), Some(&expected));
        }

        #[test]
        fn parsing_arbitrary_receipt_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let read = Recent::from_stored(&Bytes::from(bytes.clone()));
            prop_assert!(read.is_none_or(|recent| recent.to_stored().unwrap().len() == bytes.len()));
        }

        #[test]
        fn full_row_drops_the_oldest_receipts(receipts in receipts(), capacity in 1_usize..30) {
            let before = recent(receipts, 1);
            let expected: Vec<_> = before.next_beyond(capacity).cloned().collect();
            let newest = Receipt { sequence: Sequence(before.receipts.len() as u64 + 1), ..before.receipts[0].clone() };
            let mut after = before.with(newest.clone(), Duration::ZERO);
            let dropped = after.drop_beyond(capacity);
            prop_assert_eq!(&dropped, &expected);
            prop_assert!(after.receipts.len() <= capacity);
            let all: Vec<_> = dropped.into_iter().chain(after.receipts).collect();
            prop_assert_eq!(all, before.receipts.into_iter().chain([newest]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn attempts_beyond_31_are_not_told_as_31() {
        let attempts = |attempts| {
            let receipt = Receipt {
                sequence: Sequence(1),
                identity: None,
                settlement: Settlement::Applied,
                token: FencingToken(1),
                attempts,
                settled_at: Timestamp::from_millis(1),
                took: None,
            };
            let stored = recent(vec![receipt], 1).to_stored().unwrap();
            Recent::from_stored(&stored).unwrap().last().unwrap().attempts_text()
        };
        assert_eq!([1, 30, 31, 200].map(attempts), ["1", "30", "31 or more", "31 or more"]);
    }

    #[test]
    fn receipt_of_repeat_does_not_identify_further_repeats() {
        let hash = |byte| IdentityHash::from_bytes([byte; 8]);
        let one = |byte, settlement| Receipt {
            sequence: Sequence(0),
            identity: Some(hash(byte)),
            settlement,
            token: FencingToken(1),
            attempts: 1,
            settled_at: Timestamp::from_millis(1),
            took: None,
        };
        let recent =
            recent(vec![one(1, Settlement::Applied), one(2, Settlement::Repeat), one(3, Settlement::Parked)], 5);
        assert_eq!([1, 2, 3, 4].map(|byte| recent.holds(hash(byte))), [true, false, true, false]);
        assert_eq!(recent.at(Sequence(6)).map(|receipt| receipt.settlement), Some(Settlement::Repeat));
        assert_eq!(recent.at(Sequence(8)), None);
    }
}
