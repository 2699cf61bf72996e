//! The worker function's binary.

fn main() -> Result<(), webhook_serializer::worker::Error> {
    worker::run()
}
