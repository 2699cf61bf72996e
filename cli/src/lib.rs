//! The `serializer` command and its parts, which tests and benchmarks use too. A user's own project starts at
//! [`command::Project`].

#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "`say!` and `complain` escape control characters, and do not panic if nobody reads"
)]
#![allow(missing_docs, reason = "only `command::Project` is for users; the rest is for this project's own tests")]

// The subcommands name the other modules by the crate's name, as tests and benchmarks do.
extern crate self as serializer;

pub mod command;
mod commands;
pub mod console;
pub mod document;
pub mod local;
pub mod output;
pub mod signature;
pub mod stack;
pub mod starter;
mod verbs;
pub mod view;
