//! Reads the DynamoDB writes in a handler's answer, which are committed with the settle.
//!
//! The form is that of `TransactItems` in DynamoDB's own JSON. Each AWS SDK has types for it:
//!
//! ```json
//! {"outcome": "done", "commit": [{"Update": {
//!     "TableName": "totals", "Key": {"order": {"S": "7"}},
//!     "UpdateExpression": "ADD payments :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}}]}
//! ```
//!
//! An error names the place of the mistake, and quotes only names that the form does not have.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::protocol::{
    native::{Native, NativeKind, NativeRow, NativeValue},
    table::{Action, Condition, Key, MOST_OWN_WRITES, TableName, Write},
};

const KINDS: [&str; 4] = ["Put", "Update", "Delete", "ConditionCheck"];

const TYPES: &str = "S, N, B, SS, NS, BS, L, M, BOOL or NULL";

/// Returns the writes of the list `commit` in an answer, or what is wrong with the list.
pub fn writes(commit: &Value) -> Result<Vec<Write>, String> {
    let items = commit.as_array().ok_or("`commit` must be a list of items as in DynamoDB's TransactWriteItems")?;
    if items.len() > MOST_OWN_WRITES {
        return Err(format!("`commit` has {} writes; at most {MOST_OWN_WRITES} fit into the transaction", items.len()));
    }
    items.iter().enumerate().map(|(number, item)| write(item, &format!("commit[{number}]"))).collect()
}

fn write(item: &Value, place: &str) -> Result<Write, String> {
    let named = item.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let (name, fields) = named.ok_or_else(|| format!("`{place}` must have one of {}", KINDS.join(", ")))?;
    if !KINDS.contains(&name.as_str()) {
        return Err(format!("`{place}` must have one of {}, not `{}`", KINDS.join(", "), short(name)));
    }
    let fields = Fields { fields: object(fields, &format!("{place}.{name}"))?, place: format!("{place}.{name}") };
    let item = if name == "Put" { "Item" } else { "Key" };
    fields.known(&[
        item,
        "TableName",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
        if name == "Update" { "UpdateExpression" } else { item },
    ])?;
    let condition = fields.text("ConditionExpression")?;
    let kind = match name.as_str() {
        "Put" => NativeKind::Put,
        "Update" => NativeKind::Update(fields.required("UpdateExpression")?),
        "Delete" => NativeKind::Delete,
        _ => {
            fields.required("ConditionExpression")?;
            NativeKind::Check
        }
    };
    let table = fields.required("TableName")?;
    if table.starts_with("arn:") {
        return Err(format!(
            "`{}.TableName` must be the name of a table in the worker's account and region, not an ARN",
            fields.place
        ));
    }
    let row = fields.row(item)?.ok_or_else(|| format!("`{}` needs `{item}`", fields.place))?;
    let native = Native {
        kind,
        item: row,
        condition,
        names: fields.names()?,
        values: fields.row("ExpressionAttributeValues")?.unwrap_or_default(),
    };
    let key = Key { table: TableName::Named(table.into()), partition: ("".into(), "".into()), sort: None };
    Ok(Write { key, condition: Condition::Always, action: Action::Native(Box::new(native)) })
}

struct Fields<'a> {
    fields: &'a Map<String, Value>,
    place: String,
}

impl Fields<'_> {
    fn known(&self, names: &[&str]) -> Result<(), String> {
        match self.fields.keys().find(|name| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some(unknown) => Err(format!("`{}` has no field `{}`", self.place, short(unknown))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let wrong = || format!("`{}.{name}` must be a text", self.place);
        self.fields.get(name).map(|value| text(value).ok_or_else(wrong)).transpose()
    }

    fn required(&self, name: &str) -> Result<String, String> {
        let text = self.text(name)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("`{}` needs `{name}`", self.place))
    }

    fn names(&self) -> Result<std::collections::BTreeMap<String, String>, String> {
        let Some(names) = self.fields.get("ExpressionAttributeNames") else { return Ok(Default::default()) };
        let place = format!("{}.ExpressionAttributeNames", self.place);
        let name = |(name, value): (&String, &Value)| {
            let value = value.as_str().ok_or_else(|| format!("`{place}.{}` must be a text", short(name)))?;
            Ok((name.clone(), value.to_owned()))
        };
        object(names, &place)?.iter().map(name).collect()
    }

    fn row(&self, name: &str) -> Result<Option<NativeRow>, String> {
        self.fields.get(name).map(|fields| row(fields, &format!("{}.{name}", self.place))).transpose()
    }
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("`{place}` must be an object"))
}

