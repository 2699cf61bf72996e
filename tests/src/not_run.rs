//! Tests that do not run everywhere, or search longer in `.ci/prove`.

use std::io::Write;

/// Prints that the calling test shows nothing, past the output capture; `.ci/test` counts these.
pub fn not_run(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A closed standard error needs no report.
    let _ = writeln!(std::io::stderr(), "not run: {test}: {reason}");
}

/// True where `.ci/prove` runs the long searches.
pub fn is_thorough() -> bool {
    std::env::var_os("PROVE").is_some()
}
