//! The subcommands, in a module for each group of the command's help.

pub mod confirm;
pub mod interrupt;
pub mod look;
pub mod mend;
pub mod program;
pub mod reason;
pub mod selection;
pub mod setup;
pub mod similar;
pub mod survey;
pub mod target;
pub mod tryout;

use serializer::say;

pub fn print_json(value: &serde_json::Value) {
    say!("{value}");
}
