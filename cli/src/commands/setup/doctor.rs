//! `serializer doctor`: checks a deployment, and prints how to fix each problem.

mod committed;
mod finding;
mod inlets;
mod invoked;
mod rows;
mod stack;
mod store;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serializer::{say, stack::api::Services};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    setup::source::whereabouts,
    survey::{Cost, ReadScope, Surveyor},
    target::{Deployment, Target},
};
use finding::{CheckFinding, CheckVerdict};

#[derive(Debug, Args)]
#[command(after_help = "\
Each line is `ok`, `warning`, `wrong`, or `not made` with the reason. The exit code is 1 if any check is wrong.\n\n\
It changes nothing. To test each permission on the tables, it sends reads, and writes under a condition that never \
    holds; together these cost about ten read and write units. Like `status`, it reads the tables and asks before it \
    reads more than 1,000 read units; --no-rows leaves that out.\n\n\
Besides the permissions to operate, it uses these if it has them: cloudformation:DescribeStackResourceDrifts (and \
    DetectStackDrift, DescribeStackDriftDetectionStatus with --detect-drift), lambda:GetAccountSettings, \
    GetFunctionConfiguration, GetFunctionConcurrency, ListEventSourceMappings, ssm:GetServiceSetting, \
    sns:GetTopicAttributes, kms:DescribeKey, GetKeyPolicy, dynamodb:DescribeTable, DescribeTimeToLive, \
    DescribeContinuousBackups, sqs:GetQueueAttributes. A check without its permission is `not made`, and names it.")]
pub struct Doctor {
    /// Let CloudFormation compare the stack with its template now; takes a few minutes
    #[arg(long, requires = "stack", conflicts_with = "local")]
    detect_drift: bool,
    /// Leave out the checks that read the rows
    #[arg(long)]
    no_rows: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    target: Target,
}

/// The width of the column of check names, in characters. Longer names, such as those with a source's or a function's
/// name, are not cut off.
const WIDEST: usize = 22;

const OF_AWS: &str =
    "credentials, clock, stack, door, drift, concurrency, functions, Parameter Store, alarm topic, permissions";

const OF_STACK: &str = "stack, door, drift, concurrency, functions, Parameter Store, alarm topic";

struct DoctorReport {
    json: bool,
    worst: CheckVerdict,
    counted: [usize; 4],
}

impl DoctorReport {
    fn report(&mut self, findings: impl IntoIterator<Item = CheckFinding>) {
        for finding in findings {
            self.worst = self.worst.max(finding.verdict);
            self.counted[finding.verdict as usize] += 1;
            match self.json {
                true => print_json(&finding.as_json()),
                false => finding.print(WIDEST),
            }
        }
    }

    fn end(&self) -> ExitCode {
        if !self.json {
            let [ok, not_made, warnings, wrong] = self.counted;
            say!("\n{wrong} wrong, {warnings} warnings, {ok} ok, {not_made} not made");
        }
        if self.worst == CheckVerdict::Wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

impl Doctor {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let mut report = DoctorReport { json: self.json, worst: CheckVerdict::Ok, counted: [0; 4] };
        let can_go_on = if deployment.is_local() {
            report.report([CheckFinding::not_made("AWS", format!("a local run has none of these: {OF_AWS}"))]);
            true
        } else {
            self.of_aws(&deployment, &mut report).await
        };
        if can_go_on {
            self.of_parts(&deployment, &mut report).await;
        }
        Ok(report.end())
    }

    /// Runs the checks that need AWS. Returns false if AWS did not answer or refused the credentials.
    async fn of_aws(&self, deployment: &Deployment, report: &mut DoctorReport) -> bool {
        let services = Services::of(&deployment.account);
        let env = &deployment.env;
        let (findings, answers) = stack::caller(&services, env).await;
        report.report(findings);
        if !answers {
            return false;
        }
        let Some(stack) = &deployment.stack else {
            report.report([CheckFinding::not_made("stack", format!("add --stack NAME to check {OF_STACK}"))]);
            return true;
        };
        report.report([stack::status(stack)]);
        report.report([stack::door(services.region(), stack)]);
        report.report([stack::drift(&services, stack, self.detect_drift, env).await]);
        let (finding, limit) = stack::concurrency(&services, stack).await;
        report.report([finding]);
        report.report(stack::functions(&services, stack).await);
        report.report([stack::parameter_store(&services, stack, limit).await]);
        report.report([stack::alarms(&services, stack).await]);
        true
    }

    async fn of_parts(&self, deployment: &Deployment, report: &mut DoctorReport) {
        let parts = store::StoreParts::of(deployment);
        report.report(parts.check_tables().await);
        let stack = deployment.stack.as_ref();
        let worker = stack.and_then(|stack| stack.number("WorkerTimeout"));
        let dead_letters = stack.and_then(|stack| stack.outputs.get("DeadLetterQueueUrl")).map(String::as_str);
        report.report(parts.check_queue(worker, dead_letters).await);
        if !deployment.is_local() {
            report.report(parts.permissions().await);
        }
        let sources = whereabouts::configured(deployment).await;
        report.report([rows::sources(&sources)]);
        if let (false, Ok(sources)) = (deployment.is_local(), &sources) {
            report.report(invoked::functions(&Services::of(&deployment.account), stack, sources).await);
            report.report(committed::tables(stack, sources));
            report.report(inlets::queues(&deployment.account, stack, sources).await);
        }
        report.report([rows::jobs(deployment).await]);
        if self.no_rows {
            report.report([CheckFinding::not_made(
                "rows",
                "--no-rows leaves out the checks of row versions, of orders, and of the sources' ages",
            )]);
            return;
        }
        let surveyor = Surveyor::read(deployment, self.cost, Interrupt::listen(), ReadScope::Deliveries).await;
        let survey = match surveyor {
            Ok(surveyor) => surveyor.finish(),
            Err(error) => return report.report([CheckFinding::not_made("rows", format!("{error:#}"))]),
        };
        report.report([rows::formats(&survey)]);
        if !survey.unread.is_empty() {
            return report.report([CheckFinding::not_made(
                "rows",
                "only a part of the tables was read; with --yes, doctor reads all",
            )]);
        }
        let days = deployment.retention.as_secs() / 86_400;
        report.report(rows::heard_of(&survey, sources.as_ref().ok(), days, deployment.env.now()));
        report.report([rows::trouble(&survey.overview, &deployment.line("status", &[]))]);
    }
}
