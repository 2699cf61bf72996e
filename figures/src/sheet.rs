//! Tables that are printed as text or as JSON.

use std::fmt;

use serde_json::{Map, Value};
use serializer::output::Table;

/// A value and its text in a table.
#[derive(Debug, Clone)]
pub struct SheetCell {
    value: Value,
    text: String,
}

impl SheetCell {
    /// Creates a cell whose JSON is this string.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { value: text.clone().into(), text }
    }

    /// Creates a cell whose JSON is `value`, unrounded, and whose text is `text`.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { value: value.into(), text: text.into() }
    }

    /// Creates a cell with an integer.
    pub fn count(count: impl Into<u64>) -> Self {
        let count = count.into();
        Self { value: count.into(), text: count.to_string() }
    }

    /// Creates a cell without a value: `null` in JSON.
    pub fn none(text: impl Into<String>) -> Self {
        Self { value: Value::Null, text: text.into() }
    }
}

/// A table whose columns have a JSON key and a title.
#[derive(Debug, Clone)]
pub struct Sheet {
    keys: Vec<&'static str>,
    rows: Vec<Value>,
    table: Table,
    /// The first cell of the last row that is not indented.
    heading: String,
}

impl Sheet {
    /// Creates a sheet with these columns, each a key and a title. The titles are those of [`Table::new`].
    pub fn new(columns: &[(&'static str, &str)]) -> Self {
        let titles: Vec<&str> = columns.iter().map(|(_, title)| *title).collect();
        Self {
            keys: columns.iter().map(|(key, _)| *key).collect(),
            rows: Vec::new(),
            table: Table::new(&titles),
            heading: String::new(),
        }
    }

    /// Adds a row. If the text of its first cell is indented, its JSON also names the row that it belongs to.
    pub fn row(&mut self, cells: impl IntoIterator<Item = SheetCell>) {
        let (mut values, texts): (Vec<Value>, Vec<String>) =
            cells.into_iter().map(|cell| (cell.value, cell.text)).unzip();
        match texts[0].strip_prefix("  ") {
            Some(indented) => values[0] = format!("{}: {indented}", self.heading).into(),
            None => self.heading.clone_from(&texts[0]),
        }
        let fields: Map<String, Value> = self.keys.iter().map(|key| (*key).to_owned()).zip(values).collect();
        self.rows.push(fields.into());
        self.table.row(texts);
    }

    /// Returns whether the sheet has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns an array with an object for each row.
    pub fn json(&self) -> Value {
        self.rows.clone().into()
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

/// The same figures as text and as JSON.
#[derive(Debug, Clone)]
pub struct FiguresReport {
    /// The tables and their notes, without a line break at the end.
    pub text: String,
    /// An object.
    pub json: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_has_the_tables_values_unrounded() {
        let mut sheet =
            Sheet::new(&[("name", "name"), ("wall_ms", ">wall ms"), ("units", ">units"), ("p95_ms", ">p95")]);
        sheet.row([
            SheetCell::text("five"),
            SheetCell::number(1.26, "1.3"),
            SheetCell::count(7_u32),
            SheetCell::none("–"),
        ]);
        assert_eq!(sheet.json(), json!([{ "name": "five", "wall_ms": 1.26, "units": 7, "p95_ms": null }]));
        assert_eq!(sheet.to_string(), "name  wall ms  units  p95\nfive      1.3      7    –\n");
    }

    #[test]
    fn indented_row_is_named_with_the_row_it_belongs_to() {
        let mut sheet = Sheet::new(&[("item", "item")]);
        ["worker", "  its time", "table"].into_iter().for_each(|item| sheet.row([SheetCell::text(item)]));
        assert_eq!(sheet.json(), json!([{ "item": "worker" }, { "item": "worker: its time" }, { "item": "table" }]));
    }
}
