//! Hides personal data in a body, by the keys and the form of its values. A value in doubt is hidden, because the
//! operator can show the raw body.

use super::{BodyNode, token};

pub const REDACTED: &str = "\"[redacted]\"";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    pub node: BodyNode,
    pub pointers: Vec<String>,
}

/// Keys whose values are hidden, in lower case and with letters and digits only. `billing_address` is written as
/// `billingaddress`.
const HIDDEN: [&str; 31] = [
    "billing",
    "billingdetails",
    "buyer",
    "card",
    "cardholder",
    "company",
    "consignee",
    "contact",
    "contacts",
    "customer",
    "customerdetails",
    "city",
    "dateofbirth",
    "dob",
    "giftmessage",
    "iban",
    "ip",
    "landingsite",
    "latitude",
    "longitude",
    "note",
    "noteattributes",
    "orderstatusurl",
    "payer",
    "paymentmethoddetails",
    "person",
    "postcode",
    "recipient",
    "ssn",
    "street",
    "subscriber",
];

const HIDDEN_PARTS: [&str; 20] = [
    "accountnumber",
    "address",
    "apikey",
    "authorization",
    "birth",
    "browserip",
    "clientip",
    "cookie",
    "credential",
    "cvc",
    "cvv",
    "email",
    "mobile",
    "passw",
    "phone",
    "postal",
    "secret",
    "signature",
    "token",
    "zipcode",
];

/// Keys whose values are hidden only if the values are objects or arrays, because a number under `shipping` is a price.
const HIDDEN_OBJECTS: [&str; 3] = ["shipping", "destination", "receiver"];

/// Keys that end in `name` and hold the name of a thing, not of a person.
const THINGS: [&str; 12] = [
    "brandname",
    "currencyname",
    "eventname",
    "filename",
    "gatewayname",
    "hostname",
    "itemname",
    "productname",
    "shopname",
    "sourcename",
    "topicname",
    "variantname",
];

pub fn redacted(node: &BodyNode) -> Redacted {
    let mut pointers = Vec::new();
    let node = walk(node, None, &mut String::new(), &mut pointers);
    Redacted { node, pointers }
}

fn walk(node: &BodyNode, key: Option<&str>, pointer: &mut String, hidden: &mut Vec<String>) -> BodyNode {
    let mut below = |step: &str, key: Option<&str>, node: &BodyNode| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&token(step));
        let walked = walk(node, key, pointer, hidden);
        pointer.truncate(length);
        walked
    };
    if !is_hidden(key, node) {
        match node {
            BodyNode::Object(members) => {
                let member = |(key, node): &(String, BodyNode)| {
                    let shown = if has_email(key) { "[redacted]".to_owned() } else { key.clone() };
                    let walked = below(&shown, Some(key), node);
                    (shown, walked)
                };
                return BodyNode::Object(members.iter().map(member).collect());
            }
            BodyNode::Array(items) => {
                // The array's own key applies to its items: each item of `emails` is an email address.
                let item = |(number, node): (usize, &BodyNode)| below(&number.to_string(), key, node);
                return BodyNode::Array(items.iter().enumerate().map(item).collect());
            }
            BodyNode::Leaf(_) => match shown_in_part(key, node) {
                Some(part) if part == *node => return part,
                Some(part) => {
                    hidden.push(pointer.clone());
                    return part;
                }
                None => {}
            },
            BodyNode::Deep(_) => {}
        }
    }
    hidden.push(pointer.clone());
    BodyNode::Leaf(REDACTED.to_owned())
}

fn is_hidden(key: Option<&str>, node: &BodyNode) -> bool {
    let says_nothing = matches!(node, BodyNode::Leaf(text) if matches!(&**text, "null" | "true" | "false" | "\"\""));
    let Some(key) = key.filter(|_| !says_nothing) else { return false };
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let is_object = !matches!(node, BodyNode::Leaf(_));
    HIDDEN.contains(&&*key)
        || HIDDEN_PARTS.iter().any(|part| key.contains(part))
        || (is_object && HIDDEN_OBJECTS.contains(&&*key))
        || (key.starts_with("customer") && !key.ends_with("id") && key != "customerlocale")
        || (key.ends_with("name") && !THINGS.contains(&&*key) && !node.text().is_some_and(|text| is_number(&text)))
}

