//! The errors of sessions, as events with a kind for each reaction and a sentence that says what to do.

use serde_json::{Value as Json, json};
use webhook_serializer::{EntityKey, InvalidRequest, LeaseError, protocol::table::InvalidKind};

use crate::{dynamo::NO_CREDENTIALS, tables::HAS_ANOTHER_KEY};

pub(crate) fn event(is: &str, message: impl Into<String>) -> Json {
    json!({ "is": is, "message": message.into() })
}

/// Describes an error: a kind for each reaction, and a sentence that says what to do.
pub(crate) fn failure(error: &LeaseError, key: &EntityKey, table: &str) -> Json {
    match error {
        LeaseError::Contended { by, until } => json!({
            "is": "contended",
            "by": by,
            "until": until.as_millis(),
            "message": format!("{key} is held by {by} until {until}: try again later, or wait longer"),
        }),
        LeaseError::Lost => event(
            "lost",
            format!(
                "the lease of {key} was lost, and another holder may already work on it: stop the work and begin again \
                 under a new lease (a blocked or frozen process renews no lease)"
            ),
        ),
        LeaseError::OutOfTime => event(
            "out_of_time",
            format!("the caller's time ended before the work on {key} was done: allow more time, or do less work"),
        ),
        LeaseError::Throttled => event(
            "throttled",
            format!("DynamoDB throttles the table {table}: try again later, or raise the table's capacity"),
        ),
        LeaseError::Unreachable(reason) => event(
            "unreachable",
            format!("the lease of {key} was not granted, because DynamoDB did not answer ({reason}): try again later"),
        ),
        LeaseError::Unknown(reason) => event(
            "unknown",
            format!(
                "the work on {key} is done, but DynamoDB did not confirm its last write ({reason}): read what was \
                 written before you repeat it"
            ),
        ),
        LeaseError::Refused(request) => refused(request),
    }
}

const RIGHTS: &str = "allow dynamodb:GetItem and UpdateItem on the entities table, and what a commit writes; \
                      for a job also dynamodb:PutItem on the inbox table";

/// Describes a request that DynamoDB will never accept.
pub(crate) fn refused(request: &InvalidRequest) -> Json {
    let (is, advice) = match request.kind {
        InvalidKind::MissingTable => ("missing_table", CHECK_NAME),
        InvalidKind::Request if request.message.contains(HAS_ANOTHER_KEY) => ("refused", CHECK_NAME),
        InvalidKind::Permission => ("denied", RIGHTS),
        InvalidKind::Credentials if NO_CREDENTIALS.iter().any(|name| request.message.starts_with(name)) => {
            ("denied", PROVIDE_CREDENTIALS)
        }
        // Signatures carry the host's time, and DynamoDB refuses one that is minutes off.
        InvalidKind::Credentials if request.message.contains("ignature expired") => ("denied", SET_CLOCK),
        InvalidKind::Credentials if request.message.contains("ignature not yet current") => ("denied", SET_CLOCK),
        InvalidKind::Credentials => ("denied", "renew the AWS credentials"),
        InvalidKind::UnreadableRow => ("unreadable_row", "update this package to the deployment's version"),
        InvalidKind::Request => ("refused", "change the request; a repeat does not help"),
    };
    event(is, format!("{}: {advice}", request.message.trim_end_matches(['.', ':', ' '])))
}

const CHECK_NAME: &str = "check its name (the deployment's outputs EntitiesTable and InboxTable are its own tables), the region and the account";

const PROVIDE_CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (and sign in again with \
                                   `aws sso login`), or give this host a role";

const SET_CLOCK: &str = "this host's clock is wrong; set it, such as by NTP";
