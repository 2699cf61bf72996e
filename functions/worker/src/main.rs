//! The worker function's binary, with the ready-made handlers.

use webhook_serializer::worker;

fn main() -> Result<(), worker::Error> {
    worker::run_with(|setup| Ok(setup.handlers()?))
}
