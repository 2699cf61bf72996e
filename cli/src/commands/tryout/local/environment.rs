//! The file with environment variables that `--env-file` names.

use anyhow::{Context, Result, bail};

use super::Local;

impl Local {
    pub(super) fn write_environment(&self, environment: &[(String, String)]) -> Result<()> {
        let Some(file) = &self.env_file else { return Ok(()) };
        let lines = environment.iter().map(|(name, value)| assignment(name, value)).collect::<Result<String>>();
        std::fs::write(file, lines?).with_context(|| format!("{} cannot be written", file.display()))
    }
}

/// Formats a line of an environment file. The value has quotation marks where needed and no escapes, so shells and
/// dotenv readers parse it alike, unless the reader expands variables or escapes in single quotes.
fn assignment(name: &str, value: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_.:@%+,-=".contains(c);
    let quotation_mark = match () {
        () if value.chars().all(is_plain) => "",
        () if !value.contains(['\'', '\n', '\r']) => "'",
        () if !value.contains(['"', '$', '`', '\\', '\n', '\r']) => "\"",
        () => bail!(
            "{name} is {value}, which cannot be quoted alike for shells and dotenv readers: remove ' from it, or \
             remove \" $ ` and \\"
        ),
    };
    Ok(format!("{name}={quotation_mark}{value}{quotation_mark}\n"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn env_file_values_are_quoted_or_refused() {
        let line = |value| super::assignment("A", value).map_err(|error| error.to_string());
        for (value, quoted) in [
            ("http://127.0.0.1:9000/x", "http://127.0.0.1:9000/x"),
            ("/a b/$c #d\\", "'/a b/$c #d\\'"),
            ("/it's", "\"/it's\""),
            ("http://x/?a=1&b=2", "'http://x/?a=1&b=2'"),
        ] {
            assert_eq!(line(value), Ok(format!("A={quoted}\n")));
        }
        for value in ["it's $5", "two\nlines"] {
            assert!(line(value).unwrap_err().starts_with("A is "), "{value}");
        }
    }
}
