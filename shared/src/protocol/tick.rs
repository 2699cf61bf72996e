//! Ticks, the runs of a job, as operations on the job's row.
//!
//! A job's row is the entity row `cron/<job>`, which is never purged. A tick is
//! identified by the time at which it was due. It runs under an exclusive lease that is
//! granted only while the tick is not recorded, and the write that ends the lease
//! records it: a tick whose run crashed runs again, and a completed one never does. A
//! job can have the grant record the tick instead, so that a tick never runs twice and a
//! crash loses it.

mod define;
mod job;
mod run;

pub use define::{DefineJob, RequestRun};
pub use job::{JobState, LAST_RESULT_BYTES, LONGEST_DEFINITION, LONGEST_NAME, TickOutcome, TickResult, job_entity};
pub use run::{CompleteTick, Completed, GiveUpTick, GivenUp, RecordPolicy, StartTick, Started, TakeOverTick};
