//! Jobs in several languages: all clients call the same job, at each minute of a clock that the store's replies show.

use serde_json::{Value, json};
use tests::prelude::*;
use webhook_serializer::protocol::tick::TickOutcome;

use crate::{
    client::{Client, ClientLanguage},
    proxy::{Proxy, ReplyFault},
};

const MINUTE: u64 = 60_000;

/// Several clients of each language, whose requests pass through the proxy.
struct Hosts {
    testbed: TestBed,
    proxy: Proxy,
    clients: Vec<Client>,
    minute: u64,
}

impl Hosts {
    async fn start(languages: &[ClientLanguage]) -> Self {
        let testbed = TestBed::start().await;
        let proxy = Proxy::start(&testbed.engines.dynamodb_url()).await;
        let start = |language: &ClientLanguage| Client::start(*language, &testbed.engines, proxy.url());
        let mut clients: Vec<Client> = languages.iter().map(start).collect();
        for client in &mut clients {
            client.succeeds("lookup", "test/first", json!({})).await;
        }
        proxy.requests();
        Self { testbed, proxy, clients, minute: 0 }
    }

    fn pass_minutes(&mut self, minutes: u64) {
        self.minute += minutes;
        self.proxy.set_ahead(Duration::from_millis(self.minute * MINUTE));
    }

    /// Lets all clients call the job at once. Returns the runs, in the order of their ticks.
    async fn call(&mut self, job: &str, more: Value) -> Vec<Value> {
        let mut command = json!({ "op": "once", "key": job, "schedule": "* * * * *", "zone": "Europe/Berlin" });
        command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for client in &mut self.clients {
            client.send(&command).await;
        }
        let mut runs = Vec::new();
        for client in &mut self.clients {
            let answer = client.answer().await;
            runs.extend(answer["ran"].as_array().unwrap_or_else(|| panic!("{answer}")).clone());
        }
        runs.sort_by_key(|run| run["tick"].as_u64());
        runs
    }

    async fn count(&self, job: &str) -> u64 {
        let key = Key::named("totals", "order", job);
        let row = self.testbed.parts().store.get(&key, Duration::from_secs(5)).await.unwrap();
        row.and_then(|row| row.number("runs")).unwrap_or(0)
    }
}

fn ticks(runs: &[Value]) -> Vec<u64> {
    runs.iter().map(|run| run["tick"].as_u64().unwrap()).collect()
}

/// Returns writes that count the job's runs.
fn counting(job: &str) -> Value {
    json!({ "writes": [{ "Update": {
        "TableName": "totals", "Key": { "order": { "S": job } }, "UpdateExpression": "ADD runs :one",
        "ExpressionAttributeValues": { ":one": { "N": "1" } },
    } }] })
}

/// The requests of a call that defines its job, and of one that runs a tick.
const REQUESTS: [&str; 4] = ["GetItem", "UpdateItem", "TransactWriteItems", "PutItem"];

const FAULTS: [ReplyFault; 7] = [
    ReplyFault::Lost,
    ReplyFault::Late,
    ReplyFault::Cut,
    ReplyFault::Closed,
    ReplyFault::Repeated,
    ReplyFault::Throttled,
    ReplyFault::Conflict,
];

