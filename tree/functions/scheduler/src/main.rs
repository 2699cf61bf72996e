//! The scheduler function's binary, with the one job that every deployment has.

use scheduler::Jobs;

fn main() -> Result<(), scheduler::Error> {
    scheduler::run(Jobs::new())
}
