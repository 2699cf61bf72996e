//! Lanes: live, paused, and of ten thousand orders.

use std::{sync::Arc, time::Duration};

use tests::{
    deployment::LocalDeployment,
    shop::{Shop, console, stock},
};
use webhook_serializer::telemetry::Quiet;

use crate::browser;

/// Promise: the console shows live lanes, at most 200 of 10,000 orders, and its address is printed.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_show_arriving_orders_and_outcomes() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(20)).await;
    browser.open(&shop.console.url).await;
    browser.click("a[href='/lanes']").await;
    browser.until_text("Waiting for the first order").await;
    shop.trade(1000..1010).await;
    browser.until("document.querySelectorAll('.lane').length === 10").await;
    browser.until("document.querySelectorAll('.bar.running').length >= 10").await;
    let state = |key: &str, state: &str| {
        format!("document.querySelector('[title=\"{key}\"]').parentElement.innerText.includes('{state}')")
    };
    browser.until(&state("shopify/order/1004", "parked")).await;
    browser.until(&state("woocommerce/order/1009", "blocked")).await;
    browser.until(&state("shopify/order/1003", "idle")).await;
    // The signs for parked, blocked, a failed attempt and a repeat.
    let signs = "[...document.querySelectorAll('.lane .sign')].map(one => one.textContent).join('')";
    for sign in ["P", "B", "!", "="] {
        browser.until(&format!("{signs}.includes('{sign}')")).await;
    }
    // No two bars of an order overlap.
    let overlaps = "[...document.querySelectorAll('.lane')].filter(lane => { \
        const bars = [...lane.querySelectorAll('.bar.running')].map(bar => [bar.style.getPropertyValue('--a'), bar.style.getPropertyValue('--b')].map(Number)); \
        return bars.some(([a], at) => at > 0 && a < bars[at - 1][1]); }).length";
    assert_eq!(browser.run(overlaps).await, 0);
    // The filter matches by source, topic and state.
    for (filter, left) in [("stripe", 3), ("refunds", 4), ("parked", 1), ("no such", 0)] {
        browser.run("document.getElementById('filter').value = ''").await;
        browser.type_into("#filter", filter).await;
        browser.until(&format!("document.querySelectorAll('.lane').length === {left} && document.getElementById('how-many').textContent.startsWith('{left} ')")).await;
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_and_overview_agree_on_order_states() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::troubled(Duration::from_millis(5)).await;
    let entity = "shopify/order/1003".parse().expect("a key");
    shop.deployment.operator().hold(&entity).await.expect("it is put on hold");
    browser.open(&shop.console.url).await;
    browser.until_reloaded("1 order blocked, 1 delivery parked, 1 order on hold").await;
    browser.open(&format!("http://{}/lanes", shop.console.address)).await;
    // Orders that need somebody are on top.
    let badges = "[...document.querySelectorAll('.lane .badge')].map(one => one.textContent)";
    browser.until(&format!("{badges}.slice(0, 3).join() === 'blocked,parked,on hold'")).await;
    browser.until(&format!("{badges}.slice(3).join() === Array(7).fill('idle').join()")).await;
    // Operators' holds and resumes are not among the worker's events, so the lane must follow the row.
    shop.deployment.operator().resume(&entity).await.expect("it is resumed");
    browser.until(&format!("{badges}.slice(2).join() === Array(8).fill('idle').join()")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_lanes_stand_still_until_follow_is_pressed() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    browser.open(&shop.console.url).await;
    browser.press("l").await;
    browser.until("document.getElementById('lanes')").await;
    shop.trade(1000..1003).await;
    browser.until("document.querySelectorAll('.lane').length === 3").await;
    let shift = "document.getElementById('lanes').style.getPropertyValue('--shift')";
    browser.press(" ").await;
    browser.until("document.getElementById('follow').textContent === 'Follow'").await;
    let before = browser.run(shift).await;
    // On each of these thirty polls, a page that is not paused would have moved.
    browser.until("(window.looks = (window.looks ?? 0) + 1) > 30").await;
    assert_eq!(browser.run(shift).await, before, "paused");
    browser.press("+").await;
    assert_eq!(browser.run("document.getElementById('window').value").await, "30");
    browser.press(" ").await;
    let after = browser.run(shift).await;
    browser.until(&format!("{shift} !== {after}")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// The most elements of a page with 200 lanes.
const NODES: u64 = 4_500;

#[tokio::test(flavor = "multi_thread")]
async fn lanes_page_shows_200_of_ten_thousand_orders() {
    let Some(browser) = browser().await else { return };
    let lane = LocalDeployment::start_observed(tests::testbed::SOURCES, Arc::new(Quiet)).await;
    stock(&lane, 10_000).await;
    let console = console(&lane, None).await;
    let at = |path: &str| format!("http://{}{path}", console.address);
    browser.open(&console.url).await;
    // With the orders in trouble known from their index, the first page reads only a part of the others.
    browser.until_text("at least").await;
    browser.open(&at("/?read=all")).await;
    browser.until_text("10\u{202f}000").await;
    let begun = lane.env.monotonic();
    browser.open(&at("/lanes")).await;
    browser.until("document.querySelectorAll('.lane').length === 200").await;
    let first_lane = lane.env.monotonic() - begun;
    browser.until_text("200 lanes, and 9800 more").await;
    let nodes = browser.run("document.getElementsByTagName('*').length").await.as_u64().expect("a number");
    assert!(nodes < NODES, "{nodes} elements");
    let begun = lane.env.monotonic();
    browser.type_into("#search", "104242\u{e007}").await;
    browser.until("document.querySelector('h1')?.textContent.includes('shopify/order/104242')").await;
    let found = lane.env.monotonic() - begun;
    browser.type_into("#search", "order/1042\u{e007}").await;
    browser.until_text("100 orders with").await;
    let listed = browser.run("document.querySelectorAll('table.rows tbody tr').length").await;
    assert_eq!(listed, 50);
    browser.until_text("and 50 more").await;
    println!("first lane after {first_lane:?}, search {found:?}, {nodes} elements");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
