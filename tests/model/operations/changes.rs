//! Writes as they would be without a rule.

use webhook_serializer::protocol::{
    format::attribute as a,
    table::{Action, Change, Comparison, Condition, Row, Write},
};

use super::{Execution, Op};
use crate::{
    store::{ClockReading, LEASE, time},
    without::{ViolatedRule, change_write, drop_comparisons, forget_members},
};

impl Execution {
    /// Gives every lease the same end. Whether it seems valid then depends only on the reader's clock.
    pub(super) fn forget_whose_clock(&self, after: &mut Option<Row>) {
        if let (Op::Acquire(..) | Op::TakeOver(..), Some(row)) = (self.op, after) {
            row.set(a::EXPIRES_AT, (time(self.epoch, ClockReading::Early) + LEASE).as_millis());
        }
    }

    pub(super) fn change_write(&self, write: &mut Write) {
        for rule in self.changes.rules() {
            change_write(rule, write);
        }
        match self.op {
            Op::Settle(_, decision, _) | Op::SettleAndRelease(_, decision, _) => {
                if self.changes.has(ViolatedRule::PurgedOnHold) {
                    drop_hold(&mut write.condition);
                }
                if self.changes.has(ViolatedRule::GroupRemembersItsLast) {
                    forget_members(write, decision.first);
                }
                if self.changes.has(ViolatedRule::OneTokenPerDrain)
                    && let Action::Update(changes) = &mut write.action
                {
                    changes.retain(|change| !matches!(change, Change::Set(name, _) if name == a::TOKEN));
                }
                if self.changes.has(ViolatedRule::StepOverGaps) {
                    drop_comparisons(&mut write.condition, a::HEAD);
                }
            }
            Op::Claim(_) if self.changes.has(ViolatedRule::ClaimKeepsPurgeAt) => {
                if let Action::Update(changes) = &mut write.action {
                    changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::PURGE_AT));
                }
            }
            Op::TakeOver(_, _, seen) if self.changes.has(ViolatedRule::CountAttemptWithoutStart) => {
                if let Action::Update(changes) = &mut write.action
                    && !seen.is_started()
                {
                    for change in changes {
                        if let Change::Add { attribute, .. } = change
                            && attribute == a::SUSPECT
                        {
                            *attribute = a::ATTEMPTS.into();
                        }
                    }
                }
            }
            Op::Release(_) | Op::YieldToDeliveries(_) if self.changes.has(ViolatedRule::EveryReleaseSaysHandedOver) => {
                if let Action::Update(changes) = &mut write.action {
                    changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::HANDOVER));
                    changes.push(Change::set(a::HANDOVER, time(self.epoch, ClockReading::Early).as_millis()));
                }
            }
            Op::ReleaseEmpty(..) if self.changes.has(ViolatedRule::PurgedOnHold) => drop_hold(&mut write.condition),
            Op::Hold(_) if self.changes.has(ViolatedRule::HoldsUnnumbered) => write.condition = not_on_hold(),
            Op::Resume(_) if self.changes.has(ViolatedRule::HoldsUnnumbered) => {
                write.condition = Condition::compare(a::HOLD, Comparison::Greater, 0_u32);
            }
            Op::Rewind(_, seen, _) if self.changes.has(ViolatedRule::RewindWithoutLease) => {
                write.condition = Condition::equal(a::HEAD, seen.head.0);
            }
            Op::Spill(receipt) if self.changes.has(ViolatedRule::OlderRunDecides) => {
                write.condition = Condition::Any(vec![
                    Condition::absent(a::ITEM),
                    Condition::compare(a::SEQUENCE, Comparison::Less, receipt.sequence.0),
                ]);
            }
            _ => {}
        }
    }
}

fn not_on_hold() -> Condition {
    Condition::absent_or_at_most(a::HOLD, 0_u32)
}

fn drop_hold(condition: &mut Condition) {
    if let Condition::All(parts) = condition {
        parts.retain(|part| *part != not_on_hold());
    }
}
