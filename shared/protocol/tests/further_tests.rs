//! Runs after all other tests of the workspace, and says which tests remain to be run.

fn main() {
    // Tools that list tests read every line.
    if !std::env::args().any(|argument| argument == "--list") {
        println!(
            "These were the deterministic tests. Those with real processes, a browser, other languages or long \
             searches: `just prove`, or `.ci/prove`; tests/README.md says what each shows."
        );
    }
}
