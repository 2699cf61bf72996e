//! Shows leases and their holders, for diagnosis.
//!
//! A shown lease may already have ended. Only the condition of a write proves who has a lease.

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

/// The form in which keys and holders are shown. Both may contain a customer's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyDisplay {
    /// Keys and holders are shown as hashes. A key keeps its first segment, as in `shopify/#…`. Equal
    /// keys have equal hashes, so that outputs can be compared.
    #[default]
    Hashed,
    Raw,
}

#[derive(Debug, Clone)]
pub struct LeaseView {
    state: EntityState,
    seen: Timestamp,
}

#[derive(Debug, Clone)]
pub struct ListedLeases {
    pub leases: Vec<LeaseView>,
    pub unreadable: Vec<(String, CorruptRow)>,
    pub next: Option<Key>,
}

/// The text between the first segment and the hash of a hashed key.
const HASH_MARK: &str = "/#";

impl KeyDisplay {
    /// Returns whether `text` can be a hashed key.
    pub fn may_be_hashed(text: &str) -> bool {
        text.contains(HASH_MARK)
    }

    pub fn key(self, key: &str) -> String {
        match self {
            KeyDisplay::Raw => key.to_owned(),
            KeyDisplay::Hashed => format!("{}{HASH_MARK}{}", key.split('/').next().unwrap_or_default(), hashed(key)),
        }
    }
}

fn hashed(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(text)[..9])
}

impl LeaseView {
    pub fn key(&self, show: KeyDisplay) -> String {
        show.key(self.state.entity.as_str())
    }

    pub fn is_held(&self) -> bool {
        self.held().is_some_and(|held| held.runs(self.seen))
    }

    fn held(&self) -> Option<&Held> {
        self.state.held.as_ref()
    }

    pub fn id(&self) -> Option<LeaseId> {
        self.held().map(|held| LeaseId { holder: held.holder.clone(), entity: self.state.entity.clone() })
    }

    /// Returns the description of the holder, or of the operator who ended the lease by force.
    pub fn by(&self, show: KeyDisplay) -> Option<String> {
        let by = self.state.holder_info.as_ref()?.as_str();
        Some(if show == KeyDisplay::Raw { by.to_owned() } else { format!("#{}", hashed(by)) })
    }

    pub fn kind(&self) -> Option<LeaseKind> {
        self.held().map(|held| held.kind)
    }

    /// Returns the time, by the holder's own clock, of the request that got the holder the lease. If the
    /// holder had to wait and took the lease over, this time may be before the wait. `None` if the
    /// entity is free.
    pub fn since(&self) -> Option<Timestamp> {
        self.held().and_then(|held| held.holder.drawn_at())
    }

    /// Returns the time at which the lease expires unless it is renewed, by the store's time.
    /// `None` if the entity is free.
    pub fn until(&self) -> Option<Timestamp> {
        self.held().map(|held| held.expires_at)
    }

    pub fn token(&self) -> FencingToken {
        self.state.token
    }

    pub fn waiting(&self) -> u64 {
        self.state.waiting()
    }
}

impl Leases {
    #[doc(hidden)]
    pub async fn look(&self, key: &EntityKey) -> Result<Option<LeaseView>, LeaseError> {
        let state = self.store.entity(key, PATIENCE).await.map_err(LeaseError::before)?;
        Ok(state.map(|state| self.view(state)))
    }

    #[doc(hidden)]
    pub async fn look_by_id(&self, id: &LeaseId) -> Result<Option<LeaseView>, LeaseError> {
        let seen = self.look(id.entity()).await?;
        Ok(seen.filter(|view| view.id().as_ref() == Some(id)))
    }

    /// Reads the leases of at most `limit` entities, starting at `from`, with eventual consistency.
    /// Includes entities whose lease is free.
    #[doc(hidden)]
    pub async fn list(&self, from: Option<Key>, limit: u32) -> Result<ListedLeases, LeaseError> {
        let segment = Segment { number: 0, of: 1, after: from, limit };
        let scanned = self.store.scan(&TableName::Entities, &segment, PATIENCE).await.map_err(LeaseError::before)?;
        let mut leases = Vec::new();
        let mut unreadable = Vec::new();
        for row in &scanned.rows {
            match EntityState::parse(row) {
                Ok(state) => leases.push(self.view(state)),
                Err(error) => unreadable.push((row.text(a::ENTITY).unwrap_or_default().to_owned(), error)),
            }
        }
        Ok(ListedLeases { leases, unreadable, next: scanned.after })
    }

    fn view(&self, state: EntityState) -> LeaseView {
        LeaseView { state, seen: self.store.env().now() }
    }

    /// Ends the lease in `seen` by force, as an operator's last resort. Returns `None` and changes
    /// nothing if that lease has already ended.
    ///
    /// All later writes of its holder are refused, because their token is older. The time, `by` and
    /// `why` stay in the row until the next grant, cut to 60 bytes together. After an error the
    /// write may have taken effect.
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
