//! The subcommands, one file each.

pub mod ask;
pub mod audit;
pub mod because;
pub mod bench;
pub mod block;
pub mod check;
pub mod console;
pub mod cost;
pub mod discard;
pub mod doctor;
pub mod entities;
pub mod erase;
pub mod history;
pub mod hold;
pub mod inspect;
pub mod interrupt;
pub mod jobs;
pub mod lease;
pub mod local;
pub mod parked;
pub mod redrive;
pub mod replay;
pub mod restore;
pub mod rewind;
pub mod send;
pub mod show;
pub mod sign;
pub mod skip;
pub mod source;
pub mod status;
pub mod survey;
pub mod tail;
pub mod target;
pub mod verify;
pub mod webhook;

use serializer::say;

/// Prints a value as one line of JSON.
fn print_json(value: &serde_json::Value) {
    say!("{value}");
}
