//! A source's provider, in builds with and without the code to verify webhooks.

use crate::providers::{self, Generic, Provider};

#[derive(Debug)]
pub(super) enum AnyProvider {
    BuiltIn(&'static dyn Provider),
    Configured(Box<dyn Provider>),
    /// Any provider, in a build that cannot verify webhooks. Such a build does not check the provider's
    /// fields.
    NotInThisBuild,
}

impl AnyProvider {
    pub(super) fn as_dyn(&self) -> Option<&dyn Provider> {
        match self {
            Self::BuiltIn(provider) => Some(*provider),
            Self::Configured(provider) => Some(&**provider),
            Self::NotInThisBuild => None,
        }
    }
}

/// The functions that find a provider. Tests replace them to imitate a build that cannot verify.
#[derive(Debug, Clone, Copy)]
pub(super) struct Registry {
    pub(super) by_name: fn(&str) -> Option<&'static dyn Provider>,
    pub(super) by_options: fn(Generic) -> AnyProvider,
}

impl Registry {
    pub(super) const THIS_BUILD: Self = Self {
        by_name: providers::by_name,
        by_options: |generic| match providers::VERIFIES {
            true => AnyProvider::Configured(Box::new(generic)),
            false => AnyProvider::NotInThisBuild,
        },
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{providers::NAMES, sources::Sources};

    /// The functions of a build without the feature `verify`, such as a worker's. They find no
    /// provider.
    const WITHOUT_VERIFY: Registry = Registry { by_name: |_| None, by_options: |_| AnyProvider::NotInThisBuild };

    #[test]
    fn build_without_verify_feature_parses_every_sample_source() {
        let events = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../events"));
        let mut used = Vec::new();
        for document in ["sources.toml", "queues/sources.toml"] {
            used.extend(providers_of_equal_sources(&std::fs::read_to_string(events.join(document)).unwrap()));
        }
        assert!(
            NAMES.iter().all(|name| used.iter().any(|one| one == name)),
            "a provider has no sample source: {used:?}"
        );
    }

    /// Asserts that a worker reads the document as ingest does. Returns the sources' providers.
    fn providers_of_equal_sources(text: &str) -> Vec<String> {
        let with = Sources::parse(text).unwrap();
        let without = Sources::parse_with(text, WITHOUT_VERIFY).unwrap();
        let read = |sources: &Sources| -> Vec<String> {
            let workers_view = |source: &crate::sources::Source| {
                let timeout = source.handler_timeout;
                let retry = source.retry;
                let failure = source.on_failure;
                format!("{} {} {timeout:?} {retry:?} {failure:?}", source.name, source.handler)
            };
            sources.iter().map(|source| workers_view(source)).collect()
        };
        assert_eq!(read(&with), read(&without));
        assert!(without.iter().all(|source| source.provider.as_dyn().is_none()));
        assert!(with.iter().all(|source| source.provider.as_dyn().is_some()));
        with.iter().map(|source| source.provider_name.clone()).collect()
    }

    #[test]
    fn build_without_verify_feature_refuses_unknown_provider() {
        let document = "[sources.shop]\nprovider = 'shopfiy'\nhandler = 'h'\n";
        for registry in [Registry::THIS_BUILD, WITHOUT_VERIFY] {
            let refused = Sources::parse_with(document, registry).unwrap_err().to_string();
            let hint = "source `shop`: there is no provider `shopfiy`; did you mean `shopify`? The providers are adobe-commerce, ";
            assert!(refused.starts_with(hint), "{refused}");
        }
    }
}
