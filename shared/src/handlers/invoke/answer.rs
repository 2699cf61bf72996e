//! Derives a handler's outcome from Lambda's answer to a call.
//!
//! | status | body | outcome |
//! |---|---|---|
//! | 200 | `{"outcome": "done" \| "retry" \| "reject"}` | the one in the body |
//! | 200 | `{"outcome": "done", "commit": […]}` | commit |
//! | 200 | anything else, or longer than Lambda's longest | retry |
//! | 200, `X-Amz-Function-Error` | the error | retry |
//! | 200, `X-Amz-Function-Error` | the function's timeout | unanswered |
//! | 413 | | reject |
//! | 429 | | not now |
//! | anything else | | unavailable |

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    aws::call::{AwsAnswer, LONGEST_ANSWER},
    handler::Outcome,
    handlers::{commit, document, excerpt::excerpt},
    protocol::attempt::LONGEST_ASKED,
};

#[derive(Deserialize)]
struct FunctionAnswer {
    outcome: AnsweredOutcome,
    #[serde(default)]
    after: Option<f64>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    commit: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnsweredOutcome {
    Done,
    Retry,
    Reject,
}

/// An error that a Lambda function returned, whatever its language. The stack trace is not read, because it belongs in
/// the function's own log.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FunctionError {
    error_type: String,
    error_message: String,
}

pub(super) fn judge(answer: &AwsAnswer) -> Outcome {
    match (answer.status, &answer.function_error) {
        (200, None) if answer.body.len() > LONGEST_ANSWER => {
            Outcome::retry(format!("the function's answer is longer than {LONGEST_ANSWER} bytes"))
        }
        (200, None) => returned(&answer.body),
        (200, Some(_)) => failed(&answer.body),
        (status, _) => refused(status, answer),
    }
}

fn returned(body: &[u8]) -> Outcome {
    let invalid = |reason: &str| Outcome::retry(format!("the function's answer is invalid: {reason}"));
    let fields = match document::fields(body) {
        Ok(fields) => fields,
        Err(mistake) => return invalid(&mistake.to_string()),
    };
    if let Some(reason) = document::misspelt_commit(&fields) {
        return invalid(&reason);
    }
    let has_outcome = fields.contains_key("outcome");
    let FunctionAnswer { outcome, after, error, commit } = match serde_json::from_value(fields.into()) {
        Ok(answer) => answer,
        Err(_) if has_outcome => {
            return invalid("`outcome` must be done, retry or reject, `after` a number, `error` a text");
        }
        Err(_) => return invalid("it has no `outcome`"),
    };
    let error = error.map(|error| excerpt(&error)).filter(|error| !error.is_empty());
    match (outcome, after) {
        (AnsweredOutcome::Done, _) => match commit.map(|commit| commit::writes(&commit)) {
            None => Outcome::Done,
            Some(Ok(writes)) => Outcome::Commit(writes),
            Some(Err(reason)) => invalid(&reason),
        },
        _ if commit.is_some() => invalid("only the outcome done may have a `commit`"),
        (AnsweredOutcome::Reject, _) => {
            Outcome::Reject(error.unwrap_or_else(|| "the function rejected the delivery".into()))
        }
        (AnsweredOutcome::Retry, Some(after)) if after.is_nan() || after < 0.0 => {
            invalid("`after` is not a number of seconds")
        }
        (AnsweredOutcome::Retry, after) => {
            let error = error.unwrap_or_else(|| "the function asked for a retry".into());
            Outcome::Retry { after: after.and_then(wait), error }
        }
    }
}

/// Converts the wait that a function asks for, up to [`LONGEST_ASKED`]. `None` leaves the wait to the
/// source's policy. A wait of zero is ignored, because it would use up the attempts at once.
fn wait(seconds: f64) -> Option<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        return None;
    }
    let wait = Duration::try_from_secs_f64(seconds).map_or(LONGEST_ASKED, |wait| wait.min(LONGEST_ASKED));
    Some(wait).filter(|wait| !wait.is_zero())
}

