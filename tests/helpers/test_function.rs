//! A Lambda function that does what its event says, for tests of the runner of functions' processes.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    if std::env::var_os("FAIL_TO_START").is_some() {
        eprintln!("no settings");
        std::process::exit(3);
    }
    run(service_fn(handle)).await
}

async fn handle(event: LambdaEvent<Value>) -> Result<Value, Error> {
    match event.payload["do"].as_str().unwrap_or_default() {
        "answer" => Ok(json!({
            "request_id": event.context.request_id,
            "deadline": event.context.deadline,
            "function_arn": event.context.invoked_function_arn,
            "process_id": std::process::id(),
            "environment": std::env::vars().map(|(name, _)| name).collect::<Vec<_>>(),
            "setting": std::env::var("SETTING").ok(),
        })),
        "fail" => Err("the order is not known".into()),
        "panic" => panic!("lost the thread"),
        "exit" => std::process::exit(7),
        "abort" => std::process::abort(),
        "hang" => std::future::pending().await,
        "talk too much" => Ok(Value::String("x".repeat(7 * 1024 * 1024))),
        other => Err(format!("no such deed: {other}").into()),
    }
}
