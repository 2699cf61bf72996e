//! The operations log: what an operator does is recorded before it is done, and its
//! outcome afterwards.

use crate::{
    protocol::{
        entity::{EntityKey, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, shortened},
        keys::action_row,
        operation::Operation,
        table::{Action, Change, Condition, Row, Write, Written},
    },
    time::{Nonce, Timestamp},
};

/// The operations of an operator on an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Hold,
    Resume,
    Skip,
    Retry,
    Unblock,
    Redrive,
    Discard,
    Rewind,
    /// Keep the earlier outcomes of what a rewind has not run yet.
    EndRewind,
}

impl Verb {
    /// Returns the stored and shown form: the command's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Skip => "skip",
            Self::Retry => "retry",
            Self::Unblock => "resume",
            Self::Redrive => "redrive",
            Self::Discard => "discard",
            Self::Rewind => "rewind",
            Self::EndRewind => "rewind --end",
        }
    }
}

/// The operator and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The operator's name, as given.
    pub by: String,
    pub why: String,
}

impl Reason {
    /// The most bytes kept of each.
    pub const MAX_BYTES: usize = 500;

    pub fn new(by: &str, why: &str) -> Self {
        Self { by: shortened(by, Self::MAX_BYTES), why: shortened(why, Self::MAX_BYTES) }
    }
}

/// An entry of the operations log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorAction {
    pub entity: EntityKey,
    /// A new nonce, which also tells the time.
    pub nonce: Nonce,
    /// The command's name, possibly of another version.
    pub verb: String,
    /// The sequence of the delivery that the action concerns, if any.
    pub sequence: Option<Sequence>,
    pub reason: Reason,
    /// The outcome; `None` if it was not recorded, although the action may be done.
    pub ended: Option<String>,
}

impl OperatorAction {
    /// Returns when the action began, by its operator's clock.
    pub fn at(&self) -> Option<Timestamp> {
        self.nonce.drawn_at()
    }

    /// Parses a row of the inbox; `None` if it is another kind of row.
    pub fn parse(row: &Row) -> Result<Option<Self>, CorruptRow> {
        let Some(nonce) = crate::protocol::keys::action_nonce(row) else { return Ok(None) };
        crate::protocol::format::check_format(row)?;
        let text = |name| row.text(name).ok_or(CorruptRow::Attribute(name));
        Ok(Some(Self {
            entity: EntityKey::parse(text(a::ENTITY)?)?,
            nonce,
            verb: text(a::VERB)?.to_owned(),
            sequence: row.number(a::SEQUENCE).map(Sequence),
            reason: Reason { by: text(a::BY)?.to_owned(), why: text(a::WHY)?.to_owned() },
            ended: row.text(a::OUTCOME).map(str::to_owned),
        }))
    }
}

/// Records an action before it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAction<'a> {
    pub action: &'a OperatorAction,
    pub purge_at: Timestamp,
}

impl Operation for LogAction<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let OperatorAction { entity, nonce, verb, sequence, reason, ended: _ } = self.action;
        let key = action_row(entity, nonce);
        let mut row = key
            .to_row()
            .with(a::VERSION, FORMAT)
            .with(a::NONCE, nonce.as_str())
            .with(a::VERB, verb.as_str())
            .with(a::BY, reason.by.as_str())
            .with(a::WHY, reason.why.as_str())
            .with(a::PURGE_AT, self.purge_at.as_secs_rounded_up());
        if let Some(sequence) = sequence {
            row.set(a::SEQUENCE, sequence.0);
        }
        Write::put(key, row)
    }

    /// Accepts every reply: the key contains this action's nonce, and a second try comes
    /// before its outcome is recorded.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Records the outcome of an action, unless its entry was erased in the meantime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOutcome<'a> {
    pub action: &'a OperatorAction,
    pub outcome: &'a str,
}

impl Operation for LogOutcome<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        Write {
            key: action_row(&self.action.entity, &self.action.nonce),
            condition: Condition::exists(a::VERB),
            action: Action::Update(vec![Change::set(a::OUTCOME, shortened(self.outcome, Reason::MAX_BYTES))]),
        }
    }

    /// Accepts every reply: a second try writes the same; a refusal means that the entry was
    /// erased.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
