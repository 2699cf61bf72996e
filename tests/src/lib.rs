//! The tests' harness: a deployment whose parts a test can watch, slow down or break.
#![allow(missing_docs, reason = "read beside the tests that use it")]

/// A source's tables in a sources document, from its name and options.
#[macro_export]
macro_rules! source {
    ($name:literal $(, $option:literal)*) => {
        concat!(
            "\n[sources.", $name, "]\nprovider = 'standard-webhooks'\nsecrets = ['whsec_Zk93bTR6S2dRcTdUaHBY']\nhandler = 'test'\n"
            $(, $option, "\n")*
        )
    };
}

pub mod browser;
pub mod chaos;
pub mod dated;
pub mod deployment;
pub mod faults;
pub mod forwarding;
pub mod handlers;
pub mod invoke_types;
pub mod leaseless;
pub mod lines;
pub mod made;
pub mod metered;
pub mod not_run;
#[cfg(doctest)]
mod pages;
pub mod prelude;
pub mod rules;
pub mod settle_counter;
pub mod shop;
pub mod simulation;
pub mod slots;
pub mod testbed;
pub mod tree;
pub mod webhooks;
pub mod world;

pub use webhook_serializer::testing::clock;
