//! The attributes of all rows, and the format version that each row carries. Rows of
//! another version are refused.

use std::borrow::Cow;

use super::{
    entity::InvalidEntityKey,
    table::{Condition, Row},
};

/// The names of attributes. The section *Rows* of docs/protocol.md describes each of them.
pub mod attribute {
    macro_rules! names {
        ($($name:ident = $text:literal,)*) => {
            $(pub const $name: &str = $text;)*
            pub const ALL: &[&str] = &[$($text),*];
        };
    }

    names! {
        ENTITY = "entity",
        ITEM = "item",
        VERSION = "v",
        TAIL = "tail",
        HEAD = "head",
        TOKEN = "token",
        HOLDER = "holder",
        KIND = "kind",
        EXPIRES_AT = "expires_at",
        HOLDER_INFO = "holder_info",
        LAST_CLAIM = "last_claim",
        RECENT = "recent",
        SPILLED = "spilled",
        ONE_BY_ONE = "one_by_one",
        ATTEMPTS = "attempts",
        RETRIES = "retries",
        RETRY_AT = "retry_at",
        SUSPECT = "suspect",
        STARTED = "started",
        LAST_ERROR = "last_error",
        WAITS = "waits",
        PENDING_SINCE = "pending_since",
        BLOCKED = "blocked",
        HOLD = "hold",
        HANDOVER = "handover",
        TURN_UNTIL = "turn_until",
        YIELD_UNTIL = "yield_until",
        NEWEST_EVENT_TIME = "newest_event_time",
        PURGE_AT = "purge_at",
        DEFINITION = "definition",
        LAST_TICK = "last_tick",
        LAST_RESULT = "last_result",
        TICK = "tick",
        STARTS = "starts",
        RUN_REQUESTED = "run_requested",
        TURN = "turn",
        AFTER = "after",
        DUE = "due",
        ROUND = "round",
        ROUND_SINCE = "round_since",
        ROUND_NONCE = "round_nonce",
        IN_ONE_PART = "in_one_part",
        NONCE = "nonce",
        DESTINATION = "destination",
        DOWN_SINCE = "down_since",
        FAILED_AT = "failed_at",
        FAILED_ORDER = "failed_order",
        GROUPS = "groups",
        AS_OF = "as_of",
        BEGUN = "begun",
        FOUND = "found",
        ENDED = "ended",
        VOID = "void",
        SOURCE = "source",
        PROVIDER = "provider",
        DELIVERY_ID = "delivery_id",
        REDRIVE = "redrive",
        RUN_BEFORE = "run_before",
        TOPIC = "topic",
        FAMILY = "family",
        EVENT_TIME = "event_time",
        RECEIVED_AT = "received_at",
        APPENDED_AT = "appended_at",
        CONTENT_TYPE = "content_type",
        BODY = "body",
        BODY_BYTES = "body_bytes",
        ENCODING = "encoding",
        PARTS = "parts",
        TRACE = "trace",
        SEQUENCE = "sequence",
        OUTCOME = "outcome",
        TOOK = "took",
        SETTLED_AT = "settled_at",
        ERROR = "error",
        PARKED_AT = "parked_at",
        REDRIVEN_AT = "redriven_at",
        RESTORE = "restore",
        VERB = "verb",
        BY = "by",
        WHY = "why",
    }
}

use attribute as a;

/// The row format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 4;

/// The reason why a stored row cannot be used. The row is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRow {
    /// A newer version of this software wrote the row.
    #[error("a row has format {0}, and this version reads {FORMAT}: deploy the newer version everywhere")]
    Newer(u64),
    /// A version before the first release wrote the row.
    #[error("a row has format {0}, and this version reads {FORMAT}: begin with empty tables or a new data folder")]
    Older(u64),
    /// The attribute with this name is absent or has another type.
    #[error("a row has no readable attribute `{0}`")]
    Attribute(&'static str),
    /// The row's entity key is invalid.
    #[error("a row's entity key is invalid: {0}")]
    Entity(#[from] InvalidEntityKey),
    /// The stored body cannot be decoded.
    #[error("a row's body cannot be decompressed")]
    Body,
}

/// Returns the condition that the row is absent or has the format [`FORMAT`]. The condition keeps a
/// write from changing a row of another format.
pub(crate) fn readable() -> Condition {
    Condition::Any(vec![Condition::absent(a::VERSION), Condition::equal(a::VERSION, FORMAT)])
}

pub(crate) fn check_format(row: &Row) -> Result<(), CorruptRow> {
    match row.number(a::VERSION) {
        Some(version) if version > u64::from(FORMAT) => Err(CorruptRow::Newer(version)),
        Some(version) if version < u64::from(FORMAT) => Err(CorruptRow::Older(version)),
        Some(_) => Ok(()),
        None => Err(CorruptRow::Attribute(a::VERSION)),
    }
}

/// Escapes control characters, and characters that change the text direction, as `\uXXXX`. Line
/// feeds, tabs and Windows line endings stay as they are. So a sender's text can neither control a
/// terminal nor disguise itself. Within a JSON string, an escaped text keeps its meaning.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        match c {
            // A Windows line ending.
            '\r' if text[at..].starts_with("\r\n") => shown.push(c),
            c if is_hidden(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown.into()
}

/// Quotes an argument for a shell, if it needs quotes.
pub fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.:@%+,-".contains(&byte);
    if text.bytes().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub fn shortened(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        let text = "a\u{1b}[2J\u{9b}\u{7f}\u{202e}b\u{2066}\u{200f}\u{61c}\r\n\tc\rd é";
        assert_eq!(visible(text), "a\\u001b[2J\\u009b\\u007f\\u202eb\\u2066\\u200f\\u061c\r\n\tc\\u000dd é");
    }

    #[test]
    fn special_characters_are_quoted_for_the_shell() {
        assert_eq!(quoted("shopify/order/1001"), "shopify/order/1001");
        assert_eq!(quoted("shop/it's #1"), r"'shop/it'\''s #1'");
    }
}
