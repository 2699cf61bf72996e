//! Ticks: runs of a job, as operations on the job's row.
//!
//! A job's row is the entity row `cron/<job>`, which is never purged. A tick is
//! named by the time at which it was due. It is run under an exclusive lease
//! that is granted only while the tick is not recorded, and it is recorded by
//! the write that ends that lease: so a tick whose run crashed is run again,
//! and one that was run never is. A job that says so has its ticks recorded by
//! the grant instead: a crash then costs the tick.
//!
//! Pure. Which tick is due is decided in `jobs/due.rs`; `jobs/ticker.rs` does it.

mod define;
mod job;
mod run;

pub use define::{DefineJob, RequestRun};
pub use job::{Ending, JobState, LAST_RESULT_BYTES, LONGEST_DEFINITION, LONGEST_NAME, TickResult, job_entity};
pub use run::{CompleteTick, Completed, GiveUpTick, GivenUp, Recorded, StartTick, Started, TakeOverTick};
