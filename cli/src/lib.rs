//! The `serializer` command, and everything behind it: the embedded parts of a
//! local run, sample webhooks, a journal of what a handler really did, and its
//! audit; the console; the reference of the sources document. Tests and
//! benchmarks use it too. A project of one's own starts at [`command::Project`].

#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "`say!` and `complain` escape what a terminal obeys, and do not panic where nobody reads"
)]

// The subcommands use the rest as tests and benchmarks do.
extern crate self as serializer;

pub mod bench;
pub mod command;
mod commands;
pub mod console;
pub mod cost;
pub mod document;
pub mod local;
pub mod output;
pub mod signature;
pub mod stack;
pub mod view;
