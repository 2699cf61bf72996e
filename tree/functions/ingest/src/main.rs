//! The ingest function's binary.

fn main() -> Result<(), lambda_runtime::Error> {
    ingest::run()
}
