//! Lists jobs from their rows, for people without a scheduler at hand. A
//! diagnosis, never a guard.

use std::time::Duration;

use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        format::attribute as a,
        keys::{entity_row, job_listing_range},
        tick::{JobState, RequestRun, job_entity},
    },
    time::Timestamp,
};

use super::schedule::Schedule;

const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: u32 = 100;

/// A job that a scheduler has or had.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The job's name.
    pub name: String,
    /// The plan in its definition; `None` if that cannot be parsed.
    pub plan: Option<Plan>,
    /// The job's row.
    pub state: JobState,
}

/// A job's definition.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The schedule.
    pub schedule: Schedule,
    /// The job is switched on.
    pub is_on: bool,
}

impl Plan {
    /// Parses a stored definition.
    pub fn parse(definition: &str) -> Option<Self> {
        let (switch, schedule) = definition.split_once(' ')?;
        Some(Self { schedule: schedule.parse().ok()?, is_on: switch == "on" })
    }
}

impl Listed {
    /// Returns when the job is due next; `None` if it is off.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let plan = self.plan.as_ref().filter(|plan| plan.is_on)?;
        plan.schedule.first_after(now)
    }
}

/// Lists all jobs, by name.
///
/// # Errors
///
/// The store could not be reached.
pub async fn listed(store: &Store) -> Result<Vec<Listed>, StoreError> {
    let mut jobs: Vec<Listed> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.query(&job_listing_range(after.as_deref(), PAGE), PATIENCE).await?;
        let names: Vec<String> = page.rows.iter().filter_map(|row| row.text(a::ITEM)).map(str::to_owned).collect();
        let entities: Vec<_> = names.iter().filter_map(|name| Some((name, job_entity(name).ok()?))).collect();
        let keys: Vec<_> = entities.iter().map(|(_, entity)| entity_row(entity)).collect();
        if keys.is_empty() {
            return Ok(jobs);
        }
        let rows = store.get_many(&keys, PATIENCE).await?;
        for (name, entity) in entities {
            // A job is listed before it is defined, so its row may not exist yet.
            let Some(row) = rows.iter().find(|row| row.text(a::ENTITY) == Some(entity.as_str())) else { continue };
            let state = JobState::parse(row)?;
            let plan = state.definition.as_deref().and_then(Plan::parse);
            jobs.push(Listed { name: name.clone(), plan, state });
        }
        match names.into_iter().next_back() {
            Some(last) if page.more => after = Some(last),
            _ => return Ok(jobs),
        }
    }
}

/// Requests a run of the job with the next minute's tick, even if it is off.
/// Returns `None` if no scheduler ever had such a job.
///
/// # Errors
///
/// The store could not be reached.
pub async fn request(store: &Store, name: &str) -> Result<Option<JobState>, StoreError> {
    let Ok(entity) = job_entity(name) else { return Ok(None) };
    store.run(&RequestRun { entity: &entity, now: store.env().now() }, PATIENCE).await
}