fn row(fields: &Value, place: &str) -> Result<NativeRow, String> {
    let field =
        |(name, value): (&String, &Value)| Ok((name.clone(), attribute(value, &format!("{place}.{}", short(name)))?));
    object(fields, place)?.iter().map(field).collect()
}

fn attribute(value: &Value, place: &str) -> Result<NativeValue, String> {
    let wrong = || format!("`{place}` must be a value in DynamoDB's JSON, such as {{\"S\": \"text\"}}: one of {TYPES}");
    let typed = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let (kind, value) = typed.ok_or_else(wrong)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // DynamoDB's message about an invalid number would quote the handler's value.
    let number = |value: &Value| text(value).filter(|text| is_number(text));
    let bytes = |value: &Value| STANDARD.decode(value.as_str()?).ok().map(Into::into);
    let found = match kind.as_str() {
        "S" => text(value).map(NativeValue::S),
        "N" => number(value).map(NativeValue::N),
        "B" => bytes(value).map(NativeValue::B),
        "SS" => list(value, text).map(NativeValue::Ss),
        "NS" => list(value, number).map(NativeValue::Ns),
        "BS" => list(value, bytes).map(NativeValue::Bs),
        "BOOL" => value.as_bool().map(NativeValue::Bool),
        "NULL" => value.as_bool().map(|_| NativeValue::Null),
        "M" => return row(value, &format!("{place}.M")).map(NativeValue::M),
        "L" => {
            let items = value.as_array().ok_or_else(wrong)?.iter().enumerate();
            let items = items.map(|(number, item)| attribute(item, &format!("{place}.L[{number}]")));
            return items.collect::<Result<_, _>>().map(NativeValue::L);
        }
        _ => return Err(wrong()),
    };
    found.ok_or_else(|| {
        format!("`{place}.{kind}` has another form than DynamoDB's JSON demands; numbers are texts, bytes base64")
    })
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(item).collect()
}

