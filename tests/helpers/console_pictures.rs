//! Takes the pictures of `docs/console.md` in a real browser:
//! `cargo run -p tests --bin console-pictures [-- FOLDER]`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use tests::{browser::Browser, shop::Shop};

const LARGEST: usize = 150_000;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("docs"), PathBuf::from);
    let all = std::env::args().nth(2).is_some();
    let browser = Browser::start().await.context("chromium and chromium-driver are not installed")?;
    let shop = Shop::open(Duration::from_millis(450)).await;
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
    // Orders that arrive over half a minute.
    let orders: Vec<u32> = (1000..1030).collect();
    for some in orders.chunks(2) {
        futures_util::future::join_all(some.iter().map(|order| shop.trade(*order..order + 1))).await;
        shop.env().sleep(Duration::from_millis(1700)).await;
    }
    browser.until("document.querySelectorAll('.lane').length === 30").await;
    take("lanes").await?;
    browser.resize(390, 844).await;
    if all {
        take("lanes-390").await?;
    }
    browser.resize(1440, 900).await;
    shop.env().sleep(Duration::from_secs(6)).await;
    browser.open(&at("/")).await;
    browser.run("document.querySelectorAll('.card')[1].open = true").await;
    take("now").await?;
    browser.open(&at("/order?key=shopify/order/1004")).await;
    if all {
        take("order").await?;
    }
    browser.prefer("dark").await;
    let parked = shop.deployment.operator().parked(&"shopify/order/1004".parse()?).await?;
    let delivery = format!("/delivery?key=shopify/order/1004&sequence={}", parked[0].sequence);
    browser.resize(1180, 760).await;
    browser.open(&at(&delivery)).await;
    take("delivery").await?;
    browser.prefer("light").await;
    browser.resize(390, 844).await;
    browser.open(&at("/order?key=shopify/order/1004")).await;
    take("phone").await?;
    if all {
        for (name, path) in
            [("now", "/"), ("delivery", delivery.as_str()), ("figures", "/figures"), ("search", "/search?q=100")]
        {
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
