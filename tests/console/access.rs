//! Access control, response headers and error pages.

use std::time::Duration;

use serializer::{
    console::Console,
    local::sender::{HttpAnswer, Sender},
};
use tests::shop::Shop;

/// Exchanges the token for a cookie.
pub async fn cookie(console: &Console) -> String {
    let address = console.address;
    let path = console.url.split_once(&address.to_string()).expect("its own address").1;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let answer = exchange(console, &request).await;
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("\r\nlocation: /\r\n"), "{answer}");
    let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    for needed in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(needed), "{set}");
    }
    set.split(';').next().unwrap_or_default().to_owned()
}

/// Sends raw bytes and returns the response.
async fn exchange(console: &Console, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(console.address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    answer
}

async fn request(shop: &Shop, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
    let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sender = Sender::new(format!("http://{}", shop.console.address));
    sender.request(method, path, &headers, body.as_bytes().to_vec()).await.expect("it answers")
}

/// Promise: the console refuses requests without its token or from other pages, and explains failures.
#[tokio::test(flavor = "multi_thread")]
async fn console_refuses_requests_without_its_token_or_of_foreign_hosts() {
    let shop = Shop::open(Duration::ZERO).await;
    let cookie = cookie(&shop.console).await;
    let own = format!("http://{}", shop.console.address);
    let known = ("cookie", cookie.as_str());
    for path in [
        "/",
        "/lanes",
        "/live",
        "/refresh",
        "/refresh/order?key=shopify/order/1004",
        "/order?key=shopify/order/1004",
        "/console.js",
        "/console.css",
        "/?token=guess",
    ] {
        assert_eq!(request(&shop, "GET", path, &[], "").await.status, 403, "{path}");
        let foreign = request(&shop, "GET", path, &[known, ("host", "rebound.example")], "").await;
        assert_eq!(foreign.status, 421, "{path}");
    }
    assert_eq!(request(&shop, "GET", "/", &[known], "").await.status, 200);
    shop.send(1004, &serializer::local::samples::SHOPIFY[..2]).await;
    shop.until_parked("shopify/order/1004").await;
    let operator = shop.deployment.operator();
    let entity = "shopify/order/1004".parse().expect("a key");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let body = "key=shopify/order/1004&why=because";
    for origin in [None, Some("http://evil.example"), Some("null"), Some("http://127.0.0.1:1")] {
        let origin = origin.map(|origin| ("origin", origin));
        let headers: Vec<_> = [known, form].into_iter().chain(origin).collect();
        for path in ["/act/redrive", "/redrive", "/delivery"] {
            assert_eq!(request(&shop, "POST", path, &headers, body).await.status, 403, "{path} from {origin:?}");
        }
    }
    assert_eq!(operator.parked(&entity).await.expect("it answers").len(), 1, "nothing is redriven");
    // Otherwise the delivery would be parked again.
    shop.mend();
    let done = request(&shop, "POST", "/act/redrive", &[known, form, ("origin", &own)], body).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(operator.parked(&entity).await.expect("it answers").is_empty(), "redriven from the console's own page");
    // The server requires a reason too, not only the form.
    let unsaid =
        request(&shop, "POST", "/act/redrive", &[known, form, ("origin", &own)], "key=shopify/order/1004").await;
    assert!(unsaid.body.contains("Enter a reason for the operations log."), "{}", unsaid.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_forbid_inline_scripts_frames_and_caching() {
    let shop = Shop::open(Duration::ZERO).await;
    let cookie = cookie(&shop.console).await;
    let address = shop.console.address;
    for path in ["/", "/lanes", "/console.js", "/nowhere"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n");
        let answer = exchange(&shop.console, &request).await;
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: same-origin",
        ] {
            assert!(answer.contains(header), "{path}: {header}");
        }
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        assert!(!body.contains(" style=\"") && !body.contains("<style") && !body.contains(" onclick"), "{path}");
        assert!(!body.replace("http://www.w3.org/2000/svg", "").contains("//www."), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_console_request_gets_an_explanation() {
    let shop = Shop::open(Duration::ZERO).await;
    let cookie = cookie(&shop.console).await;
    let known = ("cookie", cookie.as_str());
    shop.send(1001, &serializer::local::samples::STRIPE[..1]).await;
    for (path, said) in [
        ("/nowhere", "This page does not exist."),
        ("/order?key=no/such/order", "There is no order no/such/order"),
        ("/order?key=strip/order/1001", "<a href=\"/order?key=stripe/order/1001\">stripe/order/1001</a>"),
        ("/delivery?key=stripe/order/101&sequence=7", "Similar keys: <a href=\"/order?key=stripe/order/1001\">"),
        ("/order", "The address names no order."),
        ("/order?key=", "The address names no order."),
        ("/order?key=plain", "“plain” is not an order's key"),
        ("/order?key=%FF%00", "is not an order's key"),
        ("/order?key=a/1&key=a/2", "duplicate field"),
        ("/order?key=a/1&settled=-1", "settled: invalid digit"),
        ("/order?key=a/1&settled=99999999999999999999999", "settled: number too large"),
        ("/delivery?key=stripe/order/1001", "names no delivery of the order"),
        ("/delivery?sequence=1", "The address names no order."),
        ("/delivery?key=stripe/order/1001&sequence=x", "is not a delivery's sequence"),
        ("/delivery?key=stripe/order/1001&sequence=0", "the sequence was never used, or its delivery was settled"),
        ("/delivery?key=stripe/order/1001&sequence=18446744073709551615", "There is no delivery"),
        ("/delivery?key=stripe/order/1001&sequence=18446744073709551616", "is not a delivery's sequence"),
        ("/figures?minutes=x", "minutes: invalid digit"),
        ("/figures?minutes=-5", "minutes: invalid digit"),
        ("/group", "No order state is called “”. The states are blocked, parked,"),
        ("/group?state=purple", "No order state is called “purple”"),
        ("/redrive?source=NO", "is not a source's name"),
        ("/redrive?until=soon", "until: invalid digit"),
        ("/act/redrive", "for another kind of request"),
        ("/lanes/", "This page does not exist."),
        ("/%2e%2e/etc", "This page does not exist."),
        ("/delivery?key=stripe/order/1001&sequence=9999999999999", "There is no delivery 9999999999999"),
        ("/work?id=x", "no longer knows this redrive"),
        ("/search?q=%3Cscript%3E", "&lt;script&gt;"),
    ] {
        let answer = request(&shop, "GET", path, &[known], "").await;
        assert!(answer.body.contains(said) && answer.body.contains("<h1"), "{path}: {}", answer.body);
        assert!(path.starts_with("/search") || (400..500).contains(&answer.status), "{path}: {}", answer.status);
    }
    let long = request(&shop, "GET", &format!("/order?key={}", "x/".repeat(4000)), &[known], "").await;
    assert!(long.body.contains("a key has at most 512 bytes") && long.body.len() < 8000, "{}", long.body);
    let theme = request(&shop, "GET", "/", &[("cookie", &format!("{cookie}; theme=\"><script>"))], "").await;
    assert!(theme.status == 200 && !theme.body.contains("<script>"), "{}", theme.body);
    let own = format!("http://{}", shop.console.address);
    let form = [known, ("origin", own.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    for (path, body, said) in [
        ("/act/dance", "key=a/1", "There is no action “dance”."),
        ("/act/%FF", "key=a/1", "There is no action"),
        ("/act/skip", "", "The address names no order."),
        ("/redrive", "until=soon", "until: invalid digit"),
        ("/lanes", "", "for another kind of request"),
    ] {
        let answer = request(&shop, "POST", path, &form, body).await;
        assert!(answer.body.contains(said) && answer.body.contains("<h1"), "{path}: {}", answer.body);
    }
    let unread = request(&shop, "POST", "/delivery", &form[..2], "x").await;
    assert!(unread.body.contains("This form has a value that cannot be read"), "{}", unread.body);
    let Shop { deployment, console, .. } = shop;
    deployment.local.stop().await.expect("it stops");
    let sender = Sender::new(format!("http://{}", console.address));
    let headers = [("cookie".to_owned(), cookie.clone())];
    let lost = sender.request("GET", "/order?key=stripe/order/1001", &headers, Vec::new()).await.expect("it answers");
    assert_eq!(lost.status, 502);
    assert!(lost.body.contains("The tables do not answer"), "{}", lost.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_form_keeps_the_typed_values() {
    let shop = Shop::open(Duration::ZERO).await;
    let cookie = cookie(&shop.console).await;
    shop.send(1004, &serializer::local::samples::SHOPIFY[..2]).await;
    shop.until_parked("shopify/order/1004").await;
    let own = format!("http://{}", shop.console.address);
    let form = ("content-type", "application/x-www-form-urlencoded");
    let headers = [("cookie", cookie.as_str()), form, ("origin", &own)];
    let post = async |path: &str, body: &str| request(&shop, "POST", path, &headers, body).await;
    let order = "key=shopify/order/1004";
    let refused = post("/act/skip", &format!("{order}&sequence=9999999999999&why=by+hand+%3C1%3E")).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    for kept in [
        "is not the next delivery: it never arrived; nothing was skipped",
        "name=\"why\" value=\"by hand &lt;1&gt;\"",
        "name=\"sequence\" value=\"9999999999999\"",
        "action=\"/act/skip\"",
    ] {
        assert!(refused.body.contains(kept), "{kept}: {}", refused.body);
    }
    let unsaid = post("/redrive", "source=shopify&until=5&why=+").await;
    assert_eq!(unsaid.status, 400, "{}", unsaid.body);
    for kept in ["Enter a reason", "name=\"source\" value=\"shopify\"", "name=\"until\" value=\"5\"", "value=\" \""] {
        assert!(unsaid.body.contains(kept), "{kept}: {}", unsaid.body);
    }
    let searched = request(&shop, "GET", "/search?q=no+such", &headers[..1], "").await;
    assert!(searched.body.contains("name=\"q\" value=\"no such\""), "{}", searched.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_runbook_link_opens_a_page() {
    let shop = Shop::open(Duration::ZERO).await;
    let cookie = cookie(&shop.console).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbooks");
    let mut pages = 0;
    for page in std::fs::read_dir(folder).expect("runbooks").map(|page| page.expect("a page").path()) {
        let text = std::fs::read_to_string(&page).expect("text");
        let links: Vec<&str> =
            text.split("(http://127.0.0.1:9001").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        // During a restore no console runs, so `restore.md` needs no links.
        assert!(!links.is_empty() || page.ends_with("restore.md"), "{}", page.display());
        for link in links {
            let answer = request(&shop, "GET", link, &[("cookie", cookie.as_str())], "").await;
            assert_eq!(answer.status, 200, "{}: {link}", page.display());
            let kept_out = request(&shop, "GET", link, &[], "").await;
            let goes_on = format!("href=\"{}\"", link.replace('&', "&amp;"));
            assert!(kept_out.status == 403 && kept_out.body.contains(&goes_on), "{link}: {}", kept_out.body);
            pages += 1;
        }
    }
    assert!(pages > 10, "{pages} links");
}
