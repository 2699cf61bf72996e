//! Support for tests that cannot run everywhere, or that search for longer in `.ci/prove`.

use std::io::Write;

/// Prints, past the output capture, that the calling test was not run, and why. `.ci/test` counts these
/// lines.
pub fn not_run(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A closed standard error needs no report.
    let _ = writeln!(std::io::stderr(), "not run: {test}: {reason}");
}

/// Returns whether `.ci/prove` runs the test, so that the test makes its long search.
pub fn is_thorough() -> bool {
    std::env::var_os("PROVE").is_some()
}
