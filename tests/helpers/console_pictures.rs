//! The pictures of `docs/console.md`, taken in a real browser of a shop that
//! trades: `cargo run -p tests --bin console-pictures [-- FOLDER]`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use tests::{browser::Browser, shop::Shop};

/// No picture weighs more.
const LARGEST: usize = 150_000;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("docs"), PathBuf::from);
    let all = std::env::args().nth(2).is_some();
    let browser = Browser::start().await.context("chromium and chromium-driver are not installed")?;
    let shop = Shop::open(Duration::from_millis(250)).await;
    let take = async |name: &str| -> Result<()> {
        let picture = browser.picture().await;
        ensure!(picture.len() < LARGEST, "{name} has {} bytes", picture.len());
        Ok(std::fs::write(folder.join(format!("console-{name}.png")), picture)?)
    };
    let at = |path: &str| format!("http://{}{path}", shop.console.address);
    browser.resize(1440, 900).await;
    browser.prefer("light").await;
    browser.open(&shop.console.url).await;
    browser.open(&at("/lanes")).await;
    browser.run("(document.getElementById('window').value = '30', document.getElementById('window').dispatchEvent(new Event('change')))").await;
    for first in [1000, 1010, 1020] {
        shop.trade(first..first + 6).await;
        shop.surroundings().sleep(Duration::from_secs(4)).await;
    }
    shop.trade(1006..1010).await;
    shop.until_parked("shopify/order/1004").await;
    shop.trade(1026..1030).await;
    browser.until("document.querySelectorAll('.lane').length >= 24").await;
    shop.surroundings().sleep(Duration::from_millis(1500)).await;
    take("lanes").await?;
    browser.resize(390, 844).await;
    if all {
        take("lanes-390").await?;
    }
    browser.resize(1440, 900).await;
    browser.until_text("blocked").await;
    shop.surroundings().sleep(Duration::from_secs(5)).await;
    browser.open(&at("/")).await;
    browser.run("document.querySelector('.card').open = true").await;
    take("now").await?;
    browser.open(&at("/order?key=shopify/order/1004")).await;
    if all {
        take("order").await?;
    }
    browser.prefer("dark").await;
    browser.open(&at("/delivery?key=shopify/order/1004&sequence=2")).await;
    take("delivery").await?;
    browser.prefer("light").await;
    browser.resize(390, 844).await;
    browser.open(&at("/order?key=shopify/order/1004")).await;
    take("phone").await?;
    if all {
        for (name, path) in [
            ("now", "/"),
            ("delivery", "/delivery?key=shopify/order/1004&sequence=2"),
            ("figures", "/figures"),
            ("search", "/search?q=100"),
        ] {
            browser.open(&at(path)).await;
            take(&format!("{name}-390")).await?;
        }
        browser.resize(1440, 900).await;
        for (name, path) in [
            ("figures", "/figures"),
            ("search", "/search?q=100"),
            ("redrive", "/redrive?source=shopify"),
            ("trouble", "/order?key=no/such"),
        ] {
            browser.open(&at(path)).await;
            take(name).await?;
        }
        browser.prefer("dark").await;
        browser.open(&at("/")).await;
        take("now-dark").await?;
        browser.open(&at("/lanes")).await;
        browser.until("document.querySelectorAll('.lane').length >= 24").await;
        take("lanes-dark").await?;
    }
    let complaints = browser.complaints().await;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:?}");
    Ok(())
}
