//! DynamoDB's JSON: rows, the requests of writes, and the replies as the host's AWS SDK reports them.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value as Json, json};
use webhook_serializer::protocol::{
    expression::Expression,
    table::{
        Action, Attribute, ConditionResult, InvalidKind, InvalidRequest, Row, TableError, Transacted, Value, Write,
        Written,
    },
};

/// Renders a row. Bytes are in base64.
pub(crate) fn row_json<'a, N: AsRef<str> + 'a>(row: impl IntoIterator<Item = (&'a N, &'a Value)>) -> Json {
    Json::Object(row.into_iter().map(|(name, value)| (name.as_ref().to_owned(), value_json(value))).collect())
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::S(text) => json!({ "S": text }),
        Value::N(number) => json!({ "N": number.to_string() }),
        Value::Decimal(text) => json!({ "N": text }),
        Value::B(bytes) => json!({ "B": STANDARD.encode(bytes) }),
        Value::Bool(truth) => json!({ "BOOL": truth }),
        Value::Null => json!({ "NULL": true }),
        Value::L(items) => json!({ "L": items.iter().map(value_json).collect::<Vec<_>>() }),
        Value::M(items) => json!({ "M": row_json(items) }),
    }
}

/// Reads a row. Returns `None` if the object is missing or empty.
fn row_of(json: &Json) -> Option<Row> {
    let fields = json.as_object().filter(|fields| !fields.is_empty())?;
    Some(fields.iter().map(|(name, value)| (Attribute::from(name.clone()), value_of(value))).collect())
}

fn value_of(json: &Json) -> Value {
    let typed = json.as_object().and_then(|fields| fields.iter().find(|(_, value)| !value.is_null()));
    let Some((kind, value)) = typed else { return Value::Null };
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let bytes = |value: &Json| Value::B(STANDARD.decode(text(value)).unwrap_or_default().into());
    let list = |item: &dyn Fn(&Json) -> Value| Value::L(value.as_array().into_iter().flatten().map(item).collect());
    match kind.as_str() {
        "S" => Value::S(text(value)),
        "N" => text(value).parse().map(Value::N).unwrap_or_else(|_| Value::Decimal(text(value))),
        "B" => bytes(value),
        "BOOL" => Value::Bool(value.as_bool().unwrap_or_default()),
        "L" => list(&value_of),
        "M" => {
            let fields = value.as_object().into_iter().flatten();
            Value::M(fields.map(|(name, item)| (name.clone(), value_of(item))).collect())
        }
        "SS" => list(&|item| Value::S(text(item))),
        "NS" => list(&|item| Value::Decimal(text(item))),
        "BS" => list(&bytes),
        // DynamoDB's null, and types that DynamoDB may add later.
        _ => Value::Null,
    }
}

/// Returns the kind of a write, as `TransactWriteItems` names it, and its members.
pub(crate) fn request(write: &Write, table: &str) -> Result<(&'static str, Map<String, Json>), TableError> {
    let mut expression = Expression::default();
    let mut input = Map::new();
    let condition = expression.condition(&write.condition);
    let kind = match &write.action {
        Action::Update(changes) => {
            input.insert("UpdateExpression".into(), expression.update(changes).into());
            "Update"
        }
        Action::Delete => "Delete",
        Action::Check => "ConditionCheck",
        Action::Put(row) => {
            input.insert("Item".into(), row_json(row.iter().chain(write.key.to_row().iter())));
            "Put"
        }
        Action::Native(_) => return Err(TableError::Invalid("this client sends no such write".into())),
    };
    input.insert("TableName".into(), table.into());
    if kind != "Put" {
        input.insert("Key".into(), row_json(write.key.to_row().iter()));
    }
    if let Some(condition) = condition {
        input.insert("ConditionExpression".into(), condition.into());
        input.insert("ReturnValuesOnConditionCheckFailure".into(), "ALL_OLD".into());
    }
    if let Some(names) = expression.names() {
        input.insert("ExpressionAttributeNames".into(), json!(names));
    }
    if let Some(values) = expression.values(value_json) {
        input.insert("ExpressionAttributeValues".into(), json!(values));
    }
    Ok((kind, input))
}

/// The errors of the AWS SDKs that find no credentials, and so send nothing.
pub(crate) const NO_CREDENTIALS: [&str; 3] =
    ["CredentialsProviderError", "NoCredentialsError", "PartialCredentialsError"];

fn classify(error: &Json) -> TableError {
    let text = |name: &str| error[name].as_str().unwrap_or_default();
    let status = error["status"].as_u64().unwrap_or_default();
    if NO_CREDENTIALS.contains(&text("name")) {
        let message = format!("{}: {}", text("name"), text("message"));
        return TableError::Invalid(InvalidRequest { kind: InvalidKind::Credentials, message });
    }
    // A request without an answer may have landed. An answer that was cut off has the status of success.
    if status < 400 {
        return TableError::Unknown(format!("{} {}", text("name"), text("message")).trim().to_owned());
    }
    TableError::from_reply(text("name"), text("message"), status >= 500)
}

pub(crate) fn written(reply: &Json) -> Result<Written, TableError> {
    let error = &reply["error"];
    if error.is_null() {
        return Ok(Written::Landed(row_of(&reply["ok"]["Attributes"])));
    }
    match error["name"].as_str() {
        Some("ConditionalCheckFailedException") => Ok(Written::Refused(row_of(&error["item"]))),
        _ => Err(classify(error)),
    }
}

pub(crate) fn read(reply: &Json) -> Result<Option<Row>, TableError> {
    match &reply["error"] {
        Json::Null => Ok(row_of(&reply["ok"]["Item"])),
        error => Err(classify(error)),
    }
}

pub(crate) fn transacted(reply: &Json) -> Result<Transacted, TableError> {
    let error = &reply["error"];
    if error.is_null() {
        return Ok(Transacted::Landed);
    }
    if error["name"] != "TransactionCanceledException" {
        return Err(classify(error));
    }
    let reasons = error["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let code = |reason: &'_ Json| reason["Code"].as_str().unwrap_or("None").to_owned();
    let failed = |reason: &Json| code(reason) == "ConditionalCheckFailed";
    if reasons.iter().any(failed) {
        let result = |reason: &Json| match failed(reason) {
            true => ConditionResult::Failed(row_of(&reason["Item"])),
            false => ConditionResult::Held,
        };
        return Ok(Transacted::Refused(reasons.iter().map(result).collect()));
    }
    let reasons = reasons.iter().map(|reason| (reason["Code"].as_str().unwrap_or("None"), reason["Message"].as_str()));
    Err(TableError::from_cancellation(reasons))
}