/// Promise: a function in Python or TypeScript runs once for a tick too, beside hosts in other languages; its writes
/// land with the tick's record; `on_crash` decides about a dead host's tick.
#[tokio::test(flavor = "multi_thread")]
async fn tick_runs_once_whatever_host_calls_and_reply_is_lost() {
    let mut hosts = Hosts::start(&[ClientLanguage::ALL, ClientLanguage::ALL].concat()).await;
    let mut all = Vec::new();
    let mut tokens = Vec::new();
    for number in 0..=REQUESTS.len() * FAULTS.len() {
        // Only the first call defines the job, with a `PutItem`.
        let place = if number == 0 { 3 } else { (number - 1) % REQUESTS.len() };
        hosts.proxy.plan(REQUESTS[place], FAULTS[number / REQUESTS.len() % FAULTS.len()]);
        let runs = hosts.call("report", counting("report")).await;
        hosts.proxy.forget();
        all.extend(ticks(&runs));
        tokens.extend(runs.iter().map(|run| run["token"].as_u64().unwrap()));
        hosts.pass_minutes(1);
    }
    assert!(all.is_sorted_by(|one, next| one < next), "no tick runs twice: {all:?}");
    // While the machine's own clock begins a minute, two ticks are due, and the job runs once for both.
    let steps = (all[all.len() - 1] - all[0]) / MINUTE;
    assert!(steps < all.len() as u64 + 5, "no other tick is left out: {all:?}");
    assert!(all.len() > REQUESTS.len() * FAULTS.len(), "{}", all.len());
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(hosts.count("report").await, all.len() as u64, "each run's writes land once");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_crash_decides_about_the_tick_of_a_killed_host() {
    let cases: Vec<(ClientLanguage, &str, String)> = ClientLanguage::ALL
        .into_iter()
        .flat_map(|language| ["again", "skip"].map(|on_crash| (language, on_crash)))
        .map(|(language, on_crash)| (language, on_crash, format!("{language:?}-{on_crash}").to_lowercase()))
        .collect();
    // A host for each case, which is killed, and one of each language that goes on.
    let killed: Vec<ClientLanguage> = cases.iter().map(|(language, ..)| *language).collect();
    let mut hosts = Hosts::start(&[&killed[..], &ClientLanguage::ALL].concat()).await;
    let killed: Vec<Client> = hosts.clients.drain(..cases.len()).collect();
    let mut tokens = Vec::new();
    for (mut host, (_, on_crash, job)) in killed.into_iter().zip(&cases) {
        let call = json!({
            "op": "once", "key": job, "schedule": "* * * * *", "zone": "Europe/Berlin", "onCrash": on_crash,
            "work": 600_000,
        });
        host.send(&call).await;
        tokens.push(host.answer().await["begun"].as_u64().expect("it runs"));
        assert_eq!(hosts.call(job, json!({ "onCrash": on_crash })).await, [] as [Value; 0], "{job}: it is under way");
        host.kill().await;
    }
    // The lease of 30 s has expired, and its holder's clock may have been a minute behind.
    hosts.pass_minutes(3);
    for (begun, (_, on_crash, job)) in tokens.into_iter().zip(&cases) {
        let runs = hosts.call(job, json!({ "onCrash": on_crash })).await;
        let ticks = ticks(&runs);
        assert_eq!(ticks.len(), if *on_crash == "again" { 2 } else { 1 }, "{job}: {runs:?}");
        assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] >= 3 * MINUTE), "{job}: {runs:?}");
        assert!(runs.iter().all(|run| run["token"].as_u64() > Some(begun)), "{job}: {runs:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_is_recorded_and_reported_to_its_caller() {
    join_all(ClientLanguage::ALL.map(async |language| {
        let mut hosts = Hosts::start(&[language, language]).await;
        let call = json!({ "schedule": "* * * * *", "error": "no paper" });
        let failed = hosts.clients[0].run("once", "report", call).await;
        assert!(failed["error"].as_str().unwrap().contains("no paper"), "{language:?}: {failed}");
        let jobs = webhook_serializer::jobs::roster::listed(&hosts.testbed.parts().store).await.unwrap();
        let tick = jobs[0].state.last_tick.unwrap();
        let result = jobs[0].state.last_result.clone().unwrap();
        assert_eq!(result.ending, TickOutcome::Failed, "{language:?}");
        assert!(result.error.contains("no paper"), "{language:?}: {}", result.error);
        // The next minute may have begun.
        let later = ticks(&hosts.call("report", json!({ "zone": null })).await);
        assert!(!later.contains(&tick.as_millis()), "{language:?}: it is recorded");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_cannot_run_names_the_remedy() {
    join_all(ClientLanguage::ALL.map(async |language| {
        let mut hosts = Hosts::start(&[language]).await;
        let client = &mut hosts.clients[0];
        for (name, schedule, zone) in [
            ("Report", "* * * * *", "UTC"),
            ("report", "0 0 30 2 *", "UTC"),
            ("report", "0 3 * * *", "Europe/Atlantis"),
        ] {
            client.fails("invalid", "once", name, json!({ "schedule": schedule, "zone": zone })).await;
        }
        client.succeeds("once", "report", json!({ "schedule": "* * * * *" })).await;
        let refused = client.fails("other_schedule", "once", "report", json!({ "schedule": "0 3 * * *" })).await;
        assert!(refused.contains("use the same schedule on all hosts, or another name"), "{refused}");
        hosts.pass_minutes(1);
        let client = &mut hosts.clients[0];
        let refused = json!({ "schedule": "* * * * *", "writes": [{ "ConditionCheck": {
            "TableName": "totals", "Key": { "order": { "S": "report" } }, "ConditionExpression": "attribute_exists(runs)",
        } }] });
        client.fails("not_committed", "once", "report", refused).await;
    }))
    .await;
}
