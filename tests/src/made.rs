//! The repository's files, and parts of its pages that are made from the code.

use std::{fs, path::Path};

pub fn root() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("ARCHITECTURE.md").exists()).expect("the repository")
}

/// Reads a file of the repository.
pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks that the page's part between `before` and `after` is `made`. With `GENERATE=1`, writes the part
/// instead. If `after` is empty, the part reaches to the end of the page.
pub fn check_part(page: &str, before: &str, after: &str, made: &str) {
    let text = read(page);
    let (head, rest) = text.split_once(before).unwrap_or_else(|| panic!("{page} lacks {before:?}"));
    let end = if after.is_empty() { Some(rest.len()) } else { rest.find(after) };
    let end = end.unwrap_or_else(|| panic!("{page} lacks {after:?} after {before:?}"));
    if &rest[..end] == made {
        return;
    }
    let is_written = std::env::var_os("GENERATE").is_some();
    let line = made.lines().zip(rest.lines()).find(|(new, old)| new != old).map_or(made, |(new, _)| new);
    assert!(is_written, "{page} is not up to date; .ci/generate writes it. The first changed line:\n{line}");
    fs::write(root().join(page), format!("{head}{before}{made}{}", &rest[end..])).expect("it is a file of the tree");
}
