//! The scheduler function's binary, with the one job that every deployment has.

use webhook_serializer::scheduler::{self, Jobs};

fn main() -> Result<(), scheduler::Error> {
    scheduler::run(Jobs::new())
}
