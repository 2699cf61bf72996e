//! Renders conditions, changes and values as DynamoDB's expressions.
//!
//! No other code builds the text of an expression.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::{self, Write as _},
};

use super::table::{Change, Comparison, Condition, Operand, Range, Value};

/// The placeholders of one request's expressions.
///
/// Every attribute name has a placeholder, because DynamoDB reserves many words.
#[derive(Debug, Default)]
pub struct Expression<'a> {
    /// The attribute names behind `#0`, `#1` and so on.
    names: Vec<&'a str>,
    /// The values behind `:0`, `:1` and so on.
    values: Vec<Cow<'a, Value>>,
}

impl<'a> Expression<'a> {
    /// Returns the attribute names by their placeholders, if there are any.
    pub fn names(&self) -> Option<HashMap<String, String>> {
        by_placeholder('#', &self.names, |name| (*name).to_owned())
    }

    /// Returns the values by their placeholders, as `convert` returns them, if there are any.
    pub fn values<V>(&self, convert: impl Fn(&Value) -> V) -> Option<HashMap<String, V>> {
        by_placeholder(':', &self.values, |value| convert(value))
    }

    /// Adds the placeholder of an attribute name to `text`.
    fn name(&mut self, text: &mut String, name: &'a str) {
        let number = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        add(text, format_args!("#{number}"));
    }

    /// Adds the placeholder of a value to `text`.
    fn value(&mut self, text: &mut String, value: Cow<'a, Value>) {
        add(text, format_args!(":{}", self.values.len()));
        self.values.push(value);
    }

    /// Returns `None` if the condition always holds.
    pub fn condition(&mut self, condition: &'a Condition) -> Option<String> {
        // DynamoDB refuses placeholders that no expression uses.
        if condition.always_holds() {
            return None;
        }
        let mut text = String::new();
        self.add_condition(&mut text, condition);
        Some(text)
    }

    fn add_condition(&mut self, text: &mut String, condition: &'a Condition) {
        match condition {
            Condition::Always => {}
            Condition::Exists(name) => self.call(text, "attribute_exists(", name),
            Condition::Absent(name) => self.call(text, "attribute_not_exists(", name),
            Condition::Compare(name, comparison, operand) => {
                self.name(text, name);
                text.push_str(match comparison {
                    Comparison::Equal => " = ",
                    Comparison::NotEqual => " <> ",
                    Comparison::Less => " < ",
                    Comparison::AtMost => " <= ",
                    Comparison::Greater => " > ",
                    Comparison::AtLeast => " >= ",
                });
                match operand {
                    Operand::Value(value) => self.value(text, Cow::Borrowed(value)),
                    Operand::Attribute(name) => self.name(text, name),
                }
            }
            Condition::All(parts) => self.joined(text, parts, " AND "),
            Condition::Any(parts) if parts.is_empty() => self.never(text),
            Condition::Any(parts) => self.joined(text, parts, " OR "),
        }
    }

    fn call(&mut self, text: &mut String, function: &str, name: &'a str) {
        text.push_str(function);
        self.name(text, name);
        text.push(')');
    }

    fn never(&mut self, text: &mut String) {
        self.call(text, "(attribute_exists(", "v");
        self.call(text, " AND attribute_not_exists(", "v");
        text.push(')');
    }

    fn joined(&mut self, text: &mut String, parts: &'a [Condition], word: &str) {
        let mut parts = parts.iter().filter(|part| !part.always_holds()).peekable();
        let Some(first) = parts.next() else { return };
        // DynamoDB refuses redundant parentheses.
        let has_several = parts.peek().is_some();
        if has_several {
            text.push('(');
        }
        self.add_condition(text, first);
        for part in parts {
            text.push_str(word);
            self.add_condition(text, part);
        }
        if has_several {
            text.push(')');
        }
    }

    /// Returns the update expression of `changes`.
    pub fn update(&mut self, changes: &'a [Change]) -> String {
        let mut set = String::new();
        let mut remove = String::new();
        for change in changes {
            match change {
                Change::Set(name, value) => {
                    self.begin(&mut set, "SET ", name);
                    set.push_str(" = ");
                    self.value(&mut set, Cow::Borrowed(value));
                }
                Change::SetIfAbsent(name, value) => {
                    self.begin(&mut set, "SET ", name);
                    self.unless_present(&mut set, name, Cow::Borrowed(value));
                }
                Change::Add { attribute, base, by } => {
                    self.begin(&mut set, "SET ", attribute);
                    self.unless_present(&mut set, attribute, Cow::Owned(Value::from(*base)));
                    set.push_str(" + ");
                    self.value(&mut set, Cow::Owned(Value::from(*by)));
                }
                Change::Remove(name) => self.begin(&mut remove, "REMOVE ", name),
            }
        }
        if !set.is_empty() && !remove.is_empty() {
            set.push(' ');
        }
        set + &remove
    }

