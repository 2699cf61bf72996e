//! The code blocks of README and docs are right. `.ci/pages` types their commands, and doc tests compile
//! their Rust.

use std::fs;

use serializer::document::reference;
use tests::{
    made::check_part,
    tree::{read, root},
};
use webhook_serializer::sources::Sources;

fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/runbooks"] {
        let names = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".md"));
        pages.extend(names.map(|name| format!("{folder}/{name}")));
    }
    pages.sort();
    pages
}

fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = read(page);
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(opened) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
        let block: Vec<_> = block.map(|line| line.get(indent..).unwrap_or_default()).collect();
        if opened.starts_with(language) {
            found.push(block.join("\n") + "\n");
        }
    }
    found
}

/// Fills in a block's blanks, and completes a block that shows only a part of a document.
fn document(block: &str) -> String {
    let filled = block.replace("whsec_…", "whsec_Zk93bTR6S2dRcTdUaHBY").replace("\"…\"", "\"q7mZ4kT1\"");
    if filled.contains("[sources") {
        return filled;
    }
    let set = |name: &str, value: &str| match filled.lines().any(|line| line.starts_with(name)) {
        true => String::new(),
        false => format!("{name} = {value}\n"),
    };
    let needed = [set("provider", "'shopify'"), set("secrets", "['secret']"), set("handler", "'orders'")].concat();
    format!("[sources.page]\n{needed}{filled}")
}

#[test]
fn every_toml_block_in_pages_is_valid() {
    let features = read("shared/Cargo.toml");
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&page, "toml") {
            seen += 1;
            if let Some(asked) = block.strip_prefix("webhook-serializer = {") {
                let asked = asked.split_once("features = [").map_or("", |(_, after)| after.split(']').next().unwrap());
                for feature in
                    asked.split(',').map(|name| name.trim_matches([' ', '"'])).filter(|name| !name.is_empty())
                {
                    assert!(features.contains(&format!("\n{feature} = [")), "{page}: no feature `{feature}`");
                }
                continue;
            }
            let read = Sources::parse(&document(&block));
            assert!(read.is_ok(), "{page}:\n{block}\n{}", read.unwrap_err());
        }
    }
    assert!(seen >= 5, "the pages were read: {seen}");
}

#[test]
fn rust_blocks_in_pages_use_no_private_module() {
    let compiled = read("tests/src/pages.rs");
    for page in pages() {
        for block in blocks(&page, "rust") {
            assert!(compiled.contains(&format!("include_str!(\"../../{page}\")")), "{page} is missing in pages.rs");
            for room in ["aws", "config", "engine", "functions", "handler", "jobs", "protocol", "sources", "telemetry"]
            {
                assert!(!block.contains(&format!("webhook_serializer::{room}::")), "{page}: {room} is hidden");
            }
        }
    }
}

#[test]
fn example_in_page_equals_the_source_file() {
    for (page, name) in [("README.md", "my_worker"), ("docs/handlers.md", "order_totals")] {
        let file = read(format!("shared/examples/{name}.rs"));
        let code = |text: &str| -> String {
            let lines = text.lines().filter(|line| !line.starts_with("//!"));
            let lines =
                lines.map(|line| line.replace("webhook_serializer::worker::", "worker::").replace(", worker}", "}"));
            lines.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
        };
        let shown = blocks(page, "rust");
        assert!(shown.iter().any(|block| code(block) == code(&file)), "{page} shows another {name}.rs");
    }
}

#[test]
fn operating_page_lists_every_verb() {
    let (before, after) = ("# what operators did to it: who, when, why\n", "serializer resume --source");
    check_part("docs/operating.md", before, after, &reference::verbs());
}

#[test]
fn readme_has_at_most_1300_words() {
    let words = read("README.md").split_whitespace().count();
    assert!(words <= 1300, "{words}");
}

#[test]
fn counts_in_proof_page_match_the_tests() {
    let proof = read("docs/proof.md");
    let table = read("tests/model/counterexamples.md");
    let rows: Vec<&str> = table.lines().skip(2).filter(|line| line.starts_with('|')).collect();
    let steps = rows.iter().map(|row| row.split('|').nth(3).unwrap().trim().parse::<u32>().unwrap());
    let counted = format!("{} changes", rows.len());
    assert!(proof.contains(&counted), "{counted}");
    let counted = format!("of {} to {} steps", steps.clone().min().unwrap(), steps.max().unwrap());
    assert!(proof.contains(&counted), "{counted}");
    let told = read("tests/README.md");
    for (here, there) in [
        ("64 configurations, 15.7 million states", "64 configurations, 15.7 million states"),
        ("92 s in the median", "92 s in the median"),
        ("changes the code in 3,415 places", "at the 3,415 places"),
        ("of 2,434 that compile 2,366 were noticed, 97.2 %", "Of 2,434 that compile, 2,366 were noticed, 97.2 %"),
    ] {
        assert!(proof.contains(here) && told.contains(there), "{here}");
    }
}
