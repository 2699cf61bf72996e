//! The operations log. An operator's action is recorded before it starts, and its outcome
//! afterwards.

use crate::{
    entity::{EntityKey, Sequence},
    format::{CorruptRow, FORMAT, attribute as a, shortened},
    keys::action_row,
    operation::Operation,
    table::{Action, Change, Condition, Row, Write, Written},
    time::{Nonce, Timestamp},
};

/// The operator who acts, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The operator's name, as the operator gave it.
    pub by: String,
    pub why: String,
}

impl Reason {
    /// The most bytes stored of an operator's name or reason. Longer texts are cut.
    pub const MAX_BYTES: usize = 500;

    pub fn new(by: &str, why: &str) -> Self {
        Self { by: shortened(by, Self::MAX_BYTES), why: shortened(why, Self::MAX_BYTES) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorAction {
    pub entity: EntityKey,
    /// A new nonce, which contains the time at which the action began.
    pub nonce: Nonce,
    /// The command's name. The field is a text, because another version of the command may have
    /// written it.
    pub verb: String,
    pub sequence: Option<Sequence>,
    pub reason: Reason,
    /// The outcome of the action. `None` if no outcome was recorded; the action may have taken
    /// effect nevertheless.
    pub ended: Option<String>,
    /// The findings of the action, for programs. Only a restore has some.
    pub found: Option<String>,
}

impl OperatorAction {
    /// Returns the time at which the action began, by the operator's clock.
    pub fn at(&self) -> Option<Timestamp> {
        self.nonce.drawn_at()
    }

    pub fn parse(row: &Row) -> Result<Option<Self>, CorruptRow> {
        let Some(nonce) = crate::keys::action_nonce(row) else { return Ok(None) };
        crate::format::check_format(row)?;
        let text = |name| row.text(name).ok_or(CorruptRow::Attribute(name));
        Ok(Some(Self {
            entity: EntityKey::parse(text(a::ENTITY)?)?,
            nonce,
            verb: text(a::VERB)?.to_owned(),
            sequence: row.number(a::SEQUENCE).map(Sequence),
            reason: Reason { by: text(a::BY)?.to_owned(), why: text(a::WHY)?.to_owned() },
            ended: row.text(a::OUTCOME).map(str::to_owned),
            found: row.text(a::FOUND).map(str::to_owned),
        }))
    }
}

/// Records an operator's action in the operations log, before the action starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAction<'a> {
    pub action: &'a OperatorAction,
    pub purge_at: Timestamp,
}

impl Operation for LogAction<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let OperatorAction { entity, nonce, verb, sequence, reason, ended: _, found: _ } = self.action;
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

    /// Treats every reply as success. The key contains the action's nonce, and a second try comes
    /// before the outcome is recorded, so it writes the same row.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Records the outcome of an operator's action, unless its entry in the operations log was erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOutcome<'a> {
    pub action: &'a OperatorAction,
    pub outcome: &'a str,
    /// The findings of the action, for programs.
    pub found: Option<&'a str>,
}

impl Operation for LogOutcome<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let mut changes = vec![Change::set(a::OUTCOME, shortened(self.outcome, Reason::MAX_BYTES))];
        changes.extend(self.found.map(|found| Change::set(a::FOUND, found)));
        Write {
            key: action_row(&self.action.entity, &self.action.nonce),
            condition: Condition::exists(a::VERB),
            action: Action::Update(changes),
        }
    }

    /// Treats every reply as success: a second try writes the same outcome, and a refusal means
    /// that the entry was erased.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
