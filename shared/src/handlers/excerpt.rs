//! Excerpts of error texts from destinations, for logs and pages.

pub(super) const LONGEST: usize = 200;

/// Returns the beginning of `text` on one line, at most [`LONGEST`] bytes. Removes invisible
/// characters, and collapses white space.
pub(super) fn excerpt(text: &str) -> String {
    // Decoding replaces bytes that are not UTF-8 by U+FFFD.
    let or_space = |c: char| if c.is_control() || c == '\u{FFFD}' { ' ' } else { c };
    let text: String = text.chars().filter(|c| !is_invisible(*c)).map(or_space).collect();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() <= LONGEST {
        return words;
    }
    format!("{}…", &words[..words.floor_char_boundary(LONGEST - '…'.len_utf8())])
}

/// Returns whether `c` has no width or changes the direction of the text.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}
