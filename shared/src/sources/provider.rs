//! The rules by which a source's webhooks are verified, where this build has
//! them.

use crate::providers::{self, Generic, Provider};

/// How a source's provider is known.
#[derive(Debug)]
pub(super) enum AnyProvider {
    /// By its name.
    BuiltIn(&'static dyn Provider),
    /// By its options.
    Configured(Box<dyn Provider>),
    /// This build verifies nothing: what the sender's own fields say is checked
    /// by one that does.
    Elsewhere,
}

impl AnyProvider {
    /// Its rules; `None`: another build has them.
    pub(super) fn as_dyn(&self) -> Option<&dyn Provider> {
        match self {
            Self::BuiltIn(provider) => Some(*provider),
            Self::Configured(provider) => Some(&**provider),
            Self::Elsewhere => None,
        }
    }
}

/// Which rules are at hand when a document is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Those of a provider that is built in; `None`: they are elsewhere.
    pub(super) by_name: fn(&str) -> Option<&'static dyn Provider>,
    /// Those that options describe.
    pub(super) by_options: fn(Generic) -> AnyProvider,
}

impl Rules {
    /// Those of this build.
    pub(super) const HERE: Self = Self {
        by_name: providers::by_name,
        by_options: |generic| match providers::VERIFIES {
            true => AnyProvider::Configured(Box::new(generic)),
            false => AnyProvider::Elsewhere,
        },
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{providers::NAMES, sources::Sources};

    /// What a build without the feature `verify` knows, such as a worker's.
    const ELSEWHERE: Rules = Rules { by_name: |_| None, by_options: |_| AnyProvider::Elsewhere };

    #[test]
    fn build_without_verify_parses_every_sample_source() {
        let text = &std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../events/sources.toml")).unwrap();
        let (here, elsewhere) = (Sources::parse(text).unwrap(), Sources::parse_by(text, ELSEWHERE).unwrap());
        let read = |sources: &Sources| -> Vec<String> {
            let of_a_worker = |source: &crate::sources::Source| {
                let (timeout, retry, failure) = (source.handler_timeout, source.retry, source.on_failure);
                format!("{} {} {timeout:?} {retry:?} {failure:?}", source.name, source.handler)
            };
            sources.iter().map(|source| of_a_worker(source)).collect()
        };
        assert_eq!(read(&here), read(&elsewhere));
        let used: Vec<&str> = here.iter().map(|source| source.provider_name.as_str()).collect();
        assert!(NAMES.iter().all(|name| used.contains(name)), "each provider is tried: {used:?}");
        assert!(elsewhere.iter().all(|source| source.provider.as_dyn().is_none()));
        assert!(here.iter().all(|source| source.provider.as_dyn().is_some()));
    }

    #[test]
    fn build_without_verify_refuses_unknown_provider() {
        let document = "[sources.shop]\nprovider = 'shopfiy'\nhandler = 'h'\n";
        for rules in [Rules::HERE, ELSEWHERE] {
            let refused = Sources::parse_by(document, rules).unwrap_err().to_string();
            assert!(refused.starts_with("source `shop`: there is no such provider; there are "), "{refused}");
        }
    }

    #[test]
    fn every_provider_name_has_an_implementation() {
        assert!(NAMES.iter().all(|name| *name == "generic" || (Rules::HERE.by_name)(name).is_some()));
    }
}
