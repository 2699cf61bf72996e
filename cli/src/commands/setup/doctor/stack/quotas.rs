//! Checks the account's quotas of concurrent executions and of Parameter Store's reads.

use serde_json::json;
use serializer::stack::{
    Stack,
    api::{Service, Services},
};
use webhook_serializer::sources::REFRESH;

use super::super::finding::CheckFinding;

/// Parameter Store's default quota, in reads a second.
const READS: u64 = 40;

const MOST_WORKERS: u64 = 100;
/// If this many instances of Lambda functions start at once, some cannot read the sources document in time, because
/// Parameter Store limits the rate of reads.
const MANY: u64 = 500;

/// Compares the stack's concurrency with the account's quota. Also returns the quota, if known.
pub async fn concurrency(services: &Services, stack: &Stack) -> (CheckFinding, Option<u64>) {
    const CHECK: &str = "concurrency";
    let settings = services.get(Service::LAMBDA, "GetAccountSettings", "/2016-08-19/account-settings/").await;
    let limit = match settings {
        Ok(settings) => settings["AccountLimit"].clone(),
        Err(refusal) => return (CheckFinding::refused(CHECK, &refusal), None),
    };
    let number = |name: &str| limit[name].as_u64();
    let (Some(all), Some(unreserved)) = (number("ConcurrentExecutions"), number("UnreservedConcurrentExecutions"))
    else {
        return (CheckFinding::not_made(CHECK, "Lambda's answer does not contain the concurrency quota"), None);
    };
    let Some(workers) = stack.number("WorkerConcurrency") else {
        return (CheckFinding::not_made(CHECK, "the stack has no parameter WorkerConcurrency"), Some(all));
    };
    let ingest = stack.number("IngestConcurrency").unwrap_or(0);
    (enough(all, unreserved, workers, ingest), Some(all))
}

/// Returns a suitable number of workers for an account: half of the unreserved concurrency, or nine tenths if ingest
/// has reserved concurrency. The result is at least 2 and at most [`MOST_WORKERS`].
fn suitable(unreserved: u64, ingest: u64) -> u64 {
    let share = if ingest == 0 { unreserved / 2 } else { unreserved - unreserved / 10 };
    share.clamp(2, MOST_WORKERS)
}

fn enough(all: u64, unreserved: u64, workers: u64, ingest: u64) -> CheckFinding {
    const CHECK: &str = "concurrency";
    let asked = match ingest {
        0 => format!("WorkerConcurrency {workers}"),
        _ => format!("WorkerConcurrency {workers}, IngestConcurrency {ingest}"),
    };
    let says = format!("the account may run {all} functions at once, {unreserved} of them unreserved; {asked}");
    let suitable = suitable(unreserved, ingest);
    // Ingest and the scheduler share what the workers leave, unless ingest has its own concurrency.
    let left = if ingest == 0 { unreserved.saturating_sub(workers) } else { unreserved };
    if workers > unreserved || (ingest == 0 && left < 2) {
        return CheckFinding::wrong(
            CHECK,
            format!("{says}: busy workers leave too little for ingest, and webhooks are refused"),
            format!("deploy with WorkerConcurrency={suitable}, or ask AWS to raise the quota “Concurrent executions”"),
        );
    }
    if ingest == 0 && left < workers / 4 {
        return CheckFinding::warning(
            CHECK,
            format!("{says}: busy workers leave {left} for ingest and the account's other functions"),
            format!(
                "deploy with WorkerConcurrency={suitable}, set IngestConcurrency, or ask AWS to raise the quota \
                 “Concurrent executions”"
            ),
        );
    }
    CheckFinding::ok(CHECK, format!("{says}. WorkerConcurrency={suitable} suits this account"))
}

/// Compares the rate at which the Lambda functions read the sources document with Parameter Store's quota. `limit` is
/// the account's quota of concurrent executions.
pub async fn parameter_store(services: &Services, stack: &Stack, limit: Option<u64>) -> CheckFinding {
    const CHECK: &str = "Parameter Store";
    if stack.parameters.get("Sources").is_some_and(|sources| sources.starts_with("arn:")) {
        return CheckFinding::ok(
            CHECK,
            "not used: the sources are in Secrets Manager, which answers 10,000 reads a second",
        );
    }
    let question = json!({ "SettingId": "/ssm/parameter-store/high-throughput-enabled" });
    match services.json(Service::SSM, "AmazonSSM.GetServiceSetting", &question).await {
        Ok(told) => throughput(
            told["ServiceSetting"]["SettingValue"].as_str() == Some("true"),
            limit.map(|limit| concurrent_functions(stack, limit)),
        ),
        Err(refusal) => CheckFinding::refused(CHECK, &refusal),
    }
}