/// Shortens a name for an error.
pub(super) fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn update(change: impl FnOnce(&mut Value)) -> Value {
        let mut update = json!({
            "TableName": "totals", "Key": { "order": { "S": "7" } }, "UpdateExpression": "ADD payments :one",
            "ExpressionAttributeValues": { ":one": { "N": "1" } },
        });
        change(&mut update);
        json!([{ "Update": update }])
    }

    #[test]
    fn items_of_dynamodb_become_writes() {
        let row = json!({
            "s": { "S": "a" }, "n": { "N": "0.10" }, "b": { "B": "AQI=" }, "t": { "BOOL": true }, "null": { "NULL": true },
            "ss": { "SS": ["a", "b"] }, "ns": { "NS": ["1"] }, "bs": { "BS": ["AQI="] },
            "l": { "L": [{ "S": "a" }, { "M": { "x": { "N": "1" } } }] },
        });
        let put =
            json!({ "Put": { "TableName": "totals", "Item": row, "ConditionExpression": "attribute_not_exists(s)" } });
        let delete = json!({ "Delete": { "TableName": "totals", "Key": { "s": { "S": "b" } } } });
        let check = json!({ "ConditionCheck": {
            "TableName": "totals", "Key": { "s": { "S": "c" } }, "ConditionExpression": "#n = :n",
            "ExpressionAttributeNames": { "#n": "n" }, "ExpressionAttributeValues": { ":n": { "N": "1" } },
        } });
        let all = writes(&json!([put, delete, check])).unwrap();
        let native = |write: &Write| match &write.action {
            Action::Native(native) => (**native).clone(),
            other => panic!("{other:?}"),
        };
        assert!(all.iter().all(|write| write.key.table == TableName::Named("totals".into())));
        let put = native(&all[0]);
        assert_eq!((put.kind, put.item.len()), (NativeKind::Put, 9));
        assert_eq!(put.item["n"], NativeValue::N("0.10".into()), "numbers stay as they were written");
        assert_eq!(put.item["bs"], NativeValue::Bs(vec![vec![1, 2].into()]));
        let one = NativeValue::M(NativeRow::from([("x".into(), NativeValue::N("1".into()))]));
        assert_eq!(put.item["l"], NativeValue::L(vec![NativeValue::S("a".into()), one]));
        assert_eq!(native(&all[1]).kind, NativeKind::Delete);
        assert_eq!(native(&all[2]).names["#n"], "n");
        assert_eq!(native(&writes(&update(|_| {})).unwrap()[0]).kind, NativeKind::Update("ADD payments :one".into()));
        assert_eq!(writes(&json!([])).unwrap(), []);
    }

    #[test]
    fn error_names_the_place_of_the_mistake() {
        let many = Value::from(vec![json!({ "Delete": { "TableName": "t", "Key": { "a": { "S": "b" } } } }); 100]);
        for (commit, expected) in [
            (json!({}), "`commit` must be a list of items as in DynamoDB's TransactWriteItems"),
            (many, "`commit` has 100 writes; at most 99 fit into the transaction"),
            (
                json!([{ "update": {} }]),
                "`commit[0]` must have one of Put, Update, Delete, ConditionCheck, not `update`",
            ),
            (json!([{}]), "`commit[0]` must have one of Put, Update, Delete, ConditionCheck"),
            (update(|fields| fields["Tablename"] = json!("x")), "`commit[0].Update` has no field `Tablename`"),
            (
                update(|fields| _ = fields.as_object_mut().unwrap().remove("TableName")),
                "`commit[0].Update` needs `TableName`",
            ),
            (update(|fields| fields["UpdateExpression"] = json!("")), "`commit[0].Update` needs `UpdateExpression`"),
            (update(|fields| _ = fields.as_object_mut().unwrap().remove("Key")), "`commit[0].Update` needs `Key`"),
            (update(|fields| fields["Item"] = json!({})), "`commit[0].Update` has no field `Item`"),
            (
                update(|fields| fields["TableName"] = json!("arn:aws:dynamodb:eu-central-1:1:table/totals")),
                "`commit[0].Update.TableName` must be the name of a table in the worker's account and region, not an ARN",
            ),
            (
                update(|fields| fields["ExpressionAttributeValues"][":one"] = json!({ "N": 1 })),
                "`commit[0].Update.ExpressionAttributeValues.:one.N` has another form than DynamoDB's JSON demands; \
                 numbers are texts, bytes base64",
            ),
            (
                update(|fields| fields["ExpressionAttributeValues"][":one"] = json!({ "N": "hush" })),
                "`commit[0].Update.ExpressionAttributeValues.:one.N` has another form than DynamoDB's JSON demands; \
                 numbers are texts, bytes base64",
            ),
            (
                update(|fields| fields["Key"]["order"] = json!("hush")),
                "`commit[0].Update.Key.order` must be a value in DynamoDB's JSON, such as {\"S\": \"text\"}: one of S, N, B, \
                 SS, NS, BS, L, M, BOOL or NULL",
            ),
            (
                json!([{ "ConditionCheck": { "TableName": "t", "Key": { "a": { "S": "b" } } } }]),
                "`commit[0].ConditionCheck` needs `ConditionExpression`",
            ),
        ] {
            assert_eq!(writes(&commit).unwrap_err(), expected);
        }
    }
}
