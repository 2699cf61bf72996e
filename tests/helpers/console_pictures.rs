//! Takes the pictures of `docs/console.md` in a real browser:
//! `cargo run -p tests --bin console-pictures [-- FOLDER]`. A further argument makes it take each
//! page at two screen widths, light and dark.

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
    let take = async |name: String| -> Result<()> {
        let picture = browser.picture().await;
        ensure!(all || picture.len() < LARGEST, "{name} has {} bytes", picture.len());
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
    take("lanes".to_owned()).await?;
    shop.pay_again(1004).await;
    shop.env().sleep(Duration::from_secs(6)).await;
    browser.open(&at("/")).await;
    browser.run("document.querySelectorAll('.card')[1].open = true").await;
    take("now".to_owned()).await?;
    browser.prefer("dark").await;
    let parked = shop.deployment.operator().parked(&"shopify/order/1004".parse()?).await?;
    let delivery = format!("/delivery?key=shopify/order/1004&sequence={}", parked[1].sequence);
    browser.resize(1180, 760).await;
    browser.open(&at(&delivery)).await;
    take("delivery".to_owned()).await?;
    browser.prefer("light").await;
    browser.resize(390, 844).await;
    browser.open(&at("/order?key=shopify/order/1004")).await;
    take("phone".to_owned()).await?;
    if all {
        every_page(&browser, &at, &delivery, take).await?;
    }
    let complaints = browser.complaints().await;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:?}");
    Ok(())
}

/// Takes each page at two screen widths, light and dark.
async fn every_page(
    browser: &Browser,
    at: &impl Fn(&str) -> String,
    delivery: &str,
    take: impl AsyncFn(String) -> Result<()>,
) -> Result<()> {
    let pages = [
        ("now", "/"),
        ("lanes", "/lanes"),
        ("order", "/order?key=shopify/order/1004"),
        ("delivery", delivery),
        ("figures", "/figures"),
        ("search", "/search?q=100"),
        ("group", "/group?state=parked"),
        ("redrive", "/redrive?source=shopify"),
    ];
    for (scheme, width, height) in [("light", 1440, 900), ("light", 390, 844), ("dark", 1440, 900), ("dark", 390, 844)]
    {
        browser.prefer(scheme).await;
        browser.resize(width, height).await;
        for (name, path) in pages {
            browser.open(&at(path)).await;
            if name == "lanes" {
                browser.until("document.querySelectorAll('.lane').length >= 24").await;
            }
            take(format!("{name}-{width}-{scheme}")).await?;
        }
    }
    Ok(())
}
