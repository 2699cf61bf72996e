//! The scheduler function's jobs. Each tick of a job runs once.

use webhook_serializer::scheduler::{self, Context, Job, JobError, Jobs};

/// A stand-in for a job of yours.
async fn report(context: Context) -> Result<(), JobError> {
    println!("the report of {}, under token {}", context.tick(), context.token());
    Ok(())
}

/// Runs the scheduler function, in Lambda and under `serializer local`.
///
/// # Errors
///
/// A setting is missing or wrong.
pub fn run() -> Result<(), scheduler::Error> {
    scheduler::run(Jobs::new().add(Job::new("nightly-report", "0 3 * * *", report)))
}
