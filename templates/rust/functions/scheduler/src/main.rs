//! The scheduler function's binary.

fn main() -> Result<(), webhook_serializer::scheduler::Error> {
    scheduler::run()
}
