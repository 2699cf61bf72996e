//! Asks yes-or-no questions on the terminal.

use std::io::IsTerminal;

use anyhow::{Context, Result, ensure};
use console::Term;
use serializer::output;

const NO_TERMINAL: &str =
    "the command asks a question, but has no terminal to ask on: add --yes to continue without it";

/// Asks a yes-or-no question; Enter means no.
pub fn ask(question: &str) -> Result<bool> {
    ensure!(std::io::stderr().is_terminal(), "{NO_TERMINAL}");
    let term = Term::stderr();
    term.write_str(&output::visible(&format!("{question} [y/N] ")))?;
    let answer = terminal()?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Reads the user's answer from the terminal, because standard input may be a pipe.
fn terminal() -> Result<String> {
    use std::io::{BufRead, BufReader};
    let terminal = std::fs::File::open("/dev/tty");
    let terminal = terminal.context(NO_TERMINAL)?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line)?;
    Ok(line)
}
