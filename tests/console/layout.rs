//! Dark and light, on a phone, for a screen reader.

use std::time::Duration;

use serializer::local::samples::SHOPIFY;
use tests::shop::Shop;

use crate::browser;

const PAGES: [&str; 7] = [
    "/",
    "/lanes",
    "/figures",
    "/search?q=100",
    "/order?key=shopify/order/1004",
    "/group?state=parked",
    "/redrive?source=shopify",
];

/// The lightness of the page's background, from 0 to 255.
const BACKGROUND: &str = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])";

#[tokio::test(flavor = "multi_thread")]
async fn colour_scheme_follows_the_system_until_chosen() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::ZERO).await;
    browser.prefer("dark").await;
    browser.open(&shop.console.url).await;
    assert!(browser.run(BACKGROUND).await.as_u64() < Some(60));
    browser.prefer("light").await;
    assert!(browser.run(BACKGROUND).await.as_u64() > Some(200));
    browser.click("#theme").await;
    assert!(browser.run(BACKGROUND).await.as_u64() < Some(60));
    browser.open(&format!("http://{}/figures", shop.console.address)).await;
    assert!(browser.run(BACKGROUND).await.as_u64() < Some(60), "the choice holds for the next page");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn console_shows_local_times_and_folds_diff_on_phone() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(1)).await;
    shop.send(1004, &SHOPIFY[..2]).await;
    shop.pay_again(1004).await;
    let entity = "shopify/order/1004".parse().expect("a key");
    shop.until_all_parked("shopify/order/1004", 2).await;
    let second = shop.deployment.operator().parked(&entity).await.expect("it answers")[1].sequence;
    browser.emulate("Emulation.setTimezoneOverride", serde_json::json!({ "timezoneId": "Asia/Tokyo" })).await;
    browser.open(&shop.console.url).await;
    let page = format!("http://{}/delivery?key=shopify/order/1004&sequence={second}", shop.console.address);
    browser.open(&page).await;
    let time = "document.querySelector('dd time.at')";
    browser.until(&format!("{time}.textContent.endsWith('GMT+9') && {time}.title.endsWith('Z (UTC)')")).await;
    browser.until("document.querySelector('.difference').open && document.querySelector('.difference ins')").await;
    let hover = format!("document.querySelector('h1 .position').title === 'sequence {second}'");
    browser.until(&hover).await;
    browser.resize(390, 844).await;
    browser.open(&page).await;
    browser.until("!document.querySelector('.difference').open").await;
    // The first delivery of its topic has no earlier one to be compared with.
    browser.open(&page.replace(&second.to_string(), &second.previous().to_string())).await;
    browser.until_text("There is nothing to compare").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_a_phone_and_has_landmarks() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::troubled(Duration::from_millis(1)).await;
    browser.open(&shop.console.url).await;
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        for path in PAGES {
            for width in [390, 1440] {
                browser.resize(width, 844).await;
                browser.open(&format!("http://{}{path}", shop.console.address)).await;
                // After the screen is narrowed, the page may stay wide for a frame.
                browser.until(&format!("document.documentElement.scrollWidth <= {width} /* {path} */")).await;
                for (needed, count) in
                    [("main", 1), ("header", 1), ("nav[aria-label]", 1), ("h1", 1), ("[aria-live=polite]", 1)]
                {
                    let found = browser.run(&format!("document.querySelectorAll('{needed}').length")).await;
                    assert_eq!(found, count, "{needed} on {path}");
                }
                let nameless = "[...document.querySelectorAll('a, button, input:not([type=hidden]), select, summary')].filter(one => \
                    !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length || one.querySelector('title'))).map(one => one.outerHTML)";
                assert_eq!(browser.run(nameless).await, serde_json::json!([]), "{path}");
            }
        }
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
