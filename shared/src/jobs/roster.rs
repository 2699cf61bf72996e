//! Lists the jobs from their rows in the store, and requests runs.
//!
//! The command-line tool uses this module, since it does not have the jobs' code.

use std::{fmt, time::Duration};

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

#[derive(Debug, Clone)]
pub struct Listed {
    pub name: String,
    /// The job's schedule and switch. `None` if the row has no definition or the definition cannot
    /// be parsed.
    pub plan: Option<JobPlan>,
    pub state: JobState,
}

#[derive(Debug, Clone)]
pub struct JobPlan {
    pub schedule: Schedule,
    pub is_on: bool,
}

impl JobPlan {
    pub fn parse(definition: &str) -> Option<Self> {
        let (switch, schedule) = definition.split_once(' ')?;
        let is_on = match switch {
            "on" => true,
            "off" => false,
            _ => return None,
        };
        Some(Self { schedule: schedule.parse().ok()?, is_on })
    }
}

/// Formats the definition that the job's row stores.
impl fmt::Display for JobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_on { "on" } else { "off" }, self.schedule)
    }
}

impl Listed {
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let plan = self.plan.as_ref().filter(|plan| plan.is_on)?;
        plan.schedule.first_after(now)
    }
}

pub async fn listed(store: &Store) -> Result<Vec<Listed>, StoreError> {
    let mut jobs: Vec<Listed> = Vec::new();
    let mut pages = store.pages(job_listing_range(PAGE), PATIENCE);
    while let Some(listing) = pages.next().await? {
        let names = listing.iter().filter_map(|row| row.text(a::ITEM));
        let entities: Vec<_> = names.filter_map(|name| Some((name, job_entity(name).ok()?))).collect();
        let keys: Vec<_> = entities.iter().map(|(_, entity)| entity_row(entity)).collect();
        let rows = store.get_many(&keys, PATIENCE).await?;
        for (name, entity) in entities {
            // A job is listed before it is defined, so its row may not exist yet.
            let Some(row) = rows.iter().find(|row| row.text(a::ENTITY) == Some(entity.as_str())) else { continue };
            let state = JobState::parse(row)?;
            let plan = state.definition.as_deref().and_then(JobPlan::parse);
            jobs.push(Listed { name: name.to_owned(), plan, state });
        }
    }
    Ok(jobs)
}

/// Requests a run of the job within the next minute, even if the job is off.
///
/// Returns `None` if no scheduler has ever had a job of this name.
pub async fn request(store: &Store, name: &str) -> Result<Option<JobState>, StoreError> {
    let Ok(entity) = job_entity(name) else { return Ok(None) };
    store.run(&RequestRun { entity: &entity, now: store.env().now() }, PATIENCE).await
}
