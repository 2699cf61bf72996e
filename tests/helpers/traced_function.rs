//! The Lambda function that `FUNCTION` names, `ingest` or `worker`, with the feature `otel` and the
//! ready-made handlers.

use webhook_serializer::{ingest, worker};

fn main() -> Result<(), worker::Error> {
    match std::env::var("FUNCTION").as_deref() {
        Ok("ingest") => ingest::run(),
        Ok("worker") => worker::run_with(|setup| Ok(setup.handlers()?)),
        other => Err(format!("FUNCTION: {other:?} is neither `ingest` nor `worker`").into()),
    }
}
