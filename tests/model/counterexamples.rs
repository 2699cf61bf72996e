//! Controls. Each control changes one rule, and the changed protocol must violate a property. The length of a
//! shortest counterexample is pinned.

use webhook_serializer::sources::deliver::Deliver::UpTo;

use crate::{
    audit::{
        CHARGED, DECIDED_ONCE, EXCLUSION, HOLD, NO_LATE_EFFECT, NO_LOSS, ONCE, ORDER, PENDING, REWOUND, SKIPPED, WAITS,
    },
    configurations::{model, one, repeated, two, with_repeat},
    protocol::Protocol,
    without::ViolatedRule,
};

pub struct Control {
    pub change: &'static str,
    pub rule: ViolatedRule,
    /// Further changed rules. With these alone, the protocol must still hold.
    pub assumes: &'static [ViolatedRule],
    pub property: &'static str,
    /// The length of a shortest counterexample.
    pub steps: usize,
    pub wrong: &'static str,
    pub model: Protocol,
}

macro_rules! controls {
    ($($name:ident $change:literal $(mutation $number:literal $(seed $seed:literal)?)?
        $(model $property:ident in $steps:literal: $wrong:literal, $base:ident $fields:tt may $budget:tt
        $(assumes [$($assumed:ident),*])?)?;)*) => {
        /// Returns the rules' controls that the model has.
        pub fn controls() -> Vec<Control> {
            let controls = [$($(Some(Control {
                change: $change,
                rule: ViolatedRule::$name,
                assumes: &[$($(ViolatedRule::$assumed),*)?],
                property: $property,
                steps: $steps,
                wrong: $wrong,
                model: model!($base $fields may $budget),
            }),)?)*];
            controls.into_iter().flatten().collect()
        }
    };
}

crate::with_rules!(controls);
