//! Asks questions on the terminal.

use std::io::IsTerminal;

use anyhow::{Context, Result, ensure};
use console::Term;
use serializer::output;

const NO_TERMINAL: &str =
    "the command asks a question, but has no terminal to ask on: add --yes to continue without it";

/// Asks a yes-or-no question; Enter means no.
pub fn ask(question: &str) -> Result<bool> {
    ensure!(std::io::stderr().is_terminal(), "{NO_TERMINAL}");
    Ok(matches!(line(&format!("{question} [y/N] "))?.trim(), "y" | "Y" | "yes"))
}

/// Prints a question to the terminal, and returns the line that the user types.
pub fn line(question: &str) -> Result<String> {
    Term::stderr().write_str(&output::visible(question))?;
    terminal()
}

/// Reads the user's answer from the terminal, because standard input may be a pipe.
fn terminal() -> Result<String> {
    use std::io::{BufRead, BufReader};
    let terminal = std::fs::File::open("/dev/tty");
    let terminal = terminal.context(NO_TERMINAL)?;
    let mut line = String::new();
    let read = BufReader::new(terminal).read_line(&mut line)?;
    ensure!(read > 0, "the terminal was closed before an answer");
    Ok(line)
}
