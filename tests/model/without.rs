//! The rules that controls can change.

#[path = "../src/rules.rs"]
#[expect(dead_code, reason = "some are only the simulation's")]
mod rules;

pub use rules::{ViolatedRule, change_write, drop_comparisons, forget_members};

/// A set of changed rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes(u128);

impl Changes {
    pub fn of(rules: &[ViolatedRule]) -> Self {
        Self(rules.iter().fold(0, |set, rule| set | 1 << *rule as u8))
    }

    pub fn rules(self) -> impl Iterator<Item = ViolatedRule> {
        ViolatedRule::ALL.iter().copied().filter(move |rule| self.has(*rule))
    }

    pub fn has(self, rule: ViolatedRule) -> bool {
        self.0 & 1 << rule as u8 != 0
    }
}
