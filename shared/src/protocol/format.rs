//! What the rows of all kinds have in common: their attributes, and the version
//! that each carries. A row of another one is refused, never guessed at.

use std::borrow::Cow;

use super::{
    entity::InvalidEntityKey,
    table::{Condition, Row},
};

/// The attributes' names.
pub mod attribute {
    #![cfg_attr(
        feature = "internals",
        expect(missing_docs, reason = "each is described in docs/protocol.md, section Rows")
    )]
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

/// The format that this version writes, and the only one it reads.
pub const FORMAT: u32 = 2;

/// Why a stored row cannot be used. It is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorruptRow {
    /// Written by a newer version of this software.
    #[error("a row of format {0} was met, this version reads {FORMAT}: deploy the newer version everywhere")]
    Newer(u64),
    /// Written by a version before the first that was released.
    #[error("a row of format {0} was met, this version reads {FORMAT}: begin with empty tables or a new data folder")]
    Older(u64),
    /// An attribute is absent or of another type.
    #[error("a row has no readable attribute `{0}`")]
    Attribute(&'static str),
    /// The key is none.
    #[error("a row's entity key is none: {0}")]
    Entity(#[from] InvalidEntityKey),
    /// A stored body cannot be read.
    #[error("a row's body cannot be decompressed")]
    Body,
}

/// The condition that a row is absent or one that this version can read: what
/// another version wrote, no write of this one changes.
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

/// `text` with each control character but line feed and tab, and each that turns
/// the direction of writing, as `\uXXXX`: text of a sender commands no terminal,
/// and looks like no other text. Within a JSON string it means the same.
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
            // The end of a line, as some write it.
            '\r' if text[at..].starts_with("\r\n") => shown.push(c),
            c if is_hidden(c) => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown.into()
}

/// A text of somebody else's code as it can stand in a table on a terminal:
/// what would break the line, or command the terminal, becomes a space.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Cuts a text to at most `limit` bytes, at a character's boundary.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn hidden_characters_are_escaped_and_lines_stay() {
        let text = "a\u{1b}[2J\u{9b}\u{7f}\u{202e}b\u{2066}\u{200f}\u{61c}\r\n\tc\rd é";
        assert_eq!(visible(text), "a\\u001b[2J\\u009b\\u007f\\u202eb\\u2066\\u200f\\u061c\r\n\tc\\u000dd é");
    }
}
