//! Checks the sources document, the jobs' ticks and the stored rows.

use std::time::Duration;

use anyhow::Error;
use serializer::{
    output::{duration, this_command},
    view::{order_status::Kind, overview::Overview, summary::summary},
};
use webhook_serializer::{
    aws::stored::Refused,
    functions::scheduler::{ALERTS, SWEEP},
    jobs::roster::{self, Listed},
    protocol::{entity::SourceName, format::FORMAT, tick::TickOutcome},
    sources::{Intake, Sources},
    time::Timestamp,
};

use super::finding::CheckFinding;
use crate::commands::{setup::source::whereabouts::Unnamed, survey::Survey, target::Deployment};

/// A job counts as late if its due time has passed by more than this.
const LATE: Duration = Duration::from_secs(300);

pub fn sources(sources: &Result<Sources, Error>) -> CheckFinding {
    const CHECK: &str = "sources";
    match sources {
        Ok(sources) => {
            let count = sources.iter().count();
            CheckFinding::ok(CHECK, format!("the document is valid and has {count} sources"))
        }
        // No document was named, or reading it is not allowed.
        Err(error) if error.is::<Unnamed>() || matches!(error.downcast_ref(), Some(Refused::Denied(_))) => {
            CheckFinding::not_made(CHECK, format!("{error:#}"))
        }
        Err(error) => CheckFinding::wrong(
            CHECK,
            format!("{error:#}"),
            "correct the document; until then, running functions use the last valid one",
        ),
    }
}

pub async fn jobs(deployment: &Deployment) -> CheckFinding {
    const CHECK: &str = "scheduler";
    match roster::listed(&deployment.parts.store).await {
        Ok(jobs) => on_time(&jobs, deployment.env.now()),
        Err(error) => CheckFinding::not_made(CHECK, error.to_string()),
    }
}

fn on_time(jobs: &[Listed], now: Timestamp) -> CheckFinding {
    const CHECK: &str = "scheduler";
    let late = |job: &&Listed| {
        let plan = job.plan.as_ref().filter(|plan| plan.is_on);
        let due = plan.and_then(|plan| plan.schedule.first_after(job.state.last_tick?));
        let runs = job.state.entity.held.as_ref().is_some_and(|held| held.runs(now));
        due.filter(|due| now.since(*due) > LATE && !runs).is_some()
    };
    let names = |jobs: Vec<&Listed>| jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", ");
    // The job of alerts stops once the document no longer wants alerts.
    let all_late: Vec<&Listed> = jobs.iter().filter(|job| job.name != ALERTS).filter(late).collect();
    let newest = jobs.iter().filter_map(|job| job.state.last_tick).max();
    let Some(newest) = newest else {
        return CheckFinding::warning(
            CHECK,
            "the scheduler has not run yet",
            "the scheduler should run once a minute: docs/runbooks/scheduler-silent.md",
        );
    };
    let has_scheduler = jobs.iter().any(|job| job.name == SWEEP) && all_late.iter().all(|job| job.name != SWEEP);
    if !all_late.is_empty() && has_scheduler {
        return CheckFinding::warning(
            CHECK,
            format!("the scheduler runs, but these jobs are late by more than {}: {}", duration(LATE), names(all_late)),
            "nobody calls their `jobs once` any more, or the deployed scheduler does not have them: docs/jobs.md",
        );
    }
    if !all_late.is_empty() {
        return CheckFinding::wrong(
            CHECK,
            format!(
                "late by more than {}: {}; the newest tick was due {} ago",
                duration(LATE),
                names(all_late),
                duration(now.since(newest))
            ),
            "docs/runbooks/scheduler-silent.md",
        );
    }
    let failed =
        |job: &&Listed| job.state.last_result.as_ref().is_some_and(|result| result.ending != TickOutcome::Done);
    let failed: Vec<&Listed> = jobs.iter().filter(failed).collect();
    if !failed.is_empty() {
        let advice = format!("`{} jobs` says why: docs/runbooks/jobs-failed.md", this_command());
        return CheckFinding::warning(
            CHECK,
            format!("the scheduler runs, but the last run of these jobs failed: {}", names(failed)),
            advice,
        );
    }
    CheckFinding::ok(CHECK, format!("the scheduler runs: its newest tick was due {} ago", duration(now.since(newest))))
}

pub fn formats(survey: &Survey) -> CheckFinding {
    const CHECK: &str = "row versions";
    let met = &survey.overview.formats;
    let ours = u64::from(FORMAT);
    let counted: Vec<String> = met.iter().map(|(format, rows)| format!("{rows} of format {format}")).collect();
    let says = if counted.is_empty() { "no rows".to_owned() } else { counted.join(", ") };
    if met.keys().any(|format| *format > ours) {
        let advice = format!("this command reads format {ours}: build it from the version that is deployed");
        return CheckFinding::wrong(CHECK, says, advice);
    }
    if met.keys().any(|format| *format < ours) {
        let advice = format!("this version reads format {ours} and no older one: begin with empty tables");
        return CheckFinding::wrong(CHECK, says, advice);
    }
    match survey.overview.unreadable.len() {
        0 => CheckFinding::ok(CHECK, says),
        count => CheckFinding::wrong(CHECK, format!("{says}; {count} cannot be read"), "the lines above name the rows"),
    }
}

