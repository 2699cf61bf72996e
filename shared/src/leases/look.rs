//! Looking at leases: who holds what, since when and until when.
//!
//! A diagnosis, never a guard: what is seen may have changed by the time that
//! it is read. Only the condition of a write says that a lease is held.

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

/// How keys and holders are shown. Either may name a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// The namespace, and the rest as a hash: the same for the same key, so
    /// that two outputs can be compared.
    #[default]
    Hashed,
    /// As it is.
    Raw,
}

/// One entity's lease, as its row showed it.
#[derive(Debug, Clone)]
pub struct LeaseView {
    state: EntityState,
    seen: Timestamp,
}

/// A page of leases.
#[derive(Debug, Clone)]
pub struct Listed {
    /// In no order.
    pub leases: Vec<LeaseView>,
    /// The keys of rows that cannot be read, and why.
    pub unreadable: Vec<(String, CorruptRow)>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Key>,
}

impl Show {
    /// The key, shown so.
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
    /// Of what.
    pub fn key(&self, show: Show) -> String {
        show.key(self.state.entity.as_str())
    }

    /// Whether somebody held it, and it had not run out.
    pub fn is_held(&self) -> bool {
        self.held().is_some_and(|held| held.runs(self.seen))
    }

    /// The lease, one that has run out and was not released included.
    fn held(&self) -> Option<&Held> {
        self.state.held.as_ref()
    }

    /// Which lease it is.
    pub fn id(&self) -> Option<LeaseId> {
        self.held().map(|held| LeaseId { holder: held.holder.clone(), entity: self.state.entity.clone() })
    }

    /// Who has it, or who ended it by force.
    pub fn by(&self, show: Show) -> Option<String> {
        let by = self.state.holder_info.as_ref()?.as_str();
        Some(if show == Show::Raw { by.to_owned() } else { format!("#{}", hashed(by)) })
    }

    /// What for.
    pub fn kind(&self) -> Option<LeaseKind> {
        self.held().map(|held| held.kind)
    }

    /// Since when, by its holder's clock.
    pub fn since(&self) -> Option<Timestamp> {
        self.held().and_then(|held| held.holder.drawn_at())
    }

    /// Until when, unless it is renewed, by its holder's clock.
    pub fn until(&self) -> Option<Timestamp> {
        self.held().map(|held| held.expires_at)
    }

    /// The newest fencing token.
    pub fn token(&self) -> FencingToken {
        self.state.token
    }

    /// How many deliveries wait in the entity's inbox.
    pub fn waiting(&self) -> u64 {
        self.state.waiting()
    }
}

impl Leases {
    /// The lease of `key`; `None`: there has been none for long.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    #[doc(hidden)]
    pub async fn look(&self, key: &EntityKey) -> Result<Option<LeaseView>, LeaseError> {
        let state = self.store.entity(key, PATIENCE).await.map_err(LeaseError::before)?;
        Ok(state.map(|state| self.view(state)))
    }

    /// The lease of that id, if it is still held; `None`: it has ended, or its
    /// key's lease is another's now.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    #[doc(hidden)]
    pub async fn look_by_id(&self, id: &LeaseId) -> Result<Option<LeaseView>, LeaseError> {
        let seen = self.look(id.entity()).await?;
        Ok(seen.filter(|view| view.id().as_ref() == Some(id)))
    }

    /// A page of entities' leases, those that are free included, from `from`
    /// on; reads at most `limit` rows. Eventually consistent. A row that cannot be
    /// read hides no other.
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
        LeaseView { state, seen: self.store.surroundings().now() }
    }

    /// Takes the lease that `seen` shows from its holder: an operator's last
    /// resort. Whatever the holder writes from then on is refused, under its older
    /// token. `by` and `why` stay on the row until the next grant, as far as 60
    /// bytes go. `None`: it is not that lease any more; nothing was changed.
    ///
    /// # Errors
    ///
    /// The store could not be reached: it may have landed.
    #[doc(hidden)]
    pub async fn force_release(&self, seen: &LeaseView, by: &str, why: &str) -> Result<Option<LeaseView>, LeaseError> {
        let at = self.store.surroundings().now();
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
