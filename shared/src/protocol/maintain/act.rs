//! What a person did to an entity: written down before it is done, and how it
//! ended afterwards.

use crate::{
    protocol::{
        entity::{EntityKey, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, shortened},
        keys::act_row,
        operation::Operation,
        table::{Action, Change, Condition, Row, Write, Written},
    },
    time::{Nonce, Timestamp},
};

/// What a person may do to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Keep workers off it.
    Hold,
    /// Let them at it again.
    Resume,
    /// Decide the delivery in front, and let those behind it go on.
    Skip,
    /// Try the delivery in front now.
    Retry,
    /// Let it go on where it was blocked.
    Unblock,
    /// Put a parked delivery back.
    Redrive,
    /// Remove a parked delivery for good.
    Discard,
    /// Run what was applied once more.
    Rewind,
    /// Leave as it was what is yet to be run once more.
    EndRewind,
}

impl Verb {
    /// As it is stored and shown: the command's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Skip => "skip",
            Self::Retry => "retry",
            Self::Unblock => "unblock",
            Self::Redrive => "redrive",
            Self::Discard => "discard",
            Self::Rewind => "rewind",
            Self::EndRewind => "rewind --end",
        }
    }
}

/// Who does it, and why; either is cut where it is long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Who, as they say.
    pub by: String,
    /// Why.
    pub why: String,
}

impl Reason {
    /// The most bytes kept of either.
    pub const MAX_BYTES: usize = 500;

    /// Takes both.
    pub fn new(by: &str, why: &str) -> Self {
        Self { by: shortened(by, Self::MAX_BYTES), why: shortened(why, Self::MAX_BYTES) }
    }
}

/// Something that a person did, or began to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// To which entity.
    pub entity: EntityKey,
    /// Its own, from which its time is read, too.
    pub nonce: Nonce,
    /// What: the command's name, of whichever version.
    pub verb: String,
    /// With which delivery, where it is about one.
    pub sequence: Option<Sequence>,
    /// Who and why.
    pub reason: Reason,
    /// How it ended; `None`: whoever did it has not said, and it may be done.
    pub ended: Option<String>,
}

impl Act {
    /// When it was begun, by its author's clock.
    pub fn at(&self) -> Option<Timestamp> {
        self.nonce.drawn_at()
    }

    /// What a row of the inbox says; `None`: it is another kind of row.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn parse(row: &Row) -> Result<Option<Self>, CorruptRow> {
        let Some(nonce) = crate::protocol::keys::act_nonce(row) else { return Ok(None) };
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

/// Writes down what is about to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun<'a> {
    /// What.
    pub act: &'a Act,
    /// When it is forgotten.
    pub purge_at: Timestamp,
}

impl Operation for Begun<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let Act { entity, nonce, verb, sequence, reason, ended: _ } = self.act;
        let key = act_row(entity, nonce);
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

    /// It asks for nothing: its key is this act's own, and only its end is
    /// written later, by the same author.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}

/// Writes down how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAs<'a> {
    /// What was done.
    pub act: &'a Act,
    /// How it ended.
    pub outcome: &'a str,
}

impl Operation for EndedAs<'_> {
    type Outcome = ();

    /// Never makes a row that was erased meanwhile.
    fn write(&self) -> Write {
        Write {
            key: act_row(&self.act.entity, &self.act.nonce),
            condition: Condition::exists(a::VERB),
            action: Action::Update(vec![Change::set(a::OUTCOME, shortened(self.outcome, Reason::MAX_BYTES))]),
        }
    }

    /// Twice is harmless; refused, it was erased.
    fn judge(&self, _: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
