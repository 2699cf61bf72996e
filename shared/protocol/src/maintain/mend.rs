//! Corrects the attribute `waits` of a row that an older version wrote.

use crate::{
    format::{CorruptRow, attribute as a, readable},
    keys::entity_row,
    operation::Operation,
    state::EntityState,
    table::{Action, Condition, Write, Written},
    waits::Waits,
};

/// Sets or removes `waits`, as the row's error and block demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MendWaits<'a> {
    /// The row that was read. The write demands what `waits` depends on.
    pub seen: &'a EntityState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    Mended,
    /// Another write has changed the row. If this version wrote it, `waits` is right.
    Changed,
}

impl MendWaits<'_> {
    /// Returns whether the row's `waits` is missing, wrong or left over.
    pub fn is_needed(seen: &EntityState) -> bool {
        seen.waits != seen.due_waits()
    }
}

impl Operation for MendWaits<'_> {
    type Outcome = Mended;

    fn write(&self) -> Write {
        let seen = self.seen;
        let unchanged = |name: &'static str, value: Option<&str>| match value {
            Some(value) => Condition::equal(name, value),
            None => Condition::absent(name),
        };
        let conditions = vec![
            readable(),
            // The row exists.
            Condition::equal(a::TOKEN, seen.token.0),
            unchanged(a::LAST_ERROR, seen.last_error.as_deref()),
            unchanged(a::BLOCKED, seen.blocked.map(|reason| reason.as_str())),
            match seen.waits {
                Some(waits) => Condition::equal(a::WAITS, waits.to_stored()),
                None => Condition::absent(a::WAITS),
            },
        ];
        let changes = vec![Waits::change(seen.due_waits())];
        Write { key: entity_row(&seen.entity), condition: Condition::All(conditions), action: Action::Update(changes) }
    }

    /// Does not recognise an earlier try of this write, and need not: a second try writes the same value.
    fn judge(&self, reply: Written) -> Result<Mended, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => Mended::Mended,
            Written::Refused(_) => Mended::Changed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{NOW, after, claimed, state},
        memory::evaluate,
        table::Row,
        waits::{SourceTag, WaitClass},
    };

    #[test]
    fn mending_sets_or_removes_waits_as_error_and_block_demand() {
        let row = claimed(1);
        let failed = row.clone().with(a::LAST_ERROR, "no");
        let mended = |row: &Row| {
            let seen = state(row);
            assert!(MendWaits::is_needed(&seen));
            let after = after(&MendWaits { seen: &seen }, row);
            assert!(!MendWaits::is_needed(&state(&after)));
            after.get(a::WAITS).is_some()
        };
        assert!(mended(&failed) && mended(&row.clone().with(a::BLOCKED, "expired")));
        let left_over = Waits { class: WaitClass::Failed, source: SourceTag::default() }.to_stored();
        assert!(!mended(&row.clone().with(a::WAITS, left_over.clone())));
        assert!(!MendWaits::is_needed(&state(&row)));

        let seen = state(&failed);
        let mend = MendWaits { seen: &seen }.write();
        let settled = row.with(a::TOKEN, NOW.as_millis());
        let blocked = failed.clone().with(a::BLOCKED, "expired");
        let mended = failed.with(a::WAITS, left_over);
        for changed in [None, Some(&settled), Some(&blocked), Some(&mended)] {
            assert!(evaluate(&mend, changed).is_err(), "{changed:?}");
        }
    }
}
