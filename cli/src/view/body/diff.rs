//! Compares two JSON bodies, and lists the changed values by JSON pointer.

use std::collections::BTreeMap;

use super::{BodyNode, redacted, token};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedValue {
    pub pointer: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Returns the differences between two bodies, in the order of `after`. Removed values come last. The order of members
/// does not matter; items of arrays are compared by position. Unless `raw` is set, the reported values are redacted.
pub fn diff(before: &BodyNode, after: &BodyNode, raw: bool) -> Vec<ChangedValue> {
    let shown = |node: &BodyNode| if raw { node.clone() } else { redacted(node).node };
    let mut changes = Vec::new();
    compare(Side(before, &shown(before)), Side(after, &shown(after)), &mut String::new(), &mut changes);
    changes
}

/// A value of a body, and the form in which the value may be shown.
#[derive(Clone, Copy)]
struct Side<'a>(&'a BodyNode, &'a BodyNode);

type DiffStep = (String, String);

impl<'a> Side<'a> {
    fn children(self) -> Option<Vec<(DiffStep, Side<'a>)>> {
        match (self.0, self.1) {
            (BodyNode::Object(all), BodyNode::Object(shown)) => {
                let member = |((key, node), (shown_key, shown)): (&'a (String, BodyNode), &'a (String, BodyNode))| {
                    ((key.clone(), token(shown_key)), Side(node, shown))
                };
                Some(all.iter().zip(shown).map(member).collect())
            }
            (BodyNode::Array(all), BodyNode::Array(shown)) => {
                let item = |(number, (node, shown)): (usize, (&'a BodyNode, &'a BodyNode))| {
                    ((number.to_string(), number.to_string()), Side(node, shown))
                };
                Some(all.iter().zip(shown).enumerate().map(item).collect())
            }
            _ => None,
        }
    }

    fn is_object(self) -> bool {
        matches!(self.0, BodyNode::Object(_))
    }
}

fn compare(before: Side<'_>, after: Side<'_>, pointer: &mut String, changes: &mut Vec<ChangedValue>) {
    if before.0 == after.0 {
        return;
    }
    let (old, new) = match (before.children(), after.children()) {
        (Some(old), Some(new)) if before.is_object() == after.is_object() => (old, new),
        _ => {
            let text = |side: Side<'_>| Some(side.1.compact());
            return changes.push(ChangedValue { pointer: pointer.clone(), before: text(before), after: text(after) });
        }
    };
    let mut at = |step: &str, before: Option<Side<'_>>, after: Option<Side<'_>>| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(step);
        match (before, after) {
            (Some(before), Some(after)) => compare(before, after, pointer, changes),
            (before, after) => {
                let text = |side: Option<Side<'_>>| side.map(|side| side.1.compact());
                changes.push(ChangedValue { pointer: pointer.clone(), before: text(before), after: text(after) });
            }
        }
        pointer.truncate(length);
    };
    let mut left: BTreeMap<&str, Side<'_>> = old.iter().map(|((key, _), side)| (&**key, *side)).collect();
    for ((key, shown), side) in &new {
        at(shown, left.remove(&**key), Some(*side));
    }
    for ((key, shown), side) in &old {
        if left.remove(&**key).is_some() {
            at(shown, Some(*side), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: &str, after: &str, raw: bool) -> Vec<String> {
        let node = |text: &str| BodyNode::parse(text.as_bytes()).unwrap();
        let none = || "-".to_owned();
        let changes = diff(&node(before), &node(after), raw).into_iter();
        changes
            .map(|one| {
                format!("{} {} {}", one.pointer, one.before.unwrap_or_else(none), one.after.unwrap_or_else(none))
            })
            .collect()
    }

    #[test]
    fn diff_lists_each_change_and_ignores_member_order() {
        let before = r#"{"id":1,"a":{"x":9007199254740992,"y":"\u00e9"},"gone":[1],"tags":["a","b"]}"#;
        let after = r#"{"tags":["a","c",{"n":1}],"a":{"y":"é","x":9007199254740993},"id":1,"new/er":null}"#;
        let expected = [
            r#"/tags/1 "b" "c""#,
            r#"/tags/2 - {"n":1}"#,
            "/a/x 9007199254740992 9007199254740993",
            "/new~1er - null",
            "/gone [1] -",
        ];
        assert_eq!(told(before, after, false), expected);
        assert_eq!(told(r#"{"a":[1]}"#, r#"{"a":{"0":1}}"#, false), [r#"/a [1] {"0":1}"#]);
        assert_eq!(told(before, before, false), [""; 0]);
    }

    #[test]
    fn diff_hides_personal_data() {
        let before = r#"{"customer":{"email":"a@b.example"}}"#;
        let after = r#"{"customer":{"email":"c@d.example"}}"#;
        assert_eq!(told(before, after, false), [r#"/customer "[redacted]" "[redacted]""#]);
        assert_eq!(told(before, after, true), [r#"/customer/email "a@b.example" "c@d.example""#]);
    }
}
