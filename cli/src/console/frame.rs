//! The frame around each page: navigation, search and notices. Also elements that pages share, such as badges and
//! times.

use std::{collections::HashMap, convert::Infallible, str::FromStr, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, Query},
    http::{StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use webhook_serializer::{
    operator::Estimate,
    protocol::entity::{EntityKey, Sequence},
    time::Timestamp,
};

use super::{ConsoleState, Flash, reading::StoreReading};
use crate::{
    output::{duration, visible},
    view::{
        position::marked,
        tone::{Tone, Word},
    },
};

#[derive(Debug, Default)]
pub(super) struct PageRequest {
    theme: Option<&'static str>,
    flash: Option<Flash>,
    searched: String,
}

impl FromRequestParts<Arc<ConsoleState>> for PageRequest {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<ConsoleState>) -> Result<Self, Infallible> {
        let cookies = parts.headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let chosen = cookies.split(';').find_map(|pair| pair.trim().strip_prefix("theme="));
        let theme = ["light", "dark"].into_iter().find(|theme| Some(*theme) == chosen);
        let flash = parts.uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("flash="));
        let query = Query::<HashMap<String, String>>::try_from_uri(&parts.uri);
        let searched =
            query.ok().filter(|_| parts.uri.path() == "/search").and_then(|Query(mut query)| query.remove("q"));
        Ok(Self { theme, flash: flash.and_then(|id| shared.take_flash(id)), searched: searched.unwrap_or_default() })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Now,
    Lanes,
    Figures,
    None,
}

pub(super) struct PageFrame<'a> {
    pub(super) title: &'a str,
    pub(super) tab: Tab,
    read_at: Option<Timestamp>,
    again: Option<Duration>,
}

impl<'a> PageFrame<'a> {
    pub(super) fn new(title: &'a str, tab: Tab) -> Self {
        Self { title, tab, read_at: None, again: None }
    }

    /// Says when the data of the page was read. The page shows its age once it is old.
    pub(super) fn read_at(self, at: Timestamp) -> Self {
        Self { read_at: Some(at), ..self }
    }

    /// Lets the page refresh after this time, and so on.
    pub(super) fn again(self, after: Duration) -> Self {
        Self { again: Some(after), ..self }
    }

    pub(super) fn around(&self, shared: &ConsoleState, request: &PageRequest, body: &Markup) -> Response {
        self.answer(StatusCode::OK, shared, request, body)
    }

    pub(super) fn answer(
        &self,
        status: StatusCode,
        shared: &ConsoleState,
        request: &PageRequest,
        body: &Markup,
    ) -> Response {
        let link = |tab: Tab, path: &str, name: &str| {
            html! { a href=(path) aria-current=[(self.tab == tab).then_some("page")] { (name) } }
        };
        let age = self.read_at.map(|at| shared.watched.env.now().since(at).as_millis());
        let again = self.again.map(|after| after.as_millis());
        let page = html! {
            (DOCTYPE)
            html lang="en" data-theme=[request.theme] {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) " · serializer" }
                    link rel="icon" href="/console.svg" type="image/svg+xml";
                    link rel="stylesheet" href="/console.css";
                    script src="/console.js" type="module" {}
                }
                body {
                    a.skip href="#main" { "Skip to the page" }
                    header.top {
                        a.brand href="/" { span.mark aria-hidden="true" { i {} i {} i {} } "serializer" }
                        nav aria-label="Pages" {
                            (link(Tab::Now, "/", "Now"))
                            (link(Tab::Lanes, "/lanes", "Lanes"))
                            (link(Tab::Figures, "/figures", "Figures"))
                        }
                        form.search role="search" action="/search" {
                            label.hidden for="search" { "Find an order" }
                            input #search type="search" name="q" value=(request.searched) placeholder="Find an order" autocomplete="off" spellcheck="false" maxlength="512";
                            kbd aria-hidden="true" { "/" }
                        }
                        button #theme .plain type="button" hidden { "Dark" }
                        button #keys .plain type="button" hidden aria-haspopup="dialog" { "?" span.hidden { " Keys" } }
                    }
                    main #main tabindex="-1" {
                        p #stale .stale hidden {}
                        @if let Some(read_at) = self.read_at {
                            noscript { p.stale { "Without JavaScript, this page does not refresh. It was read at " (read_at) " (UTC)." } }
                        }
                        @if let Some(flash) = &request.flash {
                            p.flash.bad[!flash.is_good] role="status" { (timed(&flash.sentence)) }
                        }
                        div #live data-age=[age] data-again=[again] { (body) }
                    }
                    footer { p { (shared.watched.name) } }
                    div #announcements .hidden aria-live="polite" {}
                    dialog #help aria-labelledby="help-title" {
                        h2 #help-title { "Keys" }
                        dl {
                            @for (keys, what) in KEYS { div { dt { @for key in keys.split(' ') { kbd { (key) } } } dd { (what) } } }
                        }
                        form method="dialog" { button { "Close" } }
                    }
                }
            }
        };
        (status, Html(legible(&page.into_string()))).into_response()
    }
}

