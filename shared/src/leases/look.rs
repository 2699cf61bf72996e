//! Shows leases: holders, and when their leases began and end.
//!
//! This is a diagnosis and never a guard: what it shows may already have changed.
//! Only the condition of a write proves that a lease is held.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use super::{LeaseError, Leases, PATIENCE};
use crate::{
    engine::store::StoreError,
    protocol::{
        entity::{EntityKey, FencingToken},
        format::{CorruptRow, attribute as a},
        lease::{ForceRelease, Forced, LeaseId},
        state::{EntityState, Held, HolderInfo, LeaseKind},
        table::{Key, Segment, TableName},
    },
    telemetry::Event,
    time::Timestamp,
};

/// The form in which keys and holders are shown. Either may name a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// The namespace, and a hash of the rest. Equal keys have equal hashes, so
    /// outputs can be compared.
    #[default]
    Hashed,
    /// Plain text.
    Raw,
}

/// A snapshot of one entity's lease.
#[derive(Debug, Clone)]
pub struct LeaseView {
    state: EntityState,
    seen: Timestamp,
}

/// A page of leases.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The leases, in no particular order.
    pub leases: Vec<LeaseView>,
    /// The keys of rows that cannot be parsed, and the reasons.
    pub unreadable: Vec<(String, CorruptRow)>,
    /// The start of the next page; `None` after the last one.
    pub next: Option<Key>,
}

impl Show {
    /// Returns `key` in this form.
    pub fn key(self, key: &str) -> String {
        match self {
            Show::Raw => key.to_owned(),
            Show::Hashed => format!("{}/#{}", key.split('/').next().unwrap_or_default(), hashed(key)),
        }
    }
}

fn hashed(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(text)[..9])
}

impl LeaseView {
    /// Returns the entity's key.
    pub fn key(&self, show: Show) -> String {
        show.key(self.state.entity.as_str())
    }

    /// Returns whether the lease was held and had not expired.
    pub fn is_held(&self) -> bool {
        self.held().is_some_and(|held| held.runs(self.seen))
    }

    /// Returns the lease, also an expired one that was not released.
    fn held(&self) -> Option<&Held> {
        self.state.held.as_ref()
    }

    /// Returns the lease's id.
    pub fn id(&self) -> Option<LeaseId> {
        self.held().map(|held| LeaseId { holder: held.holder.clone(), entity: self.state.entity.clone() })
    }

    /// Returns the description of the holder, or of the operator who ended the lease.
    pub fn by(&self, show: Show) -> Option<String> {
        let by = self.state.holder_info.as_ref()?.as_str();
        Some(if show == Show::Raw { by.to_owned() } else { format!("#{}", hashed(by)) })
    }

    /// Returns the kind of lease.
    pub fn kind(&self) -> Option<LeaseKind> {
        self.held().map(|held| held.kind)
    }

    /// Returns when the lease was granted, by its holder's clock.
    pub fn since(&self) -> Option<Timestamp> {
        self.held().and_then(|held| held.holder.drawn_at())
    }

    /// Returns when the lease expires unless it is renewed, by its holder's clock.
    pub fn until(&self) -> Option<Timestamp> {
        self.held().map(|held| held.expires_at)
    }

    /// Returns the newest fencing token.
    pub fn token(&self) -> FencingToken {
        self.state.token
    }

    /// Returns the number of deliveries waiting in the entity's inbox.
    pub fn waiting(&self) -> u64 {
        self.state.waiting()
    }
}

impl Leases {
    /// Reads the lease of `key`; `None` if the entity has no row.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    #[doc(hidden)]
    pub async fn look(&self, key: &EntityKey) -> Result<Option<LeaseView>, LeaseError> {
        let state = self.store.entity(key, PATIENCE).await.map_err(LeaseError::before)?;
        Ok(state.map(|state| self.view(state)))
    }

    /// Reads the lease with that id; `None` if it has ended or the entity has
    /// another lease by now.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    #[doc(hidden)]
    pub async fn look_by_id(&self, id: &LeaseId) -> Result<Option<LeaseView>, LeaseError> {
        let seen = self.look(id.entity()).await?;
        Ok(seen.filter(|view| view.id().as_ref() == Some(id)))
    }

    /// Reads a page of at most `limit` entities' leases, including free ones,
    /// starting at `from`. Eventually consistent. A row that cannot be parsed
    /// hides no other.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    #[doc(hidden)]
    pub async fn list(&self, from: Option<Key>, limit: u32) -> Result<Listed, LeaseError> {
        let segment = Segment { number: 0, of: 1, after: from, limit };
        let scanned = self.store.scan(&TableName::Entities, &segment, PATIENCE).await.map_err(LeaseError::before)?;
        let (mut leases, mut unreadable) = (Vec::new(), Vec::new());
        for row in &scanned.rows {
            match EntityState::parse(row) {
                Ok(state) => leases.push(self.view(state)),
                Err(error) => unreadable.push((row.text(a::ENTITY).unwrap_or_default().to_owned(), error)),
            }
        }
        Ok(Listed { leases, unreadable, next: scanned.after })
    }

    fn view(&self, state: EntityState) -> LeaseView {
        LeaseView { state, seen: self.store.env().now() }
    }

    /// Ends the lease that `seen` shows, by force: an operator's last resort. All
    /// later writes of its holder are refused because of their older token. `by`
    /// and `why` stay on the row until the next grant, cut to 60 bytes. Returns
    /// `None`, without a change, if that lease has ended already.
    ///
    /// # Errors
    ///
    /// The store could not be reached; the write may have landed.
    #[doc(hidden)]
    pub async fn force_release(&self, seen: &LeaseView, by: &str, why: &str) -> Result<Option<LeaseView>, LeaseError> {
        let at = self.store.env().now();
        let record = HolderInfo::new(&format!("{} {by}: {why}", &at.to_string()[..16]));
        let force = ForceRelease { seen: &seen.state, record };
        let forced = self.store.run(&force, PATIENCE).await.map_err(LeaseError::after)?;
        let Forced::Released(state) = forced else { return Ok(None) };
        if !state.is_empty()
            && let Some(waker) = &self.waker
            && waker.wake(&state.entity, std::time::Duration::ZERO, PATIENCE).await.is_err()
        {
            self.observer.observe(&Event::WakeUpFailed { entity: &state.entity });
        }
        Ok(Some(self.view(state)))
    }
}

impl From<CorruptRow> for LeaseError {
    fn from(error: CorruptRow) -> Self {
        Self::before(StoreError::Corrupt(error))
    }
}
