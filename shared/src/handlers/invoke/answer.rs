//! What Lambda's answer to a call comes to. Pure.
//!
//! | Lambda answers | and in it | outcome |
//! |---|---|---|
//! | 200 | `{"outcome": "done" \| "retry" \| "reject"}` | that |
//! | 200 | anything else: `null`, nothing, no JSON | retry |
//! | 200, `X-Amz-Function-Error` | what was thrown | retry |
//! | the same | the function's own time was up | unanswered |
//! | 413 | | reject |
//! | 429 | | not now |
//! | anything else | | unavailable |

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::{aws::call::Answer, handler::Outcome, handlers::words::first_words, protocol::attempt::LONGEST_ASKED};

/// A function's own answer.
#[derive(Deserialize)]
struct Said {
    outcome: Word,
    #[serde(default)]
    after: Option<f64>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Done,
    Retry,
    Reject,
}

/// What a function that failed leaves, whatever its language. Where it stood
/// when it did is for its own log.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Thrown {
    error_type: String,
    error_message: String,
}

/// The outcome of a call.
pub(super) fn judge(answer: &Answer) -> Outcome {
    match (answer.status, &answer.function_error) {
        (200, None) => said(&answer.body),
        (200, Some(_)) => thrown(&answer.body),
        (status, _) => refused(status, answer),
    }
}

fn said(body: &[u8]) -> Outcome {
    let Said { outcome, after, error } = match serde_json::from_slice(body) {
        Ok(said) => said,
        Err(_) => return Outcome::retry(format!("the function's answer is no outcome: {}", unread(body))),
    };
    let error = error.map(|error| first_words(&error)).filter(|error| !error.is_empty());
    match outcome {
        Word::Done => Outcome::Done,
        Word::Reject => Outcome::Reject(error.unwrap_or_else(|| "the function rejects it".into())),
        Word::Retry => {
            let error = error.unwrap_or_else(|| "the function asks for another try".into());
            match after.map(wait) {
                None => Outcome::retry(error),
                Some(Some(after)) => Outcome::Retry { after, error },
                Some(None) => Outcome::retry("the function's answer is no outcome: `after` is no number of seconds"),
            }
        }
    }
}

/// How long `after` seconds are; `None`: that is no time. None at all is left
/// to the policy: attempts would be used up in no time.
fn wait(after: f64) -> Option<Option<Duration>> {
    if after.is_nan() || after < 0.0 {
        return None;
    }
    let wait = Duration::try_from_secs_f64(after).map_or(LONGEST_ASKED, |wait| wait.min(LONGEST_ASKED));
    Some(Some(wait).filter(|wait| !wait.is_zero()))
}

/// What an answer is, without what is in it: that may be anybody's data.
fn unread(body: &[u8]) -> String {
    if body.is_empty() {
        return "it is empty".into();
    }
    match serde_json::from_slice::<Value>(body) {
        Err(_) => "it is no JSON".into(),
        Ok(Value::Null) => "it is null".into(),
        Ok(Value::Object(fields)) => match fields.get("outcome") {
            None => "it has no `outcome`".into(),
            Some(_) => "`outcome` is done, retry or reject, `after` a number, `error` a text".into(),
        },
        Ok(_) => "it is no object".into(),
    }
}

fn thrown(body: &[u8]) -> Outcome {
    let Thrown { error_type, error_message } = serde_json::from_slice(body).unwrap_or_default();
    let parts: Vec<&str> = [error_type.as_str(), &error_message].into_iter().filter(|part| !part.is_empty()).collect();
    let words = first_words(&parts.join(": "));
    // As Lambda says it of a function that it had to stop: whatever the delivery, it held the place of others.
    if error_message.contains("Task timed out after") {
        return Outcome::unanswered(format!("the function's own time was up: {words}"));
    }
    Outcome::retry(if words.is_empty() {
        "the function failed".into()
    } else {
        format!("the function failed: {words}")
    })
}