/// Escapes the control characters of a page. The values of form fields are not escaped, because the browser sends the
/// values back.
fn legible(page: &str) -> String {
    const VALUE: &str = " value=\"";
    let mut parts = page.split(VALUE);
    let mut shown = visible(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let (value, rest) = part.split_at(part.find('"').unwrap_or(part.len()));
        shown.extend([VALUE, value, &visible(rest)]);
    }
    shown
}

const KEYS: [(&str, &str); 10] = [
    ("/", "find an order"),
    ("j k", "next, previous row"),
    ("Enter", "open it"),
    ("n", "overview"),
    ("l", "lanes"),
    ("f", "figures"),
    ("Space", "lanes: pause, follow"),
    ("+ −", "lanes: zoom"),
    ("← →", "lanes: earlier, later"),
    ("?", "this list"),
];

pub(super) fn badge(word: impl Into<Word>) -> Markup {
    let Word { text, tone } = word.into();
    html! { span class={ "badge " (tone.map_or("none", Tone::class)) } { (text) } }
}

pub(super) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title={ (at) " (UTC)" } { (duration(now.since(at))) } }
}

pub(super) fn at(at: Timestamp) -> Markup {
    html! { time.at datetime=(at) title={ (at) " (UTC)" } { (at) } }
}

pub(super) fn timed(text: &str) -> Markup {
    const LENGTHS: [usize; 2] = ["2026-11-25T03:24:55.123Z".len(), "2026-11-25T03:24:55Z".len()];
    let mut shown = String::new();
    let mut from = 0;
    for (start, _) in text.match_indices("20") {
        let found = LENGTHS.into_iter().find_map(|length| {
            let found = text.get(start..start + length).filter(|found| start >= from && found.ends_with('Z'))?;
            Some((Timestamp::from_str(found).ok()?, start + length))
        });
        if let Some((time, end)) = found {
            shown.push_str(&html! { (text[from..start]) (at(time)) }.into_string());
            from = end;
        }
    }
    shown.push_str(&html! { (text[from..]) }.into_string());
    PreEscaped(shown)
}

pub(super) fn position(sequence: Sequence) -> Markup {
    html! { span.position title={ "sequence " (sequence) } { (marked(sequence)) } }
}

pub(super) fn order_path(entity: &EntityKey) -> String {
    format!("/order?key={}", encoded(entity.as_str()))
}

pub(super) fn delivery_path(entity: &EntityKey, sequence: Sequence) -> String {
    format!("/delivery?key={}&sequence={sequence}", encoded(entity.as_str()))
}

pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

pub(super) fn count(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(count)) }
}

pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 * 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

pub(super) fn read(reading: &StoreReading, whole: &str) -> Markup {
    html! {
        p.read {
            "Read at " (at(reading.at)) ", for about " (count(reading.units, "read unit", "read units")) "."
        }
        @if let Some(reason) = &reading.no_index {
            p.notice { (reason) ". Until then, the console reads the tables." }
        }
        @for (what, estimate) in &reading.unread {
            p.notice {
                "The console read only a part of " (what) ". A complete reading takes "
                @match estimate {
                    Estimate::About(units) => { "about " (count(*units, "read unit", "read units")) }
                    Estimate::Over(units) => { "more than " (count(*units, "read unit", "read units")) }
                }
                ". " a href=(whole) { "Read everything" }
            }
        }
        @for (key, error) in reading.overview.unreadable.iter().take(5) {
            p.notice { "A row of " code { (key) } " cannot be read: " (error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_percent_encoded_as_query_value() {
        assert_eq!(encoded("shop/order/1 & é=\"#"), "shop/order/1%20%26%20%C3%A9%3D%22%23");
    }

    #[test]
    fn hidden_characters_are_escaped_except_in_form_values() {
        let page = html! { p title="a\u{202e}" { "b\u{9b} value=\"c\u{202e}\"" } input name="key" value="d\u{202e}"; i { "\u{2066}" } };
        let shown = legible(&page.into_string());
        assert_eq!(
            shown,
            "<p title=\"a\\u202e\">b\\u009b value=&quot;c\\u202e&quot;</p><input name=\"key\" value=\"d\u{202e}\"><i>\\u2066</i>"
        );
    }

    #[test]
    fn timestamp_in_text_becomes_a_time_element() {
        let shown = timed("leased by <a> until 2026-11-25T03:24:55.123Z; 2026 and 20").into_string();
        let time = "<time class=\"at\" datetime=\"2026-11-25T03:24:55.123Z\" title=\"2026-11-25T03:24:55.123Z (UTC)\">";
        assert_eq!(shown, format!("leased by &lt;a&gt; until {time}2026-11-25T03:24:55.123Z</time>; 2026 and 20"));
    }

    #[test]
    fn numbers_are_shown_with_thousands_separators() {
        assert_eq!(
            [7, 1000, 10_000, 1_234_567].map(grouped),
            ["7", "1000", "10\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
    }
}
