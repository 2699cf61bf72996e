//! Searches the bodies of deliveries for a value.

use super::BodyNode;

/// The value that bodies are searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searched {
    text: String,
    field: Option<String>,
}

impl Searched {
    /// Searches for `text`, in any case. With `field`, a JSON pointer, only the value there counts.
    pub fn new(text: &str, field: Option<&str>) -> Self {
        Self { text: text.to_lowercase(), field: field.map(str::to_owned) }
    }

    /// Returns whether a value of the body has the text in it, or is this number. A body that is not JSON is searched as
    /// text, and as a form.
    pub fn is_in(&self, body: &[u8]) -> bool {
        match (BodyNode::parse(body), &self.field) {
            (Some(node), Some(field)) => node.at(field).is_some_and(|node| self.is_in_node(node)),
            (Some(node), None) => self.is_in_node(&node),
            (None, Some(_)) => false,
            (None, None) => {
                self.is_in_text(&String::from_utf8_lossy(body))
                    || form_urlencoded::parse(body).any(|(_, value)| self.is_in_text(&value))
            }
        }
    }

    fn is_in_node(&self, node: &BodyNode) -> bool {
        match node {
            BodyNode::Object(members) => members.iter().any(|(_, value)| self.is_in_node(value)),
            BodyNode::Array(items) => items.iter().any(|item| self.is_in_node(item)),
            BodyNode::Leaf(value) => match node.text() {
                Some(text) => self.is_in_text(&text),
                None => *value == self.text,
            },
            BodyNode::Deep(json) => self.is_in_text(json),
        }
    }

    fn is_in_text(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(text: &str, field: Option<&str>, body: &str) -> bool {
        Searched::new(text, field).is_in(body.as_bytes())
    }

    #[test]
    fn value_is_found_in_any_case_and_in_each_form_of_body() {
        let json = r#"{"customer":{"email":"Ada@Example.com","id":18446744073709551617},"tags":["a",{"b/c":"x"}]}"#;
        for text in ["ada@example.com", "@EXAMPLE", "18446744073709551617", "x"] {
            assert!(is_in(text, None, json), "{text}");
        }
        for text in ["email", "1844674407370955161", "bob"] {
            assert!(!is_in(text, None, json), "keys and parts of numbers do not count: {text}");
        }
        assert!(is_in("ada@", None, r#"{"email":"ada\u0040example.com"}"#), "escapes are read");
        assert!(is_in("ada@example.com", None, "From=%2B1&Body=ada%40example.com+says"));
        assert!(is_in("ada@example.com", None, "<mail>ada@example.com</mail>"));
    }

    #[test]
    fn field_restricts_search_to_its_value() {
        let json = r#"{"customer":{"email":"ada@example.com"},"tags":["ada@example.com",{"b/c":"x"}]}"#;
        for (field, expected) in [
            ("/customer/email", true),
            ("/customer", true),
            ("/tags/0", true),
            ("/tags/1", false),
            ("/tags/00", false),
            ("/customer/name", false),
        ] {
            assert_eq!(is_in("ada@example.com", Some(field), json), expected, "{field}");
        }
        assert!(is_in("x", Some("/tags/1/b~1c"), json));
        assert!(!is_in("a", Some("/a"), "a=a"), "a form has no such places");
    }
}