/// Lambda did not run the function.
fn refused(status: u16, answer: &Answer) -> Outcome {
    #[derive(Deserialize, Default)]
    struct Reason {
        #[serde(default, alias = "Message")]
        message: String,
    }
    let Reason { message } = serde_json::from_slice(&answer.body).unwrap_or_default();
    let reason = Some(first_words(&message)).filter(|reason| !reason.is_empty());
    let because = |what: &str| match &reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what.to_owned(),
    };
    match status {
        413 => Outcome::Reject(because("Lambda refuses its event as too large")),
        429 => {
            let seconds = answer.retry_after.as_ref().and_then(|text| text.trim().parse().ok());
            Outcome::NotNow { after: seconds.and_then(wait).flatten(), error: because("the function is throttled") }
        }
        403 => Outcome::unavailable(because("the worker may not call the function (403)")),
        404 => Outcome::unavailable(because("there is no such function (404)")),
        _ => Outcome::unavailable(because(&format!("Lambda answered {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, function_error: Option<&str>, retry_after: Option<&str>, body: &[u8]) -> Outcome {
        judge(&Answer {
            status,
            body: body.into(),
            function_error: function_error.map(str::to_owned),
            retry_after: retry_after.map(str::to_owned),
            ..Answer::default()
        })
    }

    fn said(body: &str) -> Outcome {
        answered(200, None, None, body.as_bytes())
    }

    fn after(body: &str) -> Option<f64> {
        let Outcome::Retry { after, .. } = said(body) else { panic!("{body}") };
        after.map(|after| after.as_secs_f64())
    }

    #[test]
    fn function_answer_becomes_the_outcome() {
        assert_eq!(said(r#"{"outcome": "done"}"#), Outcome::Done);
        assert_eq!(said(r#"{"outcome": "done", "after": null, "error": null, "more": [1]}"#), Outcome::Done);
        assert_eq!(said(r#"{"outcome": "retry", "error": "no stock\n"}"#), Outcome::retry("no stock"));
        assert_eq!(said(r#"{"outcome": "retry"}"#), Outcome::retry("the function asks for another try"));
        assert_eq!(said(r#"{"outcome": "reject", "error": "no such order"}"#), Outcome::Reject("no such order".into()));
        assert_eq!(said(r#"{"outcome": "reject"}"#), Outcome::Reject("the function rejects it".into()));
    }

    #[test]
    fn requested_wait_is_capped_at_a_day() {
        for (asked, kept) in [("77", Some(77.0)), ("0.5", Some(0.5)), ("0", None), ("1e300", Some(86_400.0))] {
            assert_eq!(after(&format!(r#"{{"outcome": "retry", "after": {asked}}}"#)), kept, "{asked}");
        }
        assert_eq!(
            said(r#"{"outcome": "retry", "after": 0}"#),
            Outcome::retry("the function asks for another try"),
            "none at all is left to the policy"
        );
        assert_eq!(
            said(r#"{"outcome": "retry", "after": -1}"#),
            Outcome::retry("the function's answer is no outcome: `after` is no number of seconds")
        );
    }

    #[test]
    fn invalid_answer_is_retried_and_not_quoted() {
        for (body, reason) in [
            ("", "it is empty"),
            ("null", "it is null"),
            ("hush", "it is no JSON"),
            ("{\"outcome\": \"done\"", "it is no JSON"),
            ("[]", "it is no object"),
            ("\"done\"", "it is no object"),
            ("{\"statusCode\": 200}", "it has no `outcome`"),
            ("{\"outcome\": \"hush\"}", "`outcome` is done, retry or reject, `after` a number, `error` a text"),
            (
                "{\"outcome\": \"retry\", \"after\": \"hush\"}",
                "`outcome` is done, retry or reject, `after` a number, `error` a text",
            ),
        ] {
            assert_eq!(said(body), Outcome::retry(format!("the function's answer is no outcome: {reason}")), "{body}");
        }
    }

    #[test]
    fn function_error_is_retried_with_its_message() {
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
    fn function_timed_out_by_lambda_is_unanswered() {
        let body = br#"{"errorType": "Sandbox.Timedout", "errorMessage": "RequestId: 7 Error: Task timed out after 3.00 seconds"}"#;
        let Outcome::Unanswered { after: None, error } = answered(200, Some("Unhandled"), None, body) else { panic!() };
        assert!(error.starts_with("the function's own time was up: Sandbox.Timedout: RequestId: 7"), "{error}");
    }

    #[test]
    fn throttled_call_is_not_now() {
        let body = br#"{"Reason": "ConcurrentInvocationLimitExceeded", "Type": "User", "message": "Rate Exceeded."}"#;
        for (retry_after, expected) in [(None, None), (Some("7"), Some(7)), (Some("soon"), None), (Some("-1"), None)] {
            let after = expected.map(Duration::from_secs);
            let error = "the function is throttled: Rate Exceeded.".into();
            assert_eq!(answered(429, None, retry_after, body), Outcome::NotNow { after, error });
        }
    }

    #[test]
    fn lambda_errors_are_unavailable() {
        let body = br#"{"Type": "User", "Message": "not authorized to perform: lambda:InvokeFunction"}"#;
        assert_eq!(
            answered(403, None, None, body),
            Outcome::unavailable(
                "the worker may not call the function (403): not authorized to perform: lambda:InvokeFunction"
            )
        );
        assert_eq!(answered(404, None, None, b""), Outcome::unavailable("there is no such function (404)"));
        for status in [202, 204, 301, 400, 409, 410, 415, 500, 502, 503, 504] {
            let said = answered(status, None, None, b"hush");
            assert_eq!(said, Outcome::unavailable(format!("Lambda answered {status}")));
        }
    }

    #[test]
    fn answer_413_is_rejected() {
        let body = br#"{"message": "Request must be smaller than 6291456 bytes for the InvokeFunction operation"}"#;
        let Outcome::Reject(error) = answered(413, None, None, body) else { panic!() };
        assert!(error.starts_with("Lambda refuses its event as too large: Request must be smaller"), "{error}");
    }
}
