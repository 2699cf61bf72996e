//! `cargo run`: the `serializer` command, whose `local` runs this project's functions.

use std::process::ExitCode;

use serializer::command::{Project, run_with};

fn main() -> ExitCode {
    run_with(Project {
        worker: worker::run,
        scheduler: scheduler::run,
        events: concat!(env!("CARGO_MANIFEST_DIR"), "/../events"),
    })
}