fn failed(body: &[u8]) -> Outcome {
    let FunctionError { error_type, error_message } = serde_json::from_slice(body).unwrap_or_default();
    let parts: Vec<&str> = [error_type.as_str(), &error_message].into_iter().filter(|part| !part.is_empty()).collect();
    let error = excerpt(&parts.join(": "));
    // Lambda answers with this text if the function ran into its timeout.
    if error_message.contains("Task timed out after") {
        return Outcome::unanswered(format!("the function timed out: {error}"));
    }
    Outcome::retry(if error.is_empty() {
        "the function failed".into()
    } else {
        format!("the function failed: {error}")
    })
}

fn refused(status: u16, answer: &AwsAnswer) -> Outcome {
    #[derive(Deserialize, Default)]
    struct ErrorMessage {
        #[serde(default, alias = "Message")]
        message: String,
    }
    let ErrorMessage { message } = serde_json::from_slice(&answer.body).unwrap_or_default();
    let reason = Some(excerpt(&message)).filter(|reason| !reason.is_empty());
    let because = |what: &str| match &reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what.to_owned(),
    };
    match status {
        413 => Outcome::Reject(because("Lambda refused the event as too large")),
        429 => {
            let seconds = answer.retry_after.as_ref().and_then(|text| text.trim().parse().ok());
            Outcome::NotNow { after: seconds.and_then(wait), error: because("the function is throttled") }
        }
        403 => Outcome::unavailable(because("the worker may not call the function (403)")),
        404 => Outcome::unavailable(because("the function does not exist (404)")),
        _ => Outcome::unavailable(because(&format!("Lambda answered {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, function_error: Option<&str>, retry_after: Option<&str>, body: &[u8]) -> Outcome {
        judge(&AwsAnswer {
            status,
            body: body.into(),
            function_error: function_error.map(str::to_owned),
            retry_after: retry_after.map(str::to_owned),
            ..AwsAnswer::default()
        })
    }

    fn returned(body: &str) -> Outcome {
        answered(200, None, None, body.as_bytes())
    }

    fn after(body: &str) -> Option<f64> {
        let Outcome::Retry { after, .. } = returned(body) else { panic!("{body}") };
        after.map(|after| after.as_secs_f64())
    }

    /// Promise: `done`, `retry`, `reject`; other answers and exceptions are retried, their text cut.
    #[test]
    fn function_result_becomes_the_handler_outcome() {
        assert_eq!(returned(r#"{"outcome": "done"}"#), Outcome::Done);
        assert_eq!(returned(r#"{"outcome": "done", "after": null, "error": null, "more": [1]}"#), Outcome::Done);
        assert_eq!(returned(r#"{"outcome": "retry", "error": "no stock\n"}"#), Outcome::retry("no stock"));
        assert_eq!(returned(r#"{"outcome": "retry"}"#), Outcome::retry("the function asked for a retry"));
        assert_eq!(
            returned(r#"{"outcome": "reject", "error": "no such order"}"#),
            Outcome::Reject("no such order".into())
        );
        assert_eq!(returned(r#"{"outcome": "reject"}"#), Outcome::Reject("the function rejected the delivery".into()));
    }

    #[test]
    fn answer_with_misspelt_or_doubled_commit_is_refused() {
        for (body, reason) in [
            (r#"{"outcome":"done","commits":[]}"#, "unknown field `commits` (did you mean `commit`?)"),
            (r#"{"outcome":"done","commit":[],"commit":[]}"#, "it has the field `commit` twice"),
        ] {
            assert_eq!(returned(body), Outcome::retry(format!("the function's answer is invalid: {reason}")));
        }
    }

    #[test]
    fn wait_requested_by_function_is_capped_at_a_day() {
        for (asked, kept) in [("77", Some(77.0)), ("0.5", Some(0.5)), ("0", None), ("1e300", Some(86_400.0))] {
            assert_eq!(after(&format!(r#"{{"outcome": "retry", "after": {asked}}}"#)), kept, "{asked}");
        }
        assert_eq!(
            returned(r#"{"outcome": "retry", "after": 0}"#),
            Outcome::retry("the function asked for a retry"),
            "zero is left to the policy"
        );
        assert_eq!(
            returned(r#"{"outcome": "retry", "after": -1}"#),
            Outcome::retry("the function's answer is invalid: `after` is not a number of seconds")
        );
    }

    #[test]
    fn invalid_function_result_causes_retry_and_is_not_quoted() {
        for (body, reason) in [
            ("", "it is empty"),
            ("null", "it is null"),
            ("hush", "it is not JSON"),
            ("{\"outcome\": \"done\"", "it is not JSON"),
            ("[]", "it is not an object"),
            ("\"done\"", "it is not an object"),
            ("{\"statusCode\": 200}", "it has no `outcome`"),
            ("{\"outcome\": \"hush\"}", "`outcome` must be done, retry or reject, `after` a number, `error` a text"),
            (
                "{\"outcome\": \"retry\", \"after\": \"hush\"}",
                "`outcome` must be done, retry or reject, `after` a number, `error` a text",
            ),
        ] {
            assert_eq!(returned(body), Outcome::retry(format!("the function's answer is invalid: {reason}")), "{body}");
        }
    }

    #[test]
    fn function_error_causes_a_retry_with_error_message() {
        let thrown = |body: &str| answered(200, Some("Unhandled"), None, body.as_bytes());
        let python =
            r#"{"errorMessage": "'total'", "errorType": "KeyError", "requestId": "1", "stackTrace": ["hush"]}"#;
        assert_eq!(thrown(python), Outcome::retry("the function failed: KeyError: 'total'"));
        assert_eq!(thrown(r#"{"errorMessage": "no\u001b[31m!"}"#), Outcome::retry("the function failed: no [31m!"));
        for body in ["", "null", "hush", "[]", r#"{"outcome": "done"}"#] {
            assert_eq!(thrown(body), Outcome::retry("the function failed"), "{body}");
        }
        let Outcome::Retry { error, .. } = thrown(&format!(r#"{{"errorMessage": "{}"}}"#, "x".repeat(9000))) else {
            panic!()
        };
        assert!(error.len() < 250 && error.ends_with('…'), "{error}");
    }

    #[test]
    fn function_timed_out_by_lambda_yields_unanswered_outcome() {
        let body = br#"{"errorType": "Sandbox.Timedout", "errorMessage": "RequestId: 7 Error: Task timed out after 3.00 seconds"}"#;
        let Outcome::Unanswered { after: None, error } = answered(200, Some("Unhandled"), None, body) else { panic!() };
        assert!(error.starts_with("the function timed out: Sandbox.Timedout: RequestId: 7"), "{error}");
    }

    /// Promise: throttling, 403, 404 and Lambda's errors count no attempt; a function that times out is retried for a
    /// day.
    #[test]
    fn throttled_lambda_call_yields_not_now_outcome() {
        let body = br#"{"Reason": "ConcurrentInvocationLimitExceeded", "Type": "User", "message": "Rate Exceeded."}"#;
        for (retry_after, expected) in [(None, None), (Some("7"), Some(7)), (Some("soon"), None), (Some("-1"), None)] {
            let after = expected.map(Duration::from_secs);
            let error = "the function is throttled: Rate Exceeded.".into();
            assert_eq!(answered(429, None, retry_after, body), Outcome::NotNow { after, error });
        }
    }

    #[test]
    fn lambda_error_status_yields_unavailable_outcome() {
        let body = br#"{"Type": "User", "Message": "not authorized to perform: lambda:InvokeFunction"}"#;
        assert_eq!(
            answered(403, None, None, body),
            Outcome::unavailable(
                "the worker may not call the function (403): not authorized to perform: lambda:InvokeFunction"
            )
        );
        assert_eq!(answered(404, None, None, b""), Outcome::unavailable("the function does not exist (404)"));
        for status in [202, 204, 301, 400, 409, 410, 415, 500, 502, 503, 504] {
            let outcome = answered(status, None, None, b"hush");
            assert_eq!(outcome, Outcome::unavailable(format!("Lambda answered {status}")));
        }
    }

    #[test]
    fn lambda_status_413_rejects_the_delivery() {
        let body = br#"{"message": "Request must be smaller than 6291456 bytes for the InvokeFunction operation"}"#;
        let Outcome::Reject(error) = answered(413, None, None, body) else { panic!() };
        assert!(error.starts_with("Lambda refused the event as too large: Request must be smaller"), "{error}");
    }
}
