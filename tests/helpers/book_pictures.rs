//! The book that `.ci/book` made, looked at in a real browser, wide and as a
//! phone shows it: `cargo run -p tests --bin book-pictures [-- FOLDER]`, with
//! pictures in FOLDER. It fails of a page that is wider than its window, a diagram that
//! is not drawn, code without colours, or whatever the browser complains of.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tests::browser::Browser;

const PHONE: (u32, u32) = (390, 844);
const WIDE: (u32, u32) = (1440, 900);

/// The pages below a folder, without those that only show a file of the repository.
fn pages(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("no book at {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("files") {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|kind| kind == "html") && !path.ends_with("toc.html") {
            found.push(path);
        }
    }
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<()> {
    let book = std::fs::canonicalize("target/book/html").context("`.ci/book` makes the book first")?;
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let browser = Browser::start().await.context("chromium and chromium-driver are not installed")?;
    let at = |page: &str| format!("file://{}/{page}", book.display());
    let take = async |name: &str| -> Result<()> {
        let Some(folder) = &folder else { return Ok(()) };
        std::fs::create_dir_all(folder)?;
        Ok(std::fs::write(folder.join(format!("{name}.png")), browser.picture().await)?)
    };
    for (size, (width, height)) in [("wide", WIDE), ("phone", PHONE)] {
        browser.resize(width, height).await;
        for mode in ["light", "dark"] {
            browser.prefer(mode).await;
            browser.open(&at("index.html")).await;
            let lanes = "document.querySelector('main img[src$=\"five.svg\"]')";
            browser.until(&format!("{lanes}.complete && {lanes}.naturalWidth > 0")).await;
            let seen = browser.run(&format!("{lanes}.getBoundingClientRect().bottom < innerHeight")).await;
            ensure!(seen == true, "{size}: the lanes are not on the first screen");
            take(&format!("home-{size}-{mode}")).await?;
        }
    }
    // On the phone still.
    let pages = pages(&book)?;
    ensure!(pages.len() > 40, "the book has {} pages", pages.len());
    for page in &pages {
        browser.open(&format!("file://{}", page.display())).await;
        let wide = browser.run("document.documentElement.scrollWidth").await;
        ensure!(wide.as_u64().is_some_and(|wide| wide <= PHONE.0.into()), "{} is {wide} wide", page.display());
    }
    browser.resize(WIDE.0, WIDE.1).await;
    browser.prefer("light").await;
    browser.open(&at("docs/handlers.html")).await;
    browser.until("document.querySelectorAll('code.language-rust .hljs-keyword').length > 10").await;
    take("handlers").await?;
    browser.open(&at("docs/protocol.html#three-of-them-drawn")).await;
    browser.until("document.querySelectorAll('.mermaid svg').length === 3").await;
    take("diagrams").await?;
    browser.open(&at("docs/proof.html")).await;
    take("proof").await?;
    // Typed as a reader does.
    browser.open(&at("index.html?search=fencing")).await;
    browser.until("document.querySelectorAll('#mdbook-searchresults li, #searchresults li').length > 2").await;
    take("search").await?;
    let complaints = browser.complaints().await;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:?}");
    println!("{} pages looked at", pages.len());
    Ok(())
}
