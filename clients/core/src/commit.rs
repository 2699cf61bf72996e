//! The host's own writes, which a commit makes.

use serde_json::{Value as Json, json};
use webhook_serializer::{Write, protocol::table::MOST_OWN_WRITES};

use crate::tables::host_write;

/// Returns stand-ins for the host's writes, or why they cannot be committed. `own` are the serializer's own tables.
pub(crate) fn host_writes(command: &Json, own: [Option<&str>; 2]) -> Result<Vec<Write>, String> {
    let tables = command["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
    if tables.len() > MOST_OWN_WRITES {
        return Err(format!("a commit has at most {MOST_OWN_WRITES} writes, not {}", tables.len()));
    }
    let name =
        |table: &'_ Json| table.as_str().and_then(|table| table.rsplit('/').next()).unwrap_or_default().to_owned();
    let mut writes = Vec::new();
    for (number, table) in tables.iter().map(name).enumerate() {
        // A table's ARN ends with its name.
        if own.iter().flatten().any(|own| own.rsplit('/').next() == Some(&table)) {
            return Err(format!(
                "write {number} is to {table}, the serializer's own table, which only the serializer writes"
            ));
        }
        writes.push(host_write(&table, number));
    }
    Ok(writes)
}

/// Describes a commit that the conditions of these writes refused.
pub(crate) fn not_committed(refused: Vec<usize>) -> Json {
    let numbers: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let message = format!("nothing was written: the condition of write {} did not hold", numbers.join(", "));
    json!({ "is": "not_committed", "refused": refused, "message": message })
}
