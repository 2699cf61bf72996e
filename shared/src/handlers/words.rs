//! What others say of a failure, as people are shown it. Pure.

/// The most of it that is kept, in bytes: a sentence, not a page.
pub(super) const MOST: usize = 200;

/// The first words of `text`, on one line of visible characters.
pub(super) fn first_words(text: &str) -> String {
    let visible = |c: char| if c.is_control() || c == '\u{FFFD}' { ' ' } else { c };
    let text: String = text.chars().filter(|c| !is_invisible(*c)).map(visible).collect();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.len() <= MOST {
        return words;
    }
    format!("{}…", &words[..words.floor_char_boundary(MOST - '…'.len_utf8())])
}

/// Of no width, or there to turn the direction of what follows.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}
