//! A source's options for its provider, apart from secrets.

/// Options of a source's provider; [`Provider::with`](super::Provider::with)
/// takes those that apply to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The URL registered with the provider, byte for byte, for providers that
    /// sign it.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::{NAMES, by_name, rule_of};

    #[test]
    fn url_is_refused_unless_signed() {
        let options = Options { url: Some("https://example.com/".into()) };
        for name in NAMES {
            let (Some(provider), Some(rule)) = (by_name(name), rule_of(name)) else { continue };
            assert_eq!(provider.with(&options).is_ok(), rule.facts.signed.url, "{name}");
        }
    }
}
