//! Parts of pages that are made from the code. A test compares them, and writes them if `.ci/generate` runs it.

use std::path::Path;

/// Checks that the page's part between `before` and `after` is `made`. With `GENERATE=1`, writes the part
/// instead. If `after` is empty, the part reaches to the end of the page.
pub fn check_part(page: &str, before: &str, after: &str, made: &str) {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("ARCHITECTURE.md").exists()).expect("the repository");
    let path = root.join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let (head, rest) = text.split_once(before).unwrap_or_else(|| panic!("{page} lacks {before:?}"));
    let end = if after.is_empty() { Some(rest.len()) } else { rest.find(after) };
    let end = end.unwrap_or_else(|| panic!("{page} lacks {after:?} after {before:?}"));
    if &rest[..end] == made {
        return;
    }
    assert!(std::env::var_os("GENERATE").is_some(), "{page} is not up to date; .ci/generate writes it:\n{made}");
    std::fs::write(&path, format!("{head}{before}{made}{}", &rest[end..])).expect("it is a file of the tree");
}