pub fn heard_of(survey: &Survey, sources: Option<&Sources>, days: u64, now: Timestamp) -> Vec<CheckFinding> {
    let newest = survey.overview.pace.newest();
    let check = |source: &SourceName| format!("source {source}");
    let mut findings = Vec::new();
    for (source, at) in newest {
        let says = format!("the source's newest delivery was accepted {} ago", duration(now.since(*at)));
        findings.push(match sources {
            Some(sources) if sources.get(source.as_str()).is_none() => CheckFinding::warning(
                &check(source),
                format!("{says}; the sources document has no such source"),
                format!("add it with `{} source add`; otherwise workers park its waiting deliveries", this_command()),
            ),
            _ => CheckFinding::ok(&check(source), says),
        });
    }
    for source in sources.into_iter().flat_map(Sources::iter).filter(|source| !newest.contains_key(&source.name)) {
        let advice = match source.intake() {
            Intake::CopiesOf(from) => format!("check the source `{from}`, from which it gets its deliveries"),
            Intake::Queue(queue) => format!("check what sends messages to {queue}"),
            Intake::Url => {
                let test = format!("`{} source test {}`", this_command(), source.name);
                format!("check the URL at its sender; {test} tries the source")
            }
        };
        let says = format!("none of the source's deliveries was accepted in the last {days} days");
        findings.push(CheckFinding::warning(&check(&source.name), says, advice));
    }
    findings
}

/// Sums up the orders in the words of `status`.
pub fn trouble(seen: &Overview, status_line: &str) -> CheckFinding {
    const CHECK: &str = "orders";
    let says = summary(seen, true, true);
    if seen.parked.is_empty() && [Kind::Blocked, Kind::Abandoned].into_iter().all(|kind| seen.count(kind) == 0) {
        return CheckFinding::ok(CHECK, says);
    }
    let advice = format!("`{status_line}` shows them by source and error, with the next command");
    CheckFinding::warning(CHECK, says, advice)
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{
        jobs::roster::JobPlan,
        protocol::{format::attribute as a, table::Row, tick::JobState},
    };

    use super::*;
    use crate::commands::setup::doctor::finding::CheckVerdict;

    fn job(name: &str, last_tick: Timestamp) -> Listed {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, format!("cron/{name}"));
        let row = row.with(a::TAIL, 0_u32).with(a::HEAD, 0_u32).with(a::TOKEN, 1_u32);
        let state = JobState { last_tick: Some(last_tick), ..JobState::parse(&row).unwrap() };
        Listed { name: name.to_owned(), plan: JobPlan::parse("on * * * * *"), state }
    }

    #[test]
    fn orders_are_summed_up_in_the_words_of_status() {
        const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
        let order = |number: u32| {
            let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, format!("shop/order/{number}"));
            row.with(a::TAIL, 4_u32).with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32)
        };
        let mut seen = Overview::default();
        seen.order(&order(1).with(a::HOLD, 1_700_000_000_000_u64), NOW);
        seen.order(&order(2).with(a::LAST_ERROR, "down").with(a::RETRY_AT, 1_800_000_004_000_u64), NOW);
        let found = trouble(&seen, "serializer status");
        assert_eq!(found.verdict, CheckVerdict::Ok);
        assert_eq!(
            found.says,
            "2 orders: 0 wait, 0 are failing, 0 are blocked, 1 is waiting for an unavailable destination, 1 is on hold. \
             Nothing is parked."
        );
        seen.order(&order(3).with(a::BLOCKED, "attempts"), NOW);
        let found = trouble(&seen, "serializer status");
        assert_eq!((found.verdict, found.says), (CheckVerdict::Warning, summary(&seen, true, true)));
        assert!(found.advice.unwrap().contains("`serializer status`"));
    }

    #[test]
    fn job_that_nobody_calls_is_no_silent_scheduler() {
        let now = Timestamp::from_secs(1_800_000_000);
        let [recent, old] = [60, 3600].map(|ago| Timestamp::from_secs(1_800_000_000 - ago));
        let found = on_time(&[job(SWEEP, recent), job("report", old)], now);
        assert_eq!(found.says, "the scheduler runs, but these jobs are late by more than 5 min: report");
        let found = on_time(&[job(SWEEP, old), job("report", old)], now);
        assert!(found.says.starts_with("late by more than 5 min: sweep, report; "), "{}", found.says);
        assert!(on_time(&[job("report", old)], now).says.starts_with("late by more than 5 min: report; "));
        assert!(on_time(&[job(SWEEP, recent), job("report", recent)], now).says.starts_with("the scheduler runs: "));
    }
}
