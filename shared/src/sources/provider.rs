//! The rules by which a source's webhooks are verified, where this build has
//! them.

use crate::providers::Provider;

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
