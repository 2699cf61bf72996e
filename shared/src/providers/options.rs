//! What a source says about its provider besides the secrets.

/// Options of a source's provider. Each provider takes some of them, see
/// [`Provider::with`](super::Provider::with).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The URL that the provider calls, exactly as it was told: for those that
    /// sign it.
    pub url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::{NAMES, by_name, rule_of};

    #[test]
    fn a_url_is_taken_by_those_that_sign_it_and_by_no_other() {
        let options = Options { url: Some("https://example.com/".into()) };
        for name in NAMES {
            let (Some(provider), Some(rule)) = (by_name(name), rule_of(name)) else { continue };
            assert_eq!(provider.with(&options).is_ok(), rule.facts.signed.url, "{name}");
        }
    }
}