/// Returns the largest number of ingests and workers that may run at once and read the sources document. `limit` is the
/// account's quota of concurrent executions.
fn concurrent_functions(stack: &Stack, limit: u64) -> u64 {
    let ingest = stack.number("IngestConcurrency").filter(|reserved| *reserved > 0).unwrap_or(limit);
    limit.min(ingest + stack.number("WorkerConcurrency").unwrap_or(0))
}

fn throughput(is_high: bool, limit: Option<u64>) -> CheckFinding {
    const CHECK: &str = "Parameter Store";
    if is_high {
        return CheckFinding::ok(CHECK, "higher throughput is on");
    }
    let Some(limit) = limit else {
        return CheckFinding::not_made(
            CHECK,
            "the account's concurrency limit is unknown, so the rate of Parameter Store reads cannot be estimated",
        );
    };
    let every = REFRESH.as_secs();
    let reads = limit.div_ceil(every);
    let says = format!(
        "Parameter Store answers {READS} reads a second for the whole account; {limit} functions at once read the \
         sources {reads} times a second"
    );
    let trouble = match limit {
        _ if reads * 2 > READS => "Above the limit, functions fail to start, and running ones keep their last document",
        MANY.. => "If so many start at once, some cannot read the document in time, and senders get 5xx",
        _ => return CheckFinding::ok(CHECK, says),
    };
    CheckFinding::warning(
        CHECK,
        format!("{says}. {trouble}"),
        "turn higher throughput on (AWS charges for it), set IngestConcurrency, or keep the sources in Secrets Manager",
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::CheckVerdict;
    use super::*;

    #[test]
    fn worker_concurrency_starving_ingest_is_reported() {
        let verdict = |all, unreserved, workers, ingest| enough(all, unreserved, workers, ingest).verdict;
        assert_eq!(verdict(1000, 1000, 50, 0), CheckVerdict::Ok);
        assert_eq!(verdict(10, 10, 50, 0), CheckVerdict::Wrong);
        assert_eq!(verdict(10, 10, 5, 0), CheckVerdict::Ok);
        assert_eq!(verdict(50, 50, 49, 0), CheckVerdict::Wrong);
        assert_eq!(verdict(60, 60, 50, 0), CheckVerdict::Warning);
        assert_eq!(verdict(1000, 900, 900, 100), CheckVerdict::Ok, "ingest has its own");
        assert!(enough(10, 10, 50, 0).advice.unwrap().contains("WorkerConcurrency=5,"));
        assert!(enough(60, 60, 50, 0).advice.unwrap().contains("WorkerConcurrency=30,"));
        assert!(enough(1000, 1000, 50, 0).says.contains("WorkerConcurrency=100 suits"));
        assert!(enough(100, 20, 10, 80).says.contains("WorkerConcurrency=18 suits"));
    }

    #[test]
    fn suggested_worker_concurrency_passes_the_check() {
        for unreserved in 4..2000 {
            for ingest in [0, 50] {
                let workers = suitable(unreserved, ingest);
                let finding = enough(unreserved + ingest, unreserved, workers, ingest);
                assert_eq!(finding.verdict, CheckVerdict::Ok, "{unreserved} {ingest} {workers}: {}", finding.says);
            }
        }
    }

    #[test]
    fn parameter_store_reads_by_500_functions_get_a_warning() {
        assert_eq!(throughput(false, Some(499)).verdict, CheckVerdict::Ok);
        assert_eq!(throughput(false, Some(500)).verdict, CheckVerdict::Warning, "they may start at once");
        let stack = |ingest: &str| Stack {
            parameters: [("IngestConcurrency", ingest), ("WorkerConcurrency", "50")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Stack::default()
        };
        assert_eq!(["0", "100"].map(|ingest| concurrent_functions(&stack(ingest), 1000)), [1000, 150]);
        assert_eq!(throughput(false, Some(3000)).verdict, CheckVerdict::Warning);
        assert_eq!(throughput(true, Some(9000)).verdict, CheckVerdict::Ok);
        assert_eq!(throughput(false, None).verdict, CheckVerdict::NotMade);
    }
}
