//! The worker function's binary, with the handlers that come ready.

use webhook_serializer::worker;

fn main() -> Result<(), worker::Error> {
    worker::run_with(|setup| Ok(setup.handlers()?))
}
