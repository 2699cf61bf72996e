//! Lists the samples, so that the command contains each webhook of `events/`.

use std::{env, fmt::Write, fs, path::Path};

fn main() {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("events");
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder).expect("the samples are in events/");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    // Timers and queues send the other events.
    paths.retain(|path| fs::read_to_string(path).is_ok_and(|event| event.contains(r#""rawPath": "/webhooks/"#)));
    paths.sort();
    let mut list = String::from("&[");
    for path in paths {
        let _ = write!(list, "({:?}, include_str!({path:?})),", path.file_name().expect("it is a file"));
    }
    let written = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("webhooks.rs");
    fs::write(written, list + "]").expect("it can be written");
}
