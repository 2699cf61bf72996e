//! The ingest function's binary.

fn main() -> Result<(), webhook_serializer::ingest::Error> {
    webhook_serializer::ingest::run()
}
