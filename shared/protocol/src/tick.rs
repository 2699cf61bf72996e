//! Ticks, the scheduled runs of a job, as operations on the job's row.
//!
//! A job's row is the entity row `cron/<job>`, which is never purged. A tick is identified by the
//! time at which it is due. It runs under an exclusive lease, which is granted only while the tick
//! is not recorded. The write that ends the lease records the tick. So a tick whose run crashed
//! runs again, and a completed tick never runs again.
//!
//! A job can choose that the grant of the lease already records the tick. Then a tick never runs
//! twice, and a crash loses it.

mod define;
mod job;
mod run;

pub use define::*;
pub use job::*;
pub use run::*;
