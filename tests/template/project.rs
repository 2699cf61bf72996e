//! The template of a project of one's own is this repository, but for what
//! makes it somebody else's.

use std::{fs, path::Path};

use crate::file as read;

/// The profiles of a `Cargo.toml` that a function or a test is built with,
/// without what is said about them.
fn profiles(manifest: &str) -> Vec<String> {
    let (mut found, mut is_profile) = (Vec::new(), false);
    for line in manifest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            // Only for this repository's measurements.
            is_profile = line.starts_with("[profile.") && line != "[profile.fast]";
        }
        if is_profile {
            found.push(line.to_owned());
        }
    }
    found
}

/// Returns the first value that `name` is set to.
fn set<'a>(name: &str, text: &'a str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    line.unwrap_or_else(|| panic!("{name} is not set"))
}

#[test]
fn project_template_deploys_and_builds_like_this_project() {
    for same in ["template.yaml", "templates/observability.yaml", "templates/domain.yaml", "rustfmt.toml"] {
        assert!(read(same) == read(&format!("templates/rust/{same}")), "{same}");
    }
    let named = read("samconfig.toml").replace("\"webhook-serializer", "\"{{ project_name }}");
    assert_eq!(named, read("templates/rust/samconfig.toml"), "but for the stack's name");

    let (ours, theirs) = (read("Cargo.toml"), read("templates/rust/Cargo.toml"));
    assert!(profiles(&ours).len() > 8, "they were read");
    assert_eq!(profiles(&ours), profiles(&theirs));
    for name in ["edition", "rust-version"] {
        assert_eq!(set(name, &ours), set(name, &theirs), "{name}");
    }
    let asked = read("templates/rust/CargoLambda.toml");
    let (_, library) = asked.split_once("[template.prompts.library]").expect("it asks for the library");
    assert_eq!(set("default", library), set("version", &ours), "the library's version");

    let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates/rust/events");
    let events = fs::read_dir(events).expect("it has samples").map(|event| event.expect("one").file_name());
    let events: Vec<String> = events.map(|name| name.into_string().expect("a name")).collect();
    assert!(events.len() >= 4, "{events:?}");
    for event in events {
        let (ours, theirs) = (format!("events/{event}"), format!("templates/rust/events/{event}"));
        assert!(read(&ours) == read(&theirs), "{event}");
    }
}
