//! The console, as people use it: in a real browser, and by requests that should
//! not get in.

mod doors;
mod lanes;
mod looks;
mod mending;

use tests::{browser::Browser, not_run::not_run};

/// A browser; `None`, said aloud: there is none here.
async fn browser() -> Option<Browser> {
    let browser = Browser::start().await;
    if browser.is_none() {
        not_run("chromium and chromedriver are not installed (Debian: chromium, chromium-driver)");
    }
    browser
}
