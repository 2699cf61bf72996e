//! Tests that do not run everywhere, or search longer in `.ci/prove`.

use std::io::Write;

/// Says that the test at hand shows nothing, and why. It goes past what is
/// captured of a test that passes; `.ci/test` counts it.
pub fn not_run(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Whoever closed this does not want to know.
    let _ = writeln!(std::io::stderr(), "not run: {test}: {reason}");
}

/// Whether to search for minutes: `.ci/prove` sets `PROVE`, a plain `cargo test` does not.
pub fn is_thorough() -> bool {
    std::env::var_os("PROVE").is_some()
}
