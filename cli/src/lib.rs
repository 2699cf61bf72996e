//! Everything behind the `serializer` command that is not the command itself:
//! the embedded parts of a local run, sample webhooks, a journal of what a
//! handler really did, and its audit; the console; the reference of the sources document.
//! Tests and benchmarks use it too.

#![deny(clippy::print_stdout, reason = "`say!` ends quietly where nobody reads")]

pub mod account;
pub mod advice;
pub mod audit;
pub mod bench;
pub mod body;
pub mod claim;
pub mod console;
pub mod cost;
pub mod demo;
pub mod document;
pub mod jobs;
pub mod journal;
pub mod lanes;
pub mod local;
pub mod output;
pub mod overview;
pub mod pace;
pub mod reference;
pub mod samples;
pub mod sender;
pub mod service;
pub mod stack;
pub mod standing;
pub mod story;
pub mod tail;
pub mod timeline;
