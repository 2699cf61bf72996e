//! Reads secrets from a prompt or a pipe, never from the command line, because shells remember command lines and every
//! user of the machine can see them.

use std::io::{IsTerminal, Read};

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use console::Term;
use webhook_serializer::time::{Random, SystemRandom};

/// Reads a secret from the terminal, which shows the prompt `what`. Without a terminal, reads standard input and
/// removes the final newline.
pub fn read(what: &str) -> Result<String> {
    let mut input = std::io::stdin();
    let secret = if input.is_terminal() {
        let term = Term::stderr();
        term.write_str(&format!("{what}: "))?;
        term.read_secure_line()?
    } else {
        let mut text = String::new();
        input.read_to_string(&mut text).context("standard input cannot be read as text")?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        line.strip_suffix('\r').unwrap_or(line).to_owned()
    };
    ensure!(!secret.is_empty(), "{what} is empty: type it, or pass it on standard input");
    ensure!(!secret.contains(['\n', '\r']), "{what} has several lines: pass one secret, on one line");
    Ok(secret)
}

pub fn random() -> String {
    let bytes: Vec<u8> = (0..4).flat_map(|_| SystemRandom.next().to_be_bytes()).collect();
    format!("whsec_{}", STANDARD.encode(bytes))
}
