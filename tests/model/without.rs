//! The rules that controls can change.

#[path = "../src/rules.rs"]
#[expect(dead_code, reason = "some are only the simulation's")]
mod rules;

pub use rules::{ViolatedRule, forget_members, forget_settled};

/// A set of changed rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes(u128);

impl Changes {
    pub fn of(rules: &[ViolatedRule]) -> Self {
        Self(rules.iter().fold(0, |set, rule| set | 1 << *rule as u8))
    }

    pub fn has(self, rule: ViolatedRule) -> bool {
        self.0 & 1 << rule as u8 != 0
    }
}
