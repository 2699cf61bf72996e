//! Formats a job's schedule, last result, next tick and holder.

use webhook_serializer::{jobs::roster::Listed, protocol::tick::TickOutcome, time::Timestamp};

use crate::output::duration;

pub fn schedule(job: &Listed) -> String {
    match &job.plan {
        Some(plan) => plan.schedule.to_string(),
        None => job.state.definition.clone().unwrap_or_default(),
    }
}

pub fn time(time: Timestamp) -> String {
    time.to_string().replace(".000Z", "Z")
}

pub fn last(job: &Listed) -> String {
    match (&job.state.last_result, job.state.last_tick) {
        (Some(_), Some(tick)) => time(tick),
        _ => String::new(),
    }
}

pub fn result(job: &Listed) -> String {
    let Some(result) = &job.state.last_result else { return String::new() };
    match result.ending {
        // Until a tick ends, its start is recorded as a crash.
        TickOutcome::Crashed if is_under_way(job) && job.state.last_tick == job.state.tick => String::new(),
        TickOutcome::Crashed => "crashed".to_owned(),
        ending => {
            let end = if result.may_be_cut() { "…" } else { "" };
            format!("{ending} {} {}{end}", duration(result.took), result.error).trim_end().to_owned()
        }
    }
}

/// Returns the time of the next tick. Returns `requested` if an operator requested a run, and `off` if the job has no
/// next tick.
pub fn next(job: &Listed, now: Timestamp) -> String {
    if job.state.run_requested.is_some() {
        return "requested".to_owned();
    }
    job.next(now).map_or_else(|| "off".to_owned(), time)
}

fn is_under_way(job: &Listed) -> bool {
    job.state.entity.held.is_some()
}

pub fn holder(job: &Listed, now: Timestamp) -> String {
    let Some(held) = &job.state.entity.held else { return String::new() };
    let info = job.state.entity.holder_info.as_ref().map_or("", |info| info.as_str());
    match held.expires_at > now {
        true => format!("{info}, {} left", duration(held.expires_at.since(now))),
        false => format!("{info}, expired {} ago", duration(now.since(held.expires_at))),
    }
}
