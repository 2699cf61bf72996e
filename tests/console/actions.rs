//! Actions in the browser.

use std::time::Duration;

use serializer::local::samples::SHOPIFY;
use tests::{browser::key, shop::Shop};

use crate::browser;

/// Promise: the console mends parked and blocked deliveries, and hides what `show` hides.
#[tokio::test(flavor = "multi_thread")]
async fn parked_delivery_is_redriven_by_a_click() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    browser.open(&shop.console.url).await;
    browser.until_text("No order is stopped or failing").await;
    shop.send(1004, &SHOPIFY[..3]).await;
    shop.until_parked("shopify/order/1004").await;
    // The page refreshes by itself.
    browser.until_text("1 delivery parked").await;
    browser.until_text("the warehouse knows no article …").await;
    browser.click(".card summary").await;
    browser.click(".card td a").await;
    browser.until_text("It was parked").await;
    shop.mend();
    browser.click(".act details:first-child summary").await;
    browser.type_into(".act details:first-child input[name=why]", "the article is listed now").await;
    browser.click(".act details:first-child button").await;
    browser.until("document.querySelector('.flash').textContent.includes('was appended again')").await;
    let said = browser.run("document.querySelector('.flash').textContent").await.to_string();
    assert!(said.contains("By ada: the article is listed now"), "{said}");
    let operator = shop.deployment.operator();
    let entity = "shopify/order/1004".parse().expect("a key");
    assert!(operator.parked(&entity).await.expect("it answers").is_empty());
    browser.until_reloaded("redriven").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn console_resumes_order_and_redrives_parked_deliveries() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    for order in [1004, 1014, 1024] {
        shop.send(order, &SHOPIFY[..2]).await;
        shop.until_parked(&format!("shopify/order/{order}")).await;
    }
    shop.trade(1009..1010).await;
    shop.until_blocked().await;
    browser.open(&shop.console.url).await;
    browser.until_text("1 order blocked, 3 deliveries parked").await;
    shop.mend();
    browser.open(&format!("http://{}/redrive?source=shopify", shop.console.address)).await;
    browser.until_text("Redrive 3 deliveries of 3 orders?").await;
    browser.type_into("input[name=why]", "mended").await;
    browser.click(".ask button").await;
    browser.until_text("3 of 3 deliveries redriven").await;
    browser.until_text("Done.").await;
    browser.open(&format!("http://{}/order?key=woocommerce/order/1009", shop.console.address)).await;
    browser.until_text("failed after 2 attempts").await;
    browser.click(".act summary").await;
    browser.type_into("input[name=why]", "the ledger is open").await;
    browser.click(".act button").await;
    browser.until_text("continues from").await;
    // The page shows what follows, without being opened again.
    browser.until_text("All deliveries are settled.").await;
    browser.until_text("continues from").await;
    let operator = shop.deployment.operator();
    assert!(operator.all_parked().await.expect("it answers").is_empty());
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn console_redacts_personal_data_until_requested() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    shop.send(1000, &SHOPIFY[..2]).await;
    shop.pay_again(1000).await;
    let settled = |all: &[serializer::view::recording::RecordedEvent]| {
        all.iter().filter(|one| matches!(one.what, serializer::view::recording::EventKind::Settled(_))).count() == 3
    };
    shop.until(settled).await;
    browser.open(&shop.console.url).await;
    browser.open(&format!("http://{}/order?key=shopify/order/1000", shop.console.address)).await;
    browser.click("table.rows tbody tr:first-child a").await;
    browser.until_text("[redacted]").await;
    let text = "document.querySelector('pre').textContent";
    let redacted = browser.run(text).await.to_string();
    assert!(!redacted.contains('@'), "{redacted}");
    assert!(browser.run("document.querySelectorAll('.changes li').length").await.as_u64() > Some(0));
    let address = browser.address().await;
    browser.click(".show button").await;
    browser.until(&format!("{text}.includes('@')")).await;
    // The URL alone shows no personal data.
    browser.open(&address).await;
    browser.until_text("[redacted]").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

