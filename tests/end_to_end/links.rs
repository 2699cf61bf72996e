//! Links between the repository's pages.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

use tests::tree::{read, root};

/// Returns every Markdown file, except in build output and hidden folders.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let is_hidden = name.starts_with('.') || ["target", "node_modules"].contains(&name.as_str());
            match entry.file_type().unwrap() {
                kind if kind.is_dir() && !is_hidden => folders.push(entry.path()),
                kind if kind.is_file() && name.ends_with(".md") => {
                    pages.push(entry.path().strip_prefix(root()).unwrap().to_owned());
                }
                _ => {}
            }
        }
    }
    pages.sort();
    pages
}

fn prose(page: &Path) -> Vec<String> {
    let text = read(page);
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        // A code block may start on the first line of a list item.
        if line.trim_start_matches(|c: char| c == ' ' || c == '-' || c == '.' || c.is_ascii_digit()).starts_with("```")
        {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.to_owned());
        }
    }
    lines
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(page).iter().filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|&c| c.is_alphanumeric() || [' ', '-', '_'].contains(&c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
        anchors.insert(free.expect("numbers without an end"));
    }
    anchors
}

fn resolve(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap().to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[test]
fn every_documentation_link_leads_to_existing_heading() {
    let mut broken = Vec::new();
    let mut checked = 0;
    for page in pages() {
        for line in prose(&page) {
            for link in links(&line) {
                checked += 1;
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() { page.clone() } else { resolve(&page, path) };
                let is_there =
                    root().join(&target).exists() && (anchor.is_empty() || anchors(&target).contains(anchor));
                if !is_there {
                    broken.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
    assert!(checked > 100, "only {checked} links were found");
}

#[test]
fn documentation_index_names_every_page() {
    let index = Path::new("docs/README.md");
    let named: BTreeSet<PathBuf> = prose(index)
        .iter()
        .flat_map(|line| links(line).map(|link| resolve(index, link.split('#').next().unwrap())).collect::<Vec<_>>())
        .collect();
    let is_left_out = |page: &PathBuf| {
        let is_runbook = page.starts_with("docs/runbooks");
        page.starts_with("docs") && !is_runbook && page != index && !named.contains(page)
    };
    let left_out: Vec<PathBuf> = pages().into_iter().filter(is_left_out).collect();
    assert!(left_out.is_empty(), "docs/README.md leads to none of these: {left_out:?}");
}
