//! The Lambda functions, which are configured by environment variables.

#[cfg(feature = "ingest")]
pub mod ingest;
#[cfg(feature = "scheduler")]
pub mod scheduler;
#[cfg(any(feature = "ingest", feature = "worker"))]
mod sqs;
#[cfg(feature = "worker")]
pub mod worker;

use std::{pin::Pin, sync::Arc};

use lambda_runtime::Error;

use crate::{
    config::{self, Environment, Variables},
    telemetry::{self, JsonLog},
    time::Env,
    traces,
};

/// Runs a function's future. It is large, and in a box because each move would copy it.
fn start(function: Pin<Box<dyn Future<Output = Result<(), Error>> + '_>>) -> Result<(), Error> {
    telemetry::init_log();
    // A small function's share of a processor keeps no second thread busy.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    telemetry::ended(runtime.block_on(function))
}

fn log(env: &Env) -> Arc<JsonLog> {
    let level = telemetry::log_level(Environment.value("AWS_LAMBDA_LOG_LEVEL").as_deref());
    let log = JsonLog::new(level, Environment.value("METRICS_NAMESPACE"), env.clone());
    Arc::new(log.detailed(config::detailed_metrics(&Environment)))
}

fn trace(env: &Env) {
    traces::begin(&|name| Environment.value(name), env);
}

async fn logged<T>(log: &JsonLog, context: &lambda_runtime::Context, answer: impl Future<Output = T>) -> T {
    log.begin(&context.request_id);
    traces::invoked(context.deadline);
    let answer = answer.await;
    log.end();
    answer
}

/// Runs a Lambda function, and sends the traces of each invocation after its answer and before the request for the next
/// event, so that the sender of a webhook does not wait for the collector.
async fn traced<S>(runtime: lambda_runtime::Runtime<S>) -> Result<(), Error>
where
    S: lambda_runtime::tower::Service<lambda_runtime::LambdaInvocation, Response = (), Error = Error>,
{
    let flushed = lambda_runtime::tower::util::ThenLayer::new(|posted: Result<(), Error>| async {
        traces::flush().await;
        posted
    });
    runtime.layer(flushed).run().await
}
