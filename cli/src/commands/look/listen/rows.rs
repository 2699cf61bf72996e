//! Polls the orders' rows of a local run, and derives events from their changes.

use std::{collections::HashMap, time::Duration};

use anyhow::Result;
use serializer::{
    output,
    view::activity::{ACCEPTED, ActivityEvent, BLOCKED, FAILED, changes},
};
use webhook_serializer::{
    operator::Operator,
    protocol::{delivery::Delivery, entity::EntityKey, entity::Sequence, state::EntityState, table::TableName},
    time::{Env, Nonce, Timestamp},
};

pub const EVERY: Duration = Duration::from_millis(500);

/// The number of polls after which a claimed sequence without a delivery counts as abandoned.
const LOOKS: u32 = 40;

const AT_ONCE: usize = 25;

pub struct Rows {
    operator: Operator,
    env: Env,
    begin: Timestamp,
    known: Option<HashMap<EntityKey, EntityState>>,
    claimed: Vec<(ActivityEvent, u32)>,
}

impl Rows {
    pub fn of(operator: Operator, env: Env, begin: Timestamp) -> Self {
        Self { operator, env, begin, known: None, claimed: Vec::new() }
    }

    /// Returns the events since the last poll. The first poll returns the events since the time `begin`.
    pub async fn look(&mut self) -> Result<Vec<ActivityEvent>> {
        let now = self.env.now();
        let mut rows = HashMap::new();
        let mut told = Vec::new();
        let mut pass = self.operator.pass(TableName::Entities);
        while let Some(page) = pass.page().await? {
            for row in &page {
                let state = match EntityState::parse(row) {
                    // Jobs have rows of the same form, without deliveries.
                    Ok(state) if state.entity.is_kept_forever() => continue,
                    Ok(state) => state,
                    Err(error) => {
                        output::complain(format_args!("a row cannot be read: {error}"));
                        continue;
                    }
                };
                let before = self.known.as_ref().and_then(|known| known.get(&state.entity));
                let changes = changes(before, &state, now);
                // Failures and blocks from before the first poll are not reported. No delivery is newer than
                // the newest claim.
                let is_first = self.known.is_none();
                let claimed = state.last_claim.as_ref().and_then(Nonce::drawn_at);
                let is_news = |one: &ActivityEvent| match one.what.text.as_str() {
                    FAILED | BLOCKED => !is_first,
                    ACCEPTED => !is_first || claimed.is_none_or(|claimed| claimed >= self.begin),
                    _ => one.at.is_some_and(|at| at >= self.begin),
                };
                told.extend(changes.into_iter().filter(is_news));
                rows.insert(state.entity.clone(), state);
            }
        }
        self.known = Some(rows);
        let claimed = std::mem::take(&mut self.claimed);
        let told: Vec<(ActivityEvent, u32)> = claimed.into_iter().chain(told.into_iter().map(|one| (one, 0))).collect();
        let deliveries = self.deliveries(&told).await?;
        let claimed = &mut self.claimed;
        let about = |(one, looks): (ActivityEvent, u32)| match one.place().and_then(|place| deliveries.get(&place)) {
            Some(delivery) => Some(one.about(delivery)),
            // A delivery is accepted once it is written.
            None if one.what.text == ACCEPTED => {
                claimed.extend(Some((one, looks + 1)).filter(|(_, looks)| *looks < LOOKS));
                None
            }
            None => Some(one),
        };
        let mut told: Vec<ActivityEvent> = told.into_iter().filter_map(about).collect();
        told.retain(|one| one.at.is_some_and(|at| at >= self.begin));
        told.sort_by_key(|one| one.at);
        Ok(told)
    }

    async fn deliveries(&self, told: &[(ActivityEvent, u32)]) -> Result<HashMap<(EntityKey, Sequence), Delivery>> {
        let mut places: Vec<_> = told.iter().filter_map(|(one, _)| one.place()).collect();
        places.sort();
        places.dedup();
        let mut deliveries = HashMap::new();
        for some in places.chunks(AT_ONCE) {
            for delivery in self.operator.deliveries(some).await? {
                deliveries.insert((delivery.entity().clone(), delivery.sequence()), delivery);
            }
        }
        Ok(deliveries)
    }
}
