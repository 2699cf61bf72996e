//! The scheduler function's binary, with the sweep as its only job.

use webhook_serializer::scheduler::{self, Jobs};

fn main() -> Result<(), scheduler::Error> {
    scheduler::run(Jobs::new())
}