    /// Begins a clause or its next part, which concerns the attribute `name`.
    fn begin(&mut self, clause: &mut String, keyword: &str, name: &'a str) {
        clause.push_str(if clause.is_empty() { keyword } else { ", " });
        self.name(clause, name);
    }

    fn unless_present(&mut self, text: &mut String, name: &'a str, value: Cow<'a, Value>) {
        text.push_str(" = if_not_exists(");
        self.name(text, name);
        text.push_str(", ");
        self.value(text, value);
        text.push(')');
    }

    /// Returns the key condition of a range of rows.
    pub fn range(&mut self, range: &'a Range) -> String {
        let mut text = String::new();
        self.name(&mut text, &range.partition.0);
        text.push_str(" = ");
        self.value(&mut text, Cow::Borrowed(&range.partition.1));
        text.push_str(" AND ");
        self.name(&mut text, &range.sort);
        text.push_str(" BETWEEN ");
        self.value(&mut text, Cow::Owned(Value::S(range.from.clone())));
        text.push_str(" AND ");
        self.value(&mut text, Cow::Owned(Value::S(range.to.clone())));
        text
    }
}

fn add(text: &mut String, placeholder: fmt::Arguments<'_>) {
    text.write_fmt(placeholder).expect("a string takes any text");
}

fn by_placeholder<T, V>(sign: char, parts: &[T], convert: impl Fn(&T) -> V) -> Option<HashMap<String, V>> {
    let entries = parts.iter().enumerate().map(|(number, part)| (format!("{sign}{number}"), convert(part)));
    Some(entries.collect()).filter(|entries: &HashMap<_, _>| !entries.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_attribute_name_shares_one_placeholder() {
        let mut expression = Expression::default();
        let held = Condition::All(vec![Condition::exists("token"), Condition::equal("token", 7_u64)]);
        let condition = expression.condition(&held);
        assert_eq!(condition.as_deref(), Some("(attribute_exists(#0) AND #0 = :0)"));
        let changes = [
            Change::Add { attribute: "token".into(), base: 3, by: 1 },
            Change::set("head", 9_u64),
            Change::set_if_absent("since", 5_u64),
            Change::remove("holder"),
        ];
        let update = expression.update(&changes);
        assert_eq!(update, "SET #0 = if_not_exists(#0, :1) + :2, #1 = :3, #2 = if_not_exists(#2, :4) REMOVE #3");
        let names = [("#0", "token"), ("#1", "head"), ("#2", "since"), ("#3", "holder")];
        assert_eq!(expression.names().unwrap(), names.map(|(sign, name)| (sign.to_owned(), name.to_owned())).into());
        let values = [(":0", 7), (":1", 3), (":2", 1), (":3", 9), (":4", 5)];
        let values = values.map(|(sign, number)| (sign.to_owned(), Value::N(number)));
        assert_eq!(expression.values(Value::clone).unwrap(), values.into());
    }

    #[test]
    fn conditions_without_parts_and_single_parts_have_no_redundant_parentheses() {
        let low = || Condition::compare("a", Comparison::AtMost, 3);
        let never = "(attribute_exists(#0) AND attribute_not_exists(#0))";
        for (condition, text) in [
            (Condition::Always, None),
            (Condition::All(vec![]), None),
            (Condition::All(vec![Condition::Always, Condition::Any(vec![low(), Condition::Always])]), None),
            (Condition::Any(vec![]), Some(never)),
            (Condition::All(vec![Condition::Any(vec![]), Condition::Always]), Some(never)),
            (Condition::All(vec![Condition::Any(vec![low()])]), Some("#0 <= :0")),
            (Condition::Any(vec![Condition::absent("a"), low()]), Some("(attribute_not_exists(#0) OR #0 <= :0)")),
            (
                Condition::All(vec![Condition::Any(vec![Condition::absent("a"), low()]), Condition::exists("b")]),
                Some("((attribute_not_exists(#0) OR #0 <= :0) AND attribute_exists(#1))"),
            ),
        ] {
            let mut expression = Expression::default();
            assert_eq!(expression.condition(&condition).as_deref(), text);
            // DynamoDB refuses placeholders that no expression uses.
            let used = text.map_or(0, |text| if text.contains("#1") { 2 } else { 1 });
            assert_eq!(expression.names().map_or(0, |names| names.len()), used, "{condition:?}");
        }
    }

    #[test]
    fn update_has_only_the_clauses_that_it_needs() {
        for (changes, text) in [
            (vec![], ""),
            (vec![Change::set("a", 1)], "SET #0 = :0"),
            (vec![Change::remove("a"), Change::remove("b")], "REMOVE #0, #1"),
            (vec![Change::remove("a"), Change::set("b", 1)], "SET #1 = :0 REMOVE #0"),
        ] {
            assert_eq!(Expression::default().update(&changes), text);
        }
    }
}
