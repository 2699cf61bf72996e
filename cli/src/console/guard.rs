//! Controls access to the console. Listening on 127.0.0.1 keeps out neither other pages in the same browser nor other
//! users of the machine. The token in the printed URL, and the cookie that replaces the token, keep both out.

use std::{fmt::Write, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use maud::html;

use super::ConsoleState;

#[derive(Debug)]
pub(super) struct Access {
    port: u16,
    token: String,
    session: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestCheck {
    Allowed,
    /// The request's URL contains the token. The response sets the cookie and redirects to the URL without the token.
    Redirected(String),
    Refused(StatusCode, &'static str),
}

const NO_COOKIE: &str = "Open this console with the URL that its command printed, including the token. If you have just done so, continue here:";
const HOST: &str = "This console answers only under 127.0.0.1 and localhost.";
const ORIGIN: &str = "Nothing was done, because the request did not come from a page of this console. Open the \
                      console, and repeat the action there.";

/// The content security policy. A page loads nothing from other hosts, and text in a page can neither run scripts nor
/// change styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

impl Access {
    pub(super) fn new(port: u16) -> Result<Self, getrandom::Error> {
        Ok(Self { port, token: random()?, session: random()? })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// Returns the cookie's name. Browsers share cookies between ports, so the name contains the port.
    fn cookie(&self) -> String {
        format!("serializer-console-{}", self.port)
    }

    pub(super) fn decide(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> RequestCheck {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let host = text(header::HOST);
        let own = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !own.iter().any(|own| own == host) {
            return RequestCheck::Refused(StatusCode::MISDIRECTED_REQUEST, HOST);
        }
        let is_read = method == Method::GET || method == Method::HEAD;
        if !is_read && text(header::ORIGIN) != format!("http://{host}") {
            return RequestCheck::Refused(StatusCode::FORBIDDEN, ORIGIN);
        }
        let parameters = || uri.query().unwrap_or_default().split('&');
        let token = parameters().find_map(|pair| pair.strip_prefix("token="));
        if is_read && token.is_some_and(|token| is_same(token, &self.token)) {
            let others: Vec<&str> = parameters().filter(|pair| !pair.starts_with("token=")).collect();
            let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
            // A path with two leading slashes would name another host.
            return RequestCheck::Redirected(format!("/{}{query}", uri.path().trim_start_matches('/')));
        }
        let name = self.cookie();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        match values.any(|(cookie, value)| cookie == name && is_same(value, &self.session)) {
            true => RequestCheck::Allowed,
            false => RequestCheck::Refused(StatusCode::FORBIDDEN, NO_COOKIE),
        }
    }
}

fn random() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn is_same(left: &str, right: &str) -> bool {
    let differ = left.bytes().zip(right.bytes()).fold(0, |differ, (left, right)| differ | (left ^ right));
    left.len() == right.len() && differ == 0
}

pub(super) async fn guard(State(shared): State<Arc<ConsoleState>>, request: Request, next: Next) -> Response {
    let access = &shared.access;
    // A browser sends no cookie if it follows a link from another site, such as a runbook. It sends the
    // cookie after a click on the refusal page, so that page links to the requested path.
    let asked = request.uri().path_and_query().map_or("/", |asked| asked.as_str()).trim_start_matches('/').to_owned();
    let mut response = match access.decide(request.method(), request.uri(), request.headers()) {
        RequestCheck::Allowed => next.run(request).await,
        RequestCheck::Redirected(path) => {
            let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", access.cookie(), access.session);
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, path)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        RequestCheck::Refused(status, reason) => {
            let page = html! {
                (maud::DOCTYPE)
                html lang="en" {
                    head { meta charset="utf-8"; title { "Access denied" } }
                    body { main { h1 { "Access denied" } p { (reason) } @if reason == NO_COOKIE { p { a href={ "/" (asked) } { "Open this page" } } } } }
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
    // Under `no-referrer`, a browser would send our own forms with `Origin: null`.
    set(header::REFERRER_POLICY, "same-origin");
    set(header::CACHE_CONTROL, "no-store");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(method: Method, path: &str, sent: &[(HeaderName, &str)]) -> RequestCheck {
        let access = Access { port: 4000, token: "letmein".into(), session: "known".into() };
        let headers = sent.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        access.decide(&method, &path.parse().unwrap(), &headers)
    }

    const HERE: (HeaderName, &str) = (header::HOST, "127.0.0.1:4000");
    const KNOWN: (HeaderName, &str) = (header::COOKIE, "theme=dark; serializer-console-4000=known");

    #[test]
    fn console_token_is_exchanged_for_a_cookie() {
        let get = |path| decided(Method::GET, path, &[HERE]);
        assert_eq!(get("/?token=letmein"), RequestCheck::Redirected("/".into()));
        assert_eq!(get("/order?token=letmein&key=a/1"), RequestCheck::Redirected("/order?key=a/1".into()));
        assert_eq!(get("//elsewhere.example/?token=letmein"), RequestCheck::Redirected("/elsewhere.example/".into()));
        for refused in ["/", "/?token=", "/?token=letmeinn", "/?token=letmeix", "/?tokens=letmein"] {
            assert_eq!(get(refused), RequestCheck::Refused(StatusCode::FORBIDDEN, NO_COOKIE), "{refused}");
        }
    }

    #[test]
    fn foreign_host_port_or_origin_is_refused() {
        assert_eq!(decided(Method::GET, "/", &[HERE, KNOWN]), RequestCheck::Allowed);
        assert_eq!(decided(Method::GET, "/", &[(header::HOST, "localhost:4000"), KNOWN]), RequestCheck::Allowed);
        for host in ["evil.example:4000", "127.0.0.1", "127.0.0.1:4001", "127.0.0.1:4000.evil.example", ""] {
            let decided = decided(Method::GET, "/?token=letmein", &[(header::HOST, host), KNOWN]);
            assert_eq!(decided, RequestCheck::Refused(StatusCode::MISDIRECTED_REQUEST, HOST), "{host}");
        }
        let post = |origin: &str| decided(Method::POST, "/", &[HERE, KNOWN, (header::ORIGIN, origin)]);
        assert_eq!(post("http://127.0.0.1:4000"), RequestCheck::Allowed);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:4001", "http://localhost:4000", ""] {
            assert_eq!(post(origin), RequestCheck::Refused(StatusCode::FORBIDDEN, ORIGIN), "{origin}");
        }
        assert_eq!(decided(Method::POST, "/", &[HERE, KNOWN]), RequestCheck::Refused(StatusCode::FORBIDDEN, ORIGIN));
    }

    #[test]
    fn cookie_of_another_console_is_refused() {
        for cookie in ["serializer-console-4001=known", "serializer-console-4000=knowm", "known"] {
            let decided = decided(Method::GET, "/", &[HERE, (header::COOKIE, cookie)]);
            assert_eq!(decided, RequestCheck::Refused(StatusCode::FORBIDDEN, NO_COOKIE), "{cookie}");
        }
    }
}
