//! The repository's files.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use crate::made::{read, root};

/// Returns the file, or the Rust files below the folder.
pub fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let below = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let below = below.map(|entry| entry.expect("it can be listed").path());
    let is_ours = |path: &PathBuf| match path.is_dir() {
        true => !path.ends_with("target") && !path.ends_with(".git"),
        false => path.extension().is_some_and(|extension| extension == "rs"),
    };
    below.filter(is_ours).flat_map(|path| sources(&path)).collect()
}