/// Promise: keyboard, dark and light, phone, landmarks and names for screen readers.
#[tokio::test(flavor = "multi_thread")]
async fn keyboard_alone_finds_order_and_redrives_delivery() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    shop.send(1004, &SHOPIFY[..3]).await;
    shop.until_parked("shopify/order/1004").await;
    shop.mend();
    browser.open(&shop.console.url).await;
    browser.until_text("1 delivery parked").await;
    browser.press("?").await;
    browser.until("document.getElementById('help').open").await;
    browser.press(key::ESCAPE).await;
    browser.until("!document.getElementById('help').open").await;
    browser.press("j").await;
    browser.until("document.activeElement.matches('.card > summary')").await;
    let outline = browser.run("getComputedStyle(document.activeElement).outlineStyle").await;
    assert_eq!(outline, "solid", "the focus is visible");
    browser.press("/").await;
    browser.until("document.activeElement.id === 'search'").await;
    browser.press("1004").await;
    browser.press(key::ENTER).await;
    browser.until("document.querySelector('h1')?.textContent.startsWith('shopify/order/1004')").await;
    // The first two keys go to the actions, the third to the first parked delivery.
    browser.press("jjj").await;
    browser.until("document.activeElement.matches('td a')").await;
    browser.press("kk").await;
    browser.until("document.activeElement.matches('.act details:first-child summary')").await;
    browser.press(key::ENTER).await;
    browser.press(key::TAB).await;
    browser.until("document.activeElement.name === 'why'").await;
    browser.press("mended").await;
    browser.press(key::ENTER).await;
    browser.until("document.querySelector('.flash').textContent.includes('was appended again')").await;
    let entity = "shopify/order/1004".parse().expect("a key");
    assert!(shop.deployment.operator().parked(&entity).await.expect("it answers").is_empty());
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_skip_and_resume_show_the_given_reasons() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(5)).await;
    shop.trade(1009..1010).await;
    shop.until_blocked().await;
    browser.open(&shop.console.url).await;
    let page = format!("http://{}/order?key=woocommerce/order/1009", shop.console.address);
    let act = async |name: &str, why: &str, said: &str| {
        browser.open(&page).await;
        browser.click(&format!("details:has(form[action='/act/{name}']) summary")).await;
        browser.type_into(&format!("form[action='/act/{name}'] input[name=why]"), why).await;
        browser.click(&format!("form[action='/act/{name}'] button")).await;
        browser.until(&format!("document.querySelector('.flash')?.textContent.includes('{said}')")).await;
    };
    act("hold", "the ledger is counted", "is on hold").await;
    act("skip", "it was typed by hand", "is parked; unless on hold, the order continues").await;
    browser.until_text("An operator put it on hold").await;
    shop.mend();
    act("resume", "counted", "is no longer on hold: nothing waits").await;
    for told in ["the ledger is counted", "it was typed by hand", "settled as parked"] {
        browser.until_text(told).await;
    }
    let entity = "woocommerce/order/1009".parse().expect("a key");
    let operator = shop.deployment.operator();
    assert_eq!(operator.parked(&entity).await.expect("it answers").len(), 1);
    browser.until_reloaded("1 delivery is parked").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn order_page_follows_an_order_around_a_form_in_use() {
    let Some(browser) = browser().await else { return };
    let shop = Shop::open(Duration::from_millis(600)).await;
    browser.open(&shop.console.url).await;
    shop.send(1001, &SHOPIFY[..4]).await;
    browser.open(&format!("http://{}/order?key=shopify/order/1001", shop.console.address)).await;
    browser.until_text("handles the order").await;
    browser.click(".act summary").await;
    browser.type_into(".act details[open] input[name=why]", "half a rea").await;
    // The page was opened once, and no key reloads it.
    browser.until_text("All deliveries are settled.").await;
    browser.until("document.querySelectorAll('.rows a[data-row]').length === 4").await;
    let typed = browser.run("document.querySelector('.act details[open] input[name=why]').value").await;
    assert_eq!(typed, "half a rea", "a form in use is left alone");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
