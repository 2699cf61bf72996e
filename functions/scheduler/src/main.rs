//! The scheduler function's binary.

fn main() -> Result<(), lambda_runtime::Error> {
    scheduler::run()
}
