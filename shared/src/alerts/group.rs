//! Groups of orders in trouble, as the indexes show them.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    protocol::{
        entity::EntityKey,
        format::{shortened, visible},
        waits::SourceTag,
    },
    time::Timestamp,
};

/// The kinds of trouble, the most urgent first. Commands use these words too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    Blocked,
    Parked,
    OnHold,
    Failing,
    Unavailable,
}

impl Trouble {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Parked => "parked",
            Self::OnHold => "on hold",
            Self::Failing => "failing",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The number of a group's orders that a message may name.
pub(super) const FIRST_ORDERS: usize = 10;

/// The most groups of a look that keep their names. The others are counted together, by kind.
const MOST_NAMED: usize = 12;

/// The most bytes of an error that the row of alerts keeps.
const LONGEST_ERROR: usize = 32;

/// Identifies a group: 64 bits of the hash of kind, source and error, or the kind of a group of other groups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(String);

/// The properties that a group's orders share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Common {
    pub trouble: Trouble,
    /// The source's hash. A group stays the same if the document no longer names its source.
    pub tag: SourceTag,
    /// The source's name. Empty if it is not known.
    pub name: String,
    /// The error without ids. Empty for orders that are on hold or unavailable.
    pub error: String,
    /// True for the group that counts all groups of its kind that have no room of their own.
    pub is_other: bool,
}

impl Common {
    pub fn new(trouble: Trouble, tag: SourceTag, name: &str, error: &str) -> Self {
        Self { trouble, tag, name: name.to_owned(), error: alike(error), is_other: false }
    }

    pub(super) fn other(trouble: Trouble) -> Self {
        Self { is_other: true, ..Self::new(trouble, SourceTag::default(), "", "") }
    }

    pub(super) fn id(&self) -> GroupId {
        if self.is_other {
            return GroupId(format!("other {}", self.trouble.as_str()));
        }
        let digest = Sha256::digest(format!("{}\0{:?}\0{}", self.trouble.as_str(), self.tag, self.error));
        GroupId(URL_SAFE_NO_PAD.encode(&digest[..8]))
    }

    pub(super) fn short_error(&self) -> String {
        shortened(&one_line(&self.error), LONGEST_ERROR)
    }
}

/// An order in trouble. The oldest comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderInTrouble {
    pub since: Timestamp,
    pub order: EntityKey,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub common: Common,
    /// The number of orders, or of parked deliveries.
    pub count: u64,
    /// The oldest of them.
    pub first: BTreeSet<OrderInTrouble>,
}

impl Group {
    fn add(&mut self, count: u64, first: impl IntoIterator<Item = OrderInTrouble>) {
        self.count += count;
        self.first.extend(first);
        while self.first.len() > FIRST_ORDERS {
            self.first.pop_last();
        }
    }

    pub(super) fn since(&self) -> Option<Timestamp> {
        self.first.first().map(|order| order.since)
    }
}

/// One look at the indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    groups: BTreeMap<Common, Group>,
    /// The kinds whose index could not be read, or not to its end. Such a kind may have more orders and groups.
    pub incomplete: BTreeSet<Trouble>,
}

impl Look {
    pub fn add(&mut self, common: Common, order: OrderInTrouble) {
        let new = Group { common: common.clone(), count: 0, first: BTreeSet::new() };
        self.groups.entry(common).or_insert(new).add(1, [order]);
    }

    pub(super) fn ids(&self) -> BTreeSet<GroupId> {
        self.groups.keys().map(Common::id).collect()
    }

    pub(super) fn has(&self, trouble: Trouble) -> bool {
        self.groups.keys().any(|common| common.trouble == trouble)
    }

    /// Returns the groups, of which at most [`MOST_NAMED`] keep their names, together with the number `taken` of names
    /// that the caller keeps for groups that are not in the look. Groups that are known already keep theirs, then the
    /// largest.
    pub(super) fn folded(&self, is_known: impl Fn(&GroupId) -> bool, taken: usize) -> BTreeMap<GroupId, Group> {
        let mut ranked: Vec<(GroupId, &Group)> = self.groups.values().map(|group| (group.common.id(), group)).collect();
        ranked.sort_by_key(|(id, group)| (!is_known(id), std::cmp::Reverse(group.count), id.clone()));
        let mut folded: BTreeMap<GroupId, Group> = BTreeMap::new();
        for (number, (id, group)) in ranked.into_iter().enumerate() {
            if number < MOST_NAMED.saturating_sub(taken) {
                folded.insert(id, group.clone());
                continue;
            }
            let common = Common::other(group.common.trouble);
            let other = folded.entry(common.id());
            let other = other.or_insert_with(|| Group { common, count: 0, first: BTreeSet::new() });
            other.add(group.count, group.first.iter().cloned());
        }
        folded
    }
}

/// Returns an error's text without ids: numbers of four or more digits become `…`. Shorter numbers stay, such as the
/// status 503.
pub fn alike(error: &str) -> String {
    let mut text = String::with_capacity(error.len());
    let mut digits = String::new();
    // The final `None` ends a number at the end of the text.
    for c in error.chars().map(Some).chain([None]) {
        match c {
            Some(digit) if digit.is_ascii_digit() => digits.push(digit),
            other => {
                if digits.len() >= 4 {
                    text.push('…');
                } else {
                    text.push_str(&digits);
                }
                digits.clear();
                text.extend(other);
            }
        }
    }
    text
}

/// Returns the text on one line, with hidden characters escaped.
pub(super) fn one_line(text: &str) -> String {
    visible(&text.replace(['\n', '\r', '\t'], " ")).into_owned()
}
