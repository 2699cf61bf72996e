//! Computes what a flood of unsigned requests costs, for `docs/deploying.md`.

use serde_json::json;

use crate::{
    bill::invocation_dollars,
    scaling::limit,
    sheet::{FiguresReport, Sheet, SheetCell},
};

const RATES: [f64; 3] = [200.0, 1_000.0, 10_000.0];
const DAY: f64 = 86_400.0;
/// The time in which ingest refuses an unsigned request.
const REFUSED_MS: f64 = 3.0;
const HTTP_API_REQUEST: f64 = 1e-6;
const CLOUDFRONT_REQUEST: f64 = 1e-6;
const WAF_REQUEST: f64 = 0.60e-6;
/// The template's throttle of the HTTP API.
const HTTP_API_RATE: f64 = 200.0;
const RESERVED: f64 = 20.0;
const ADDRESSES: f64 = 1_000.0;
/// The requests of one address in five minutes that the page's rule lets in.
const LET_IN_BY_WAF: f64 = 100.0;

/// Returns the table for `docs/deploying.md`.
pub fn report() -> FiguresReport {
    let refused = invocation_dollars(REFUSED_MS);
    let by_waf = (ADDRESSES * LET_IN_BY_WAF / 300.0).floor();
    let mut sheet = Sheet::new(&[
        ("front_door", "dollars a day, at requests a second"),
        ("dollars_at_200", ">200"),
        ("dollars_at_1000", ">1,000"),
        ("dollars_at_10000", ">10,000"),
        ("let_in_a_second", ">let in"),
    ]);
    // For each request, and for each that is let in.
    for (door, each, let_in, limit) in [
        ("Function URL, 1,000 functions at once", 0.0, 0.0, limit::ACCOUNT * limit::REQUESTS_EACH),
        ("Function URL, IngestConcurrency 20", 0.0, 0.0, RESERVED * limit::REQUESTS_EACH),
        ("HTTP API", HTTP_API_REQUEST, 0.0, HTTP_API_RATE),
        ("CloudFront with WAF, a Function URL behind", WAF_REQUEST, CLOUDFRONT_REQUEST, by_waf),
    ] {
        let cost = |rate: f64| {
            let dollars = DAY * (rate * each + rate.min(limit) * (let_in + refused));
            SheetCell::number(dollars, format!("{dollars:.2}"))
        };
        let [first, second, third] = RATES.map(cost);
        sheet.row([SheetCell::text(door), first, second, third, SheetCell::number(limit, format!("{limit} /s"))]);
    }
    FiguresReport { text: sheet.to_string().trim_end().to_owned(), json: json!({ "dollars_a_day": sheet.json() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: what a flood costs.
    #[test]
    fn deploying_page_contains_the_current_report() {
        let page = include_str!("../../docs/deploying.md");
        assert!(page.contains(&report().text), "put this into docs/deploying.md:\n{}", report().text);
        let million =
            format!("a million requests cost ${:.2} if each is refused", invocation_dollars(REFUSED_MS) * 1e6);
        assert!(page.contains(&million), "docs/deploying.md: {million}");
    }
}
