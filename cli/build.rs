//! Lists the samples, so that the command contains each webhook of `events/`, and each SQS event of `events/queues/`.

use std::{env, fmt::Write, fs, path::Path};

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("events");
    println!("cargo::rerun-if-changed={}", folder.display());
    // Timers send the other events.
    list(&folder, r#""rawPath": "/webhooks/"#, "webhooks.rs");
    list(&folder.join("queues"), r#""eventSource": "aws:sqs""#, "messages.rs");
}

/// Lists the events of a folder that contain `mark`.
fn list(folder: &Path, mark: &str, name: &str) {
    let entries = fs::read_dir(folder).expect("the samples are in events/");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.retain(|path| fs::read_to_string(path).is_ok_and(|event| event.contains(mark)));
    paths.sort();
    let mut list = String::from("&[");
    for path in paths {
        let _ = write!(list, "({:?}, include_str!({path:?})),", path.file_name().expect("it is a file"));
    }
    let written = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join(name);
    fs::write(written, list + "]").expect("it can be written");
}
