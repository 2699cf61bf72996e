//! `serializer alerts --test`, and `show` with the hash of an alert.

use webhook_serializer::protocol::entity::EntityKey;

use crate::{
    endpoint::endpoint,
    running::{LocalProcess, complained, event, file, folder, printed, ran},
};

const TOKEN: &str = "Zx81kQ92mVb7TtR4hush";

fn sources(alerts: &str, forward: &str) -> String {
    let key = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==";
    format!(
        "[alerts]\nto = '{alerts}/{TOKEN}'\nform = 'slack'\nallow_private = true\n[sources.warehouse]\n\
         provider = 'standard-webhooks'\nsecrets = ['{key}']\nhandler = 'forward'\n\
         forward = {{ url = '{forward}', secret = '{key}', allow_private = true }}\n"
    )
}

/// Promise: `alerts --test` sends one message, and says what the receiver answered, without its URL.
#[test]
fn test_alert_says_what_the_receiver_answers() {
    let (url, posts) = endpoint(|number, _| match number {
        0 => ("200 OK\r\ncontent-type: text/plain".to_owned(), "ok".to_owned()),
        _ => ("404 Not Found\r\ncontent-type: text/plain".to_owned(), format!("no /{TOKEN}")),
    });
    let folder = folder();
    let document = file(&folder, "sources.toml", &sources(&url, &url));
    let test = ["alerts", "--test", "--sources", document.to_str().unwrap()];
    let sent = ran(&test);
    assert!(sent.status.success() && printed(&sent) == "127.0.0.1 answered 200 OK: ok\n", "{sent:?}");
    let post = posts.recv().expect("it was sent");
    assert!(String::from_utf8(post.body).unwrap().contains("this is a test"));
    let refused = ran(&test);
    let complained = complained(&refused);
    assert!(!refused.status.success() && complained.contains("127.0.0.1 answered 404 Not Found"), "{complained}");
    assert!(!complained.contains(TOKEN), "{complained}");
    let all = sources(&url, &url);
    let without = file(&folder, "without.toml", &all[all.find("[sources").unwrap()..]);
    let none = ran(&["alerts", "--test", "--sources", without.to_str().unwrap()]);
    assert!(crate::running::complained(&none).contains("has no table `alerts`"), "{none:?}");
}

#[test]
fn show_accepts_the_hash_of_an_order_in_trouble() {
    let (url, _posts) = endpoint(|_, _| ("410 Gone".to_owned(), String::new()));
    let folder = folder();
    let document = file(&folder, "sources.toml", &sources("http://127.0.0.1:1", &url));
    let document = document.to_str().unwrap();
    let mut local = LocalProcess::start(&["--sources", document]);
    let sample = event("standard-webhooks-order-shipped.json");
    let sent = ran(&["send", "--to", &local.url, "--sources", document, &sample]);
    assert!(sent.status.success(), "{sent:?}");
    local.until(|event| event["what"] == "settled");
    let key = "warehouse/order/450789469";
    let shown = printed(&local.ran(&["show", &EntityKey::parse(key).unwrap().hash()]));
    assert!(shown.starts_with(key) && shown.contains("1 delivery is parked"), "{shown}");
    let unknown = local.ran(&["show", "0123456789abcdef"]);
    assert!(complained(&unknown).contains("no order in trouble has the hash 0123456789abcdef"), "{unknown:?}");
}
