//! Pages that refresh by themselves: what they keep, when they stop, what they read, and what they say when they are old.

use std::time::Duration;

use serializer::local::{samples::SHOPIFY, sender::Sender};
use tests::{
    browser::Browser,
    shop::{Shop, metered_console},
};

use crate::{access::cookie, browser};

const STALE: &str = "document.getElementById('stale')";

/// The number of refreshes that the page has asked for.
const REFRESHES: &str = "performance.getEntriesByType('resource').filter(one => one.name.includes('/refresh')).length";

/// Makes the page see a clock that is this many seconds ahead.
async fn forward(browser: &Browser, seconds: u32) {
    browser.run(&format!("(Date.now = ((now) => () => now() + {seconds}000)(Date.now), true)")).await;
}

async fn hide(browser: &Browser, is_hidden: bool) {
    let hide = format!(
        "(Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }}), \
         document.dispatchEvent(new Event('visibilitychange')))"
    );
    browser.run(&hide).await;
}

/// Promise: the console's pages refresh by themselves while they are visible, and keep what a person opened, typed or
/// selected.
#[tokio::test(flavor = "multi_thread")]
async fn refresh_keeps_open_groups_focus_and_selection() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    browser.open(&shop.console.url).await;
    browser.until_text("No order is stopped or failing").await;
    shop.send(1004, &SHOPIFY[..2]).await;
    browser.until_text("1 delivery parked").await;
    browser.click(".card summary").await;
    browser.run("(window.kept = document.querySelector('.card a[data-row]'), window.kept.focus(), true)").await;
    shop.send(1014, &SHOPIFY[..2]).await;
    browser.until_text("2 deliveries parked").await;
    let is_kept =
        "window.kept.isConnected && document.activeElement === window.kept && window.kept.closest('.card').open";
    assert_eq!(browser.run(is_kept).await, true, "the open group and the focus stay");
    // While a text is selected, the page stays as it is, and says so once it is old.
    browser.run("(getSelection().selectAllChildren(document.querySelector('h1')), true)").await;
    let selected = browser.run("getSelection().toString()").await;
    shop.send(1024, &SHOPIFY[..2]).await;
    shop.until_parked("shopify/order/1024").await;
    forward(&browser, 100).await;
    browser.until(&format!("{STALE}.textContent.includes('refreshes once no text in it is selected')")).await;
    assert_eq!(browser.run("getSelection().toString()").await, selected);
    browser.run("(getSelection().removeAllRanges(), true)").await;
    browser.until_text("3 deliveries parked").await;
    browser.until(&format!("{STALE}.hidden")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_page_asks_nothing_until_it_is_visible() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    browser.open(&shop.console.url).await;
    browser.until(&format!("{REFRESHES} >= 2")).await;
    hide(&browser, true).await;
    // A refresh that has begun may still end.
    browser.until("(window.looks = (window.looks ?? 0) + 1) > 30").await;
    let before = browser.run(REFRESHES).await;
    shop.send(1004, &SHOPIFY[..2]).await;
    shop.until_parked("shopify/order/1004").await;
    // However late the hour, a hidden page does not ask.
    forward(&browser, 3600).await;
    browser.until("(window.looks = (window.looks ?? 0) + 1) > 90").await;
    assert_eq!(browser.run(REFRESHES).await, before);
    hide(&browser, false).await;
    browser.until_text("1 delivery parked").await;
    // The lanes' stream ends too.
    browser.open(&format!("http://{}/lanes", shop.console.address)).await;
    browser.until("document.querySelectorAll('.lane').length === 1").await;
    hide(&browser, true).await;
    shop.send(1014, &SHOPIFY[..2]).await;
    shop.until_parked("shopify/order/1014").await;
    browser.until("(window.looks = (window.looks ?? 0) + 1) > 90").await;
    assert_eq!(browser.run("document.querySelectorAll('.lane').length").await, 1);
    hide(&browser, false).await;
    browser.until("document.querySelectorAll('.lane').length === 2").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Promise: a page of the console that cannot refresh says its age in large, and why.
#[tokio::test(flavor = "multi_thread")]
async fn page_that_cannot_refresh_says_its_age() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    shop.send(1004, &SHOPIFY[..2]).await;
    shop.until_parked("shopify/order/1004").await;
    browser.open(&shop.console.url).await;
    browser.emulate("Network.enable", serde_json::json!({})).await;
    let network = async |is_gone: bool| {
        let conditions =
            serde_json::json!({ "offline": is_gone, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
        browser.emulate("Network.emulateNetworkConditions", conditions).await;
    };
    for path in ["/", "/lanes", "/order?key=shopify/order/1004", "/figures"] {
        browser.open(&format!("http://{}{path}", shop.console.address)).await;
        if path == "/lanes" {
            browser.until("document.querySelectorAll('.lane').length === 1").await;
        }
        assert_eq!(browser.run(&format!("{STALE}.hidden")).await, true, "{path}");
        network(true).await;
        if path == "/lanes" {
            // The browser keeps an open stream, so the page has to connect again.
            hide(&browser, true).await;
            hide(&browser, false).await;
        }
        let told = format!("{STALE}.textContent.match(/^This page is \\d+ s old. The console does not answer/)");
        browser.until(&format!("!{STALE}.hidden && {told} /* {path} */")).await;
        let size = browser.run(&format!("parseFloat(getComputedStyle({STALE}).fontSize)")).await;
        assert!(size.as_f64() >= Some(18.0), "{path}: {size}");
        network(false).await;
        browser.until(&format!("{STALE}.hidden /* {path} */")).await;
    }
    // A page that asks before an action shows what was selected then, and does not refresh.
    browser.complaints().await;
    browser.open(&format!("http://{}/redrive?source=shopify", shop.console.address)).await;
    forward(&browser, 120).await;
    browser.until(&format!("{STALE}.textContent === 'This page is 2 min old. It does not refresh by itself.'")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Promise: the refreshes of all open pages of a console together average at most 20 read units a second.
#[tokio::test(flavor = "multi_thread")]
async fn refreshes_of_many_pages_stay_within_their_budget() {
    let shop = Shop::troubled(Duration::ZERO).await;
    let env = shop.env();
    let (console, meter) = metered_console(&shop.deployment).await;
    let sender = Sender::new(format!("http://{}", console.address));
    let headers = [("cookie".to_owned(), cookie(&console).await)];
    let paths =
        ["/refresh", "/refresh/order?key=shopify/order/1004", "/refresh/figures", "/refresh/group?state=parked"];
    let begun = env.monotonic();
    let mut answered = 0;
    let mut most = 0.0_f64;
    let mut before = 0.0;
    for path in paths.into_iter().cycle().take(400) {
        let answer = sender.request("GET", path, &headers, Vec::new()).await.expect("it answers");
        let units = meter.reading().read_units;
        most = most.max(units - before);
        before = units;
        match answer.status {
            200 => answered += 1,
            204 => assert_eq!(answer.body, ""),
            status => panic!("{path}: {status}"),
        }
    }
    let seconds = (env.monotonic() - begun).as_secs_f64();
    assert!(answered > 0 && before > 0.0, "{answered} answered, {before} units");
    // A refresh is paid for after it has read, so the last one may exceed what the time allows.
    assert!(before <= 20.0 * seconds + most, "{before} units in {seconds} s, at most {most} at once");
    println!("{answered} of 400 refreshes read {before} units in {seconds:.1} s");
    // Pages that a person opens are not limited, and not counted.
    let opened =
        sender.request("GET", "/order?key=shopify/order/1004", &headers, Vec::new()).await.expect("it answers");
    assert_eq!((opened.status, meter.reading().read_units), (200, before));
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_a_stack_follow_within_the_budget() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    let (console, meter) = metered_console(&shop.deployment).await;
    browser.open(&console.url).await;
    let begun = shop.env().monotonic();
    browser.open(&format!("http://{}/lanes", console.address)).await;
    shop.send(1004, &SHOPIFY[..2]).await;
    browser.until("document.querySelector('.lane .badge')?.textContent.includes('parked')").await;
    let seconds = (shop.env().monotonic() - begun).as_secs_f64();
    let units = meter.reading().read_units;
    // The first lanes and the last reading are not yet paid for.
    assert!(units > 0.0 && units <= 20.0 * seconds + 40.0, "{units} units in {seconds} s");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
