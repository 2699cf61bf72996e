//! The attributes of all rows, and the format version that each row carries. Rows of
//! another version are refused.

use std::borrow::Cow;

use super::{
    entity::InvalidEntityKey,
    table::{Condition, Row},
};

/// The names of attributes; docs/protocol.md, section Rows, describes each.
pub mod attribute {
    pub const ENTITY: &str = "entity";
    pub const ITEM: &str = "item";
    pub const VERSION: &str = "v";
    pub const TAIL: &str = "tail";
    pub const HEAD: &str = "head";
    pub const TOKEN: &str = "token";
    pub const HOLDER: &str = "holder";
    pub const KIND: &str = "kind";
    pub const EXPIRES_AT: &str = "expires_at";
    pub const HOLDER_INFO: &str = "holder_info";
    pub const LAST_CLAIM: &str = "last_claim";
    pub const RECENT: &str = "recent";
    pub const SPILLED: &str = "spilled";
    pub const ONE_BY_ONE: &str = "one_by_one";
    pub const ATTEMPTS: &str = "attempts";
    pub const RETRIES: &str = "retries";
    pub const RETRY_AT: &str = "retry_at";
    pub const SUSPECT: &str = "suspect";
    pub const STARTED: &str = "started";
    pub const LAST_ERROR: &str = "last_error";
    pub const PENDING_SINCE: &str = "pending_since";
    pub const BLOCKED: &str = "blocked";
    pub const HOLD: &str = "hold";
    pub const HANDOVER: &str = "handover";
    pub const TURN_UNTIL: &str = "turn_until";
    pub const YIELD_UNTIL: &str = "yield_until";
    pub const NEWEST_EVENT_TIME: &str = "newest_event_time";
    pub const PURGE_AT: &str = "purge_at";
    pub const DEFINITION: &str = "definition";
    pub const LAST_TICK: &str = "last_tick";
    pub const LAST_RESULT: &str = "last_result";
    pub const TICK: &str = "tick";
    pub const STARTS: &str = "starts";
    pub const RUN_REQUESTED: &str = "run_requested";
    pub const TURN: &str = "turn";
    pub const AFTER: &str = "after";
    pub const DUE: &str = "due";
    pub const NONCE: &str = "nonce";
    pub const AS_OF: &str = "as_of";
    pub const BEGUN: &str = "begun";
    pub const FOUND: &str = "found";
    pub const ENDED: &str = "ended";
    pub const VOID: &str = "void";
    pub const SOURCE: &str = "source";
    pub const PROVIDER: &str = "provider";
    pub const DELIVERY_ID: &str = "delivery_id";
    pub const REDRIVE: &str = "redrive";
    pub const RUN_BEFORE: &str = "run_before";
    pub const TOPIC: &str = "topic";
    pub const FAMILY: &str = "family";
    pub const EVENT_TIME: &str = "event_time";
    pub const RECEIVED_AT: &str = "received_at";
    pub const APPENDED_AT: &str = "appended_at";
    pub const CONTENT_TYPE: &str = "content_type";
    pub const BODY: &str = "body";
    pub const BODY_BYTES: &str = "body_bytes";
    pub const ENCODING: &str = "encoding";
    pub const PARTS: &str = "parts";
    pub const TRACE: &str = "trace";
    pub const SEQUENCE: &str = "sequence";
    pub const OUTCOME: &str = "outcome";
    pub const TOOK: &str = "took";
    pub const SETTLED_AT: &str = "settled_at";
    pub const ERROR: &str = "error";
    pub const PARKED_AT: &str = "parked_at";
    pub const VERB: &str = "verb";
    pub const BY: &str = "by";
    pub const WHY: &str = "why";
}

use attribute as a;

/// The row format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 2;

/// The reason why a stored row cannot be used. The row is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRow {
    /// A newer version of this software wrote it.
    #[error("a row has format {0}, and this version reads {FORMAT}: deploy the newer version everywhere")]
    Newer(u64),
    /// A version before the first release wrote it.
    #[error("a row has format {0}, and this version reads {FORMAT}: begin with empty tables or a new data folder")]
    Older(u64),
    /// An attribute is absent or has another type.
    #[error("a row has no readable attribute `{0}`")]
    Attribute(&'static str),
    /// The entity key is invalid.
    #[error("a row's entity key is invalid: {0}")]
    Entity(#[from] InvalidEntityKey),
    /// The stored body cannot be decoded.
    #[error("a row's body cannot be decompressed")]
    Body,
}

/// Demands that the row is absent or of this format, so that no write changes the row
/// of another version.
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

/// Escapes control characters except line feed and tab, and characters that change the
/// direction of writing, as `\uXXXX`. A sender's text then cannot control a terminal or
/// disguise itself. Within a JSON string the meaning stays the same.
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

/// Replaces control characters by spaces, to show a text in one line of a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Cuts a text to at most `limit` bytes at a character boundary.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn hidden_characters_are_escaped() {
        let text = "a\u{1b}[2J\u{9b}\u{7f}\u{202e}b\u{2066}\u{200f}\u{61c}\r\n\tc\rd é";
        assert_eq!(visible(text), "a\\u001b[2J\\u009b\\u007f\\u202eb\\u2066\\u200f\\u061c\r\n\tc\\u000dd é");
    }
}
