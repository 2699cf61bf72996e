//! The smallest possible function. The size and the start of the real functions are compared with it.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde_json::{Value, json};

fn main() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(service_fn(
        |_: LambdaEvent<Value>| async { Ok::<_, Error>(json!({ "statusCode": 200, "body": "hello" })) },
    )))
}
