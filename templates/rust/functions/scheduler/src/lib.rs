//! What the scheduler function does besides the sweep: your jobs, each tick once.

use webhook_serializer::scheduler::{self, Context, Job, JobError, Jobs};

/// Stands for a job of yours.
async fn report(context: Context) -> Result<(), JobError> {
    println!("the report of {}, under token {}", context.tick(), context.token());
    Ok(())
}

/// Runs as the scheduler function does, in Lambda and under `serializer local`.
///
/// # Errors
///
/// A setting is missing or wrong.
pub fn run() -> Result<(), scheduler::Error> {
    scheduler::run(Jobs::new().add(Job::new("nightly-report", "0 3 * * *", report)))
}
