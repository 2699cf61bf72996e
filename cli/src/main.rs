//! The `serializer` command's binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    serializer::command::run()
}
