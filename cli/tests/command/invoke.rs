//! `serializer local` with functions that run on this machine.

use serde_json::{Value, json};

use crate::{
    endpoint::{Post, endpoint},
    running::{LocalProcess, event, file, folder, printed, ran},
};

const SECRET: &str = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==";

fn sources() -> String {
    format!(
        "[sources.warehouse]\nprovider = 'standard-webhooks'\nsecrets = ['{SECRET}']\nhandler = 'invoke'\n\
         retry = {{ attempts = 2, first = '10ms' }}\ninvoke = {{ function = 'orders', qualifier = 'live' }}\n"
    )
}

/// Throttles the first request, fails the second and completes the third.
fn lambda(number: usize, _: &Post) -> (String, String) {
    let (status, body) = match number {
        0 => ("429 No\r\nretry-after: 1", json!({ "message": "Rate Exceeded." })),
        1 => ("200 OK\r\nx-amz-function-error: Unhandled", json!({ "errorType": "KeyError", "errorMessage": "'id'" })),
        _ => ("200 OK", json!({ "outcome": "done" })),
    };
    (status.to_owned(), body.to_string())
}

#[test]
fn local_run_calls_function_at_given_lambda_endpoint() {
    let folder = folder();
    let (url, posted) = endpoint(lambda);
    let sources = file(&folder, "sources.toml", &sources());
    let sources = sources.to_str().expect("a path in UTF-8");
    let environment = folder.path().join("env");
    let mut local = LocalProcess::start(&[
        "--sources",
        sources,
        "--lambda",
        &url,
        "--env-file",
        environment.to_str().expect("a path"),
    ]);
    let sample = event("standard-webhooks-order-shipped.json");
    let sent = ran(&["send", "--to", &local.url, "--sources", sources, &sample]);
    assert!(sent.status.success(), "{sent:?}");
    let errors = [0, 1].map(|_| local.until(|told| !told["error"].is_null())["error"].clone());
    assert_eq!(errors, ["the function is throttled: Rate Exceeded.", "the function failed: KeyError: 'id'"]);
    local.until(|told| told["outcome"] == "applied");
    let mut attempts = Vec::new();
    for _ in 0..3 {
        let post = posted.recv().expect("it was called");
        assert_eq!(post.path, "/2015-03-31/functions/orders/invocations");
        let event: Value = serde_json::from_slice(&post.body).expect("JSON");
        assert_eq!(event["entity_key"], "warehouse/order/450789469");
        attempts.push(event["deliveries"][0]["attempt"].clone());
    }
    // The source allows two attempts. If the throttled one had counted, the third start would not have
    // happened.
    assert_eq!(attempts, [1, 1, 2]);
    let inspected = local.ran(&["show", "warehouse/order/450789469"]);
    assert!(printed(&inspected).contains("applied"), "{inspected:?}");
    // A user's own worker finds the Lambda endpoint too.
    let environment = std::fs::read_to_string(environment).expect("it is written");
    assert!(environment.lines().any(|line| line == format!("AWS_ENDPOINT_URL_LAMBDA={url}")), "{environment}");
}
