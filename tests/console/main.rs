//! The console in a real browser, and requests that must be refused.

mod access;
mod actions;
mod lanes;
mod layout;
mod refresh;

use tests::{browser::Browser, not_run::not_run};

/// Starts a browser. Without an installed one, prints that the test does not run.
async fn browser() -> Option<Browser> {
    let browser = Browser::start().await;
    if browser.is_none() {
        not_run("chromium and chromedriver are not installed (Debian: chromium, chromium-driver)");
    }
    browser
}
