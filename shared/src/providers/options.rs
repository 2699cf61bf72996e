//! What a source says about its provider besides the secrets.

use std::num::NonZeroU32;

use super::{Provider, signature::Tolerance};

/// Options of a source's provider. Each provider takes some of them, see
/// [`Provider::with`](super::Provider::with).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The URL that the provider calls, exactly as it was told: for those that
    /// sign it.
    pub url: Option<String>,
    /// How many seconds a signed time may be from now: for those that sign one.
    pub tolerance: Option<NonZeroU32>,
}

impl Options {
    /// Whether only options of these names are given.
    ///
    /// # Errors
    ///
    /// Another one is: it would have no effect.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), String> {
        let given = [("url", self.url.is_some()), ("tolerance", self.tolerance.is_some())];
        match given.iter().find(|(name, is_given)| *is_given && !names.contains(name)) {
            Some(("url", _)) => Err("`url` is for providers that sign the URL they call; leave it out".into()),
            Some((name, _)) => Err(format!("`{name}` is for providers that sign a time; leave it out")),
            None => Ok(()),
        }
    }

    /// What `with` makes of the tolerance, if one is given.
    ///
    /// # Errors
    ///
    /// Another option is given.
    pub(super) fn tolerating<P: Provider + 'static>(
        &self,
        with: impl FnOnce(Tolerance) -> P,
    ) -> Result<Option<Box<dyn Provider>>, String> {
        self.only(&["tolerance"])?;
        let tolerance = self.tolerance.map(Tolerance::of_seconds);
        Ok(tolerance.map(|tolerance| -> Box<dyn Provider> { Box::new(with(tolerance)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::{NAMES, by_name, rule_of};

    #[test]
    fn an_option_without_an_effect_is_refused() {
        let url = Options { url: Some("https://example.com/".into()), ..Options::default() };
        let tolerance = Options { tolerance: NonZeroU32::new(10), ..Options::default() };
        let takes = |options: &Options| -> Vec<&str> {
            let is_taken = |name: &&str| by_name(name).is_some_and(|provider| provider.with(options).is_ok());
            NAMES.into_iter().filter(is_taken).collect()
        };
        assert_eq!(takes(&url), ["square"]);
        let signs_time = |name: &&str| rule_of(name).is_some_and(|rule| rule.facts.signed.time);
        assert_eq!(takes(&tolerance), NAMES.into_iter().filter(signs_time).collect::<Vec<_>>());
        assert_eq!(tolerance.only(&[]), Err("`tolerance` is for providers that sign a time; leave it out".into()));
    }
}