/// Returns the value to show for a string or number. `None` means that the value looks like personal data.
fn shown_in_part(key: Option<&str>, node: &BodyNode) -> Option<BodyNode> {
    let BodyNode::Leaf(leaf) = node else { return Some(node.clone()) };
    let text = node.text().unwrap_or_else(|| leaf.clone());
    let is_id = key.is_some_and(|key| key.eq_ignore_ascii_case("id") || key.ends_with("_id") || key.ends_with("Id"));
    if has_email(&text) || is_phone(&text) || (!is_id && has_card(&text)) {
        return None;
    }
    // The query of a link may grant access.
    match text.split_once('?') {
        Some((link, query)) if link.contains("://") && !query.is_empty() => {
            Some(BodyNode::Leaf(super::quoted(&format!("{link}?[redacted]"))))
        }
        _ => Some(node.clone()),
    }
}

/// Returns whether the value of a key that ends in `name` may be an order's number, such as `#1001` or `DE-1042`.
fn is_number(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase() || b"#-_.".contains(&byte))
}

fn has_email(text: &str) -> bool {
    text.match_indices('@').any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        let host = text[at + 1..].split(|c: char| !(c.is_alphanumeric() || c == '.' || c == '-')).next();
        before && host.is_some_and(|host| host.trim_matches('.').contains('.'))
    })
}

fn is_phone(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    text.starts_with('+')
        && (8..=15).contains(&digits)
        && text.bytes().skip(1).all(|b| b.is_ascii_digit() || b" ()-./".contains(&b))
}

/// Returns whether the text contains the number of a payment card: 15 to 19 digits that begin with 2 to 6 and pass the
/// Luhn check. Spaces and dashes may separate the digits. Shorter numbers do not count, because they may be shops' ids.
fn has_card(text: &str) -> bool {
    let mut digits = Vec::new();
    for byte in text.bytes().chain([b'.']) {
        match byte {
            b'0'..=b'9' => digits.push(byte - b'0'),
            b' ' | b'-' => {}
            _ => {
                if (15..=19).contains(&digits.len()) && (2..=6).contains(&digits[0]) && passes_luhn(&digits) {
                    return true;
                }
                digits.clear();
            }
        }
    }
    false
}

fn passes_luhn(digits: &[u8]) -> bool {
    let weigh = |(place, digit): (usize, &u8)| match (place % 2, u32::from(*digit)) {
        (0, digit) => digit,
        (_, digit) => digit * 2 / 10 + digit * 2 % 10,
    };
    digits.iter().rev().enumerate().map(weigh).sum::<u32>().is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        redacted(&BodyNode::parse(text.as_bytes()).unwrap()).node.compact()
    }

    #[test]
    fn redaction_hides_personal_data_and_lists_json_pointers() {
        let body = r##"{"id":450789469,"name":"#1001","email":"jon@example.com","customer":{"id":7,"note":"x"},
            "billing_address":{"city":"Ottawa"},"line_items":[{"title":"Tea","price":"48.20"}],"first_name":"Jon",
            "said":["call +1 613","+1 (613) 555-0100","mail Jon.Doe@example.co.uk now","4111 1111 1111 1111"],
            "client_secret":"pi_x","token":"abc","phone":null,"link":"https://shop.example/o/1?key=abc"}"##;
        let Redacted { node, pointers } = redacted(&BodyNode::parse(body.as_bytes()).unwrap());
        for own in ["jon", "Jon", "Ottawa", "613)", "4111", "pi_x", "abc", "\"x\""] {
            assert!(!node.compact().contains(own), "{own} in {}", node.compact());
        }
        for kept in [
            "450789469",
            "#1001",
            "Tea",
            "48.20",
            "call +1 613",
            "\"phone\":null",
            "https://shop.example/o/1?[redacted]",
        ] {
            assert!(node.compact().contains(kept), "{kept} not in {}", node.compact());
        }
        let expected = [
            "/email",
            "/customer",
            "/billing_address",
            "/first_name",
            "/said/1",
            "/said/2",
            "/said/3",
            "/client_secret",
            "/token",
            "/link",
        ];
        assert_eq!(pointers, expected);
    }

    #[test]
    fn card_numbers_are_hidden_and_ids_are_not() {
        // Card numbers are hidden as text and as a number, unless the key names an id.
        assert_eq!(shown(r#"["4242-4242-4242-4242",378282246310005]"#), r#"["[redacted]","[redacted]"]"#);
        for kept in [r#"{"x":9007199254740993}"#, r#"{"x":"4242424242424241"}"#, r#"{"order_id":4242424242424242}"#] {
            assert_eq!(shown(kept), kept);
        }
    }

    #[test]
    fn email_in_json_key_or_nested_value_is_redacted() {
        assert_eq!(shown(r#"{"a@b.example":1}"#), r#"{"[redacted]":1}"#);
        let deep = "[".repeat(100) + "\"jon@example.com\"" + &"]".repeat(100);
        assert!(!shown(&deep).contains("jon"));
    }
}
