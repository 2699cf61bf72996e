//! A job in words, as lists of jobs show it.

use webhook_serializer::{jobs::roster::Listed, protocol::tick::Ending, time::Timestamp};

use crate::output::duration;

/// When it is due, as its definition says it.
pub fn schedule(job: &Listed) -> String {
    match &job.plan {
        Some(plan) => plan.schedule.to_string(),
        None => job.state.definition.clone().unwrap_or_default(),
    }
}

/// To the second.
pub fn time(time: Timestamp) -> String {
    time.to_string().replace(".000Z", "Z")
}

/// The tick that the result is of; a job that has none yet has run no tick.
pub fn last(job: &Listed) -> String {
    match (&job.state.last_result, job.state.last_tick) {
        (Some(_), Some(tick)) => time(tick),
        _ => String::new(),
    }
}

/// How its last run ended.
pub fn result(job: &Listed) -> String {
    let Some(result) = &job.state.last_result else { return String::new() };
    match result.ending {
        // Recorded with its start, and under way.
        Ending::Crashed if is_under_way(job) && job.state.last_tick == job.state.tick => String::new(),
        Ending::Crashed => "crashed".to_owned(),
        ending => format!("{ending} {} {}", duration(result.took), result.error).trim_end().to_owned(),
    }
}

/// When it is due next, or why that is not known.
pub fn next(job: &Listed, now: Timestamp) -> String {
    if job.state.run_requested.is_some() {
        return "asked for".to_owned();
    }
    job.next(now).map_or_else(|| "off".to_owned(), time)
}

fn is_under_way(job: &Listed) -> bool {
    job.state.entity.held.is_some()
}

/// Who has it under way.
pub fn holder(job: &Listed, now: Timestamp) -> String {
    let Some(held) = &job.state.entity.held else { return String::new() };
    let info = job.state.entity.holder_info.as_ref().map_or("", |info| info.as_str());
    match held.expires_at > now {
        true => format!("{info}, {} left", duration(held.expires_at.since(now))),
        false => format!("{info}, gone for {}", duration(now.since(held.expires_at))),
    }
}
