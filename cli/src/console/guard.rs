//! Who may ask. Serving on 127.0.0.1 keeps no other web page of the same browser
//! out, nor another user of the same machine: a token in the address that is
//! printed does, and a cookie that it is exchanged for.

use std::{fmt::Write, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use maud::html;

use super::Shared;

/// How a visitor is let in.
#[derive(Debug)]
pub(super) struct Access {
    port: u16,
    token: String,
    session: String,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is answered.
    Answered,
    /// It brought the token: here is the cookie, and the same page without the
    /// token in its address.
    Enters(String),
    /// It is refused, with the reason.
    Refused(StatusCode, &'static str),
}

const NO_COOKIE: &str = "This console opens with the address that its command printed, token and all. If you have just opened that, go on here:";
const HOST: &str = "This console answers to 127.0.0.1 and localhost alone.";
const ORIGIN: &str = "This did not come from a page of this console; nothing was done.";

/// Nothing is loaded from elsewhere, and nothing in a page's text can run or
/// restyle it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

impl Access {
    /// A new token, for a console on this port.
    pub(super) fn new(port: u16) -> Result<Self, getrandom::Error> {
        Ok(Self { port, token: drawn()?, session: drawn()? })
    }

    /// The address that lets somebody in.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// Cookies know no ports: two consoles must not take each other's.
    fn cookie(&self) -> String {
        format!("serializer-console-{}", self.port)
    }

    /// What becomes of a request.
    pub(super) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let host = text(header::HOST);
        let own = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !own.iter().any(|own| own == host) {
            return Verdict::Refused(StatusCode::MISDIRECTED_REQUEST, HOST);
        }
        let is_read = method == Method::GET || method == Method::HEAD;
        if !is_read && text(header::ORIGIN) != format!("http://{host}") {
            return Verdict::Refused(StatusCode::FORBIDDEN, ORIGIN);
        }
        let parameters = || uri.query().unwrap_or_default().split('&');
        let token = parameters().find_map(|pair| pair.strip_prefix("token="));
        if is_read && token.is_some_and(|token| is_same(token, &self.token)) {
            let others: Vec<&str> = parameters().filter(|pair| !pair.starts_with("token=")).collect();
            let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
            // A path that begins with two slashes would name another host.
            return Verdict::Enters(format!("/{}{query}", uri.path().trim_start_matches('/')));
        }
        let name = self.cookie();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        match values.any(|(cookie, value)| cookie == name && is_same(value, &self.session)) {
            true => Verdict::Answered,
            false => Verdict::Refused(StatusCode::FORBIDDEN, NO_COOKIE),
        }
    }
}

/// 256 bits of chance.
fn drawn() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Takes as long wherever they differ.
fn is_same(left: &str, right: &str) -> bool {
    let differ = left.bytes().zip(right.bytes()).fold(0, |differ, (left, right)| differ | (left ^ right));
    left.len() == right.len() && differ == 0
}

/// In front of every page, asset and action.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let access = &shared.access;
    // Behind a link from another site, such as a page about an alarm, a browser keeps the cookie to itself: a
    // click here brings it.
    let asked = request.uri().path_and_query().map_or("/", |asked| asked.as_str()).trim_start_matches('/').to_owned();
    let mut response = match access.judge(request.method(), request.uri(), request.headers()) {
        Verdict::Answered => next.run(request).await,
        Verdict::Enters(path) => {
            let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", access.cookie(), access.session);
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, path)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Verdict::Refused(status, reason) => {
            let page = html! {
                (maud::DOCTYPE)
                html lang="en" {
                    head { meta charset="utf-8"; title { "Not let in" } }
                    body { main { h1 { "Not let in" } p { (reason) } @if reason == NO_COOKIE { p { a href={ "/" (asked) } { "Open this page" } } } } }
                }
            };
            (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
        }
    };
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    // No page elsewhere is told of this one. Under `no-referrer` a browser sends our own forms with `Origin: null`.
    set(header::REFERRER_POLICY, "same-origin");
    set(header::CACHE_CONTROL, "no-store");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: Method, path: &str, sent: &[(HeaderName, &str)]) -> Verdict {
        let access = Access { port: 4000, token: "letmein".into(), session: "known".into() };
        let headers = sent.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        access.judge(&method, &path.parse().unwrap(), &headers)
    }

    const HERE: (HeaderName, &str) = (header::HOST, "127.0.0.1:4000");
    const KNOWN: (HeaderName, &str) = (header::COOKIE, "theme=dark; serializer-console-4000=known");

    #[test]
    fn the_token_is_exchanged_for_a_cookie_and_leaves_the_address() {
        let enters = |path| judged(Method::GET, path, &[HERE]);
        assert_eq!(enters("/?token=letmein"), Verdict::Enters("/".into()));
        assert_eq!(enters("/order?token=letmein&key=a/1"), Verdict::Enters("/order?key=a/1".into()));
        assert_eq!(enters("//elsewhere.example/?token=letmein"), Verdict::Enters("/elsewhere.example/".into()));
        for refused in ["/", "/?token=", "/?token=letmeinn", "/?token=letmeix", "/?tokens=letmein"] {
            assert_eq!(enters(refused), Verdict::Refused(StatusCode::FORBIDDEN, NO_COOKIE), "{refused}");
        }
    }

    #[test]
    fn another_host_another_port_and_another_origin_are_refused() {
        assert_eq!(judged(Method::GET, "/", &[HERE, KNOWN]), Verdict::Answered);
        assert_eq!(judged(Method::GET, "/", &[(header::HOST, "localhost:4000"), KNOWN]), Verdict::Answered);
        for host in ["evil.example:4000", "127.0.0.1", "127.0.0.1:4001", "127.0.0.1:4000.evil.example", ""] {
            let judged = judged(Method::GET, "/?token=letmein", &[(header::HOST, host), KNOWN]);
            assert_eq!(judged, Verdict::Refused(StatusCode::MISDIRECTED_REQUEST, HOST), "{host}");
        }
        let post = |origin: &str| judged(Method::POST, "/", &[HERE, KNOWN, (header::ORIGIN, origin)]);
        assert_eq!(post("http://127.0.0.1:4000"), Verdict::Answered);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:4001", "http://localhost:4000", ""] {
            assert_eq!(post(origin), Verdict::Refused(StatusCode::FORBIDDEN, ORIGIN), "{origin}");
        }
        assert_eq!(judged(Method::POST, "/", &[HERE, KNOWN]), Verdict::Refused(StatusCode::FORBIDDEN, ORIGIN));
    }

    #[test]
    fn the_cookie_of_another_console_is_none_of_this_one() {
        for cookie in ["serializer-console-4001=known", "serializer-console-4000=knowm", "known"] {
            let judged = judged(Method::GET, "/", &[HERE, (header::COOKIE, cookie)]);
            assert_eq!(judged, Verdict::Refused(StatusCode::FORBIDDEN, NO_COOKIE), "{cookie}");
        }
    }
}
