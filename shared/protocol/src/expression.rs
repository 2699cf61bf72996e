//! Renders conditions, changes and values as DynamoDB's expressions.
//!
//! No other code builds the text of an expression.

use std::collections::HashMap;

use super::table::{Change, Comparison, Condition, Operand, Range, Value};

/// The placeholders of one request's expressions.
///
/// Every attribute name has a placeholder, because DynamoDB reserves many words.
#[derive(Debug, Default)]
pub struct Expression {
    names: HashMap<String, String>,
    values: HashMap<String, Value>,
}

impl Expression {
    /// Returns the attribute names behind the placeholders, if there are any.
    pub fn names(&self) -> Option<&HashMap<String, String>> {
        Some(&self.names).filter(|names| !names.is_empty())
    }

    /// Returns the values behind the placeholders, if there are any.
    pub fn values(&self) -> Option<&HashMap<String, Value>> {
        Some(&self.values).filter(|values| !values.is_empty())
    }

    fn name(&mut self, name: &str) -> String {
        if let Some((placeholder, _)) = self.names.iter().find(|(_, held)| *held == name) {
            return placeholder.clone();
        }
        let placeholder = format!("#{}", self.names.len());
        self.names.insert(placeholder.clone(), name.to_owned());
        placeholder
    }

    fn value(&mut self, value: &Value) -> String {
        let placeholder = format!(":{}", self.values.len());
        self.values.insert(placeholder.clone(), value.clone());
        placeholder
    }

    /// Returns `None` if the condition always holds.
    pub fn condition(&mut self, condition: &Condition) -> Option<String> {
        // This check comes first, because DynamoDB refuses placeholders that no expression uses.
        if condition.always_holds() {
            return None;
        }
        Some(match condition {
            Condition::Always => return None,
            Condition::Exists(name) => format!("attribute_exists({})", self.name(name)),
            Condition::Absent(name) => format!("attribute_not_exists({})", self.name(name)),
            Condition::Compare(name, comparison, operand) => {
                let sign = match comparison {
                    Comparison::Equal => "=",
                    Comparison::NotEqual => "<>",
                    Comparison::Less => "<",
                    Comparison::AtMost => "<=",
                    Comparison::Greater => ">",
                    Comparison::AtLeast => ">=",
                };
                let name = self.name(name);
                let operand = match operand {
                    Operand::Value(value) => self.value(value),
                    Operand::Attribute(name) => self.name(name),
                };
                format!("{name} {sign} {operand}")
            }
            Condition::All(parts) => self.joined(parts, " AND ")?,
            Condition::Any(parts) if parts.is_empty() => self.never(),
            Condition::Any(parts) => self.joined(parts, " OR ")?,
        })
    }

    fn never(&mut self) -> String {
        let name = self.name("v");
        format!("(attribute_exists({name}) AND attribute_not_exists({name}))")
    }

    fn joined(&mut self, parts: &[Condition], word: &str) -> Option<String> {
        let mut parts: Vec<String> = parts.iter().filter_map(|part| self.condition(part)).collect();
        match parts.len() {
            0 => None,
            // DynamoDB refuses redundant parentheses.
            1 => parts.pop(),
            _ => Some(format!("({})", parts.join(word))),
        }
    }

    pub fn update(&mut self, changes: &[Change]) -> String {
        let mut set = Vec::new();
        let mut remove = Vec::new();
        for change in changes {
            match change {
                Change::Set(name, value) => set.push(format!("{} = {}", self.name(name), self.value(value))),
                Change::SetIfAbsent(name, value) => {
                    let name = self.name(name);
                    set.push(format!("{name} = if_not_exists({name}, {})", self.value(value)));
                }
                Change::Add { attribute, base, by } => {
                    let name = self.name(attribute);
                    let base = self.value(&Value::from(*base));
                    let by = self.value(&Value::from(*by));
                    set.push(format!("{name} = if_not_exists({name}, {base}) + {by}"));
                }
                Change::Remove(name) => remove.push(self.name(name)),
            }
        }
        let set = (!set.is_empty()).then(|| format!("SET {}", set.join(", ")));
        let remove = (!remove.is_empty()).then(|| format!("REMOVE {}", remove.join(", ")));
        set.into_iter().chain(remove).collect::<Vec<_>>().join(" ")
    }

    pub fn range(&mut self, range: &Range) -> String {
        let partition = self.name(&range.partition.0);
        let sort = self.name(&range.sort);
        let value = self.value(&range.partition.1);
        let from = self.value(&Value::S(range.from.clone()));
        let to = self.value(&Value::S(range.to.clone()));
        format!("{partition} = {value} AND {sort} BETWEEN {from} AND {to}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_attribute_name_shares_one_placeholder() {
        let mut expression = Expression::default();
        let condition =
            expression.condition(&Condition::All(vec![Condition::exists("token"), Condition::equal("token", 7_u64)]));
        assert_eq!(condition.as_deref(), Some("(attribute_exists(#0) AND #0 = :0)"));
        let update = expression.update(&[
            Change::Add { attribute: "token".into(), base: 3, by: 1 },
            Change::set("head", 9_u64),
            Change::remove("holder"),
        ]);
        assert_eq!(update, "SET #0 = if_not_exists(#0, :1) + :2, #1 = :3 REMOVE #2");
    }
}
