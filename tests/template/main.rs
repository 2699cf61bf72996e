//! The template against the code that it deploys: times that start, roles that
//! grant what is asked and nothing else, an alarm for every page.

mod document;
mod grants;

use std::{collections::BTreeSet, path::Path, time::Duration};

use document::{Template, texts};
use grants::{Asked, Grants};
use serializer::cost::ASSUMPTIONS;
use serializer::local::{BATCH, FUNCTION_TIMEOUT, MAX_RECEIVES, VISIBILITY_TIMEOUT};
use shared::time::Timestamp;
use shared::{
    config::WorkerConfig,
    entity::EntityKey,
    handler::Isolation,
    handlers::orders::Orders,
    inbox::Claim,
    jobs::{Context, Job, JobError, Jobs, Outcome, Ticker, switch::Switch},
    lease::Acquire,
    rows::{HolderInfo, LeaseKind},
    sources::Sources,
    telemetry::{Metric, NAMESPACE},
};
use tests::world::World;

const PATIENCE: Duration = Duration::from_secs(1);

const TIMEOUT: &str = "WorkerTimeout";

/// The worker's variables that hold times, for one choice of its timeout.
fn times(template: &Template, timeout: &str) -> Vec<(String, String)> {
    let variables = template.at("Resources Worker Properties Environment Variables").as_hash().expect("a mapping");
    let variables = variables.iter().map(|(name, value)| (name.as_str().expect("a name").to_owned(), value));
    let times = variables.filter(|(name, _)| name.ends_with("_SECONDS"));
    times.map(|(name, value)| (name, template.resolved(value, TIMEOUT, timeout))).collect()
}

#[test]
fn every_choice_of_the_worker_s_time_is_a_configuration_that_starts() {
    let template = Template::read();
    let choices = template.list("Parameters WorkerTimeout AllowedValues");
    assert_eq!(choices, template.names("Mappings WorkerTimes"), "each choice, and no other, has its times");
    assert!(choices.len() > 1);
    let sources = |handler_timeout: u64| {
        let text = format!(
            "[sources.shop]\nprovider='shopify'\nsecrets=['s']\nhandler='orders'\nhandler_timeout='{handler_timeout}s'"
        );
        Sources::parse(&text).unwrap()
    };
    for choice in &choices {
        let times = times(&template, choice);
        let variables: Vec<(&str, &str)> = times.iter().map(|(name, value)| (&**name, &**value)).collect();
        let seconds: u64 = choice.parse().unwrap();
        // A handler's time that the parameter's description promises.
        let config = WorkerConfig::read(&variables.as_slice(), &sources(seconds - 3))
            .unwrap_or_else(|error| panic!("{choice}: {error}"));
        // And what the worker is told is what is deployed.
        let deployed = |path| template.resolved(template.at(path), TIMEOUT, choice);
        let told = |time: Duration| time.as_secs().to_string();
        assert_eq!(told(config.function_timeout), deployed("Resources Worker Properties Timeout"));
        assert_eq!(told(config.visibility_timeout), deployed("Resources WakeUps Properties VisibilityTimeout"));
    }
}

#[test]
fn a_local_run_is_what_the_template_deploys_by_default() {
    let template = Template::read();
    let deployed = |path| template.resolved(template.at(path), "", "");
    assert_eq!(deployed("Resources Worker Properties Timeout"), FUNCTION_TIMEOUT.as_secs().to_string());
    assert_eq!(deployed("Resources WakeUps Properties VisibilityTimeout"), VISIBILITY_TIMEOUT.as_secs().to_string());
    assert_eq!(deployed("Resources WakeUps Properties RedrivePolicy maxReceiveCount"), MAX_RECEIVES.to_string());
    assert_eq!(deployed("Resources Worker Properties Events WakeUps Properties BatchSize"), BATCH.to_string());
}

#[test]
fn each_alarm_has_its_page_and_each_page_its_alarm() {
    let template = Template::read();
    let mut told = BTreeSet::new();
    for (name, alarm) in template.resources("AWS::CloudWatch::Alarm") {
        let description = alarm["Properties"]["AlarmDescription"].as_str().expect("it says what it means");
        let (_, page) = description.rsplit_once("What to do - ").unwrap_or_else(|| panic!("{name} names no page"));
        assert!(told.insert(page.to_owned()), "{page} is of one alarm");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let pages = std::fs::read_dir(root.join("docs/runbooks")).expect("there are pages");
    let pages: BTreeSet<String> =
        pages.map(|page| format!("docs/runbooks/{}", page.unwrap().file_name().to_str().unwrap())).collect();
    assert_eq!(told, pages);
}

#[test]
fn what_alarms_and_dashboard_look_at_is_what_the_functions_measure() {
    let template = Template::read();
    let known: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
    let alarms = template.resources("AWS::CloudWatch::Alarm");
    // Each is billed by the metrics it looks at.
    let billed = alarms.iter().map(|(_, alarm)| match alarm["Properties"]["Metrics"].as_vec() {
        Some(metrics) => metrics.iter().filter(|metric| !metric["MetricStat"].is_badvalue()).count(),
        None => 1,
    });
    assert_eq!(billed.sum::<usize>() as f64, ASSUMPTIONS.alarms, "the bill has them all");
    let namespace = format!("{NAMESPACE}/${{AWS::StackName}}");
    assert_eq!(
        template.at("Globals Function Environment Variables METRICS_NAMESPACE").as_str(),
        Some(namespace.as_str()),
        "what is measured and what is looked at have one name"
    );
    let mut looked_at = 0;
    for (name, alarm) in &alarms {
        let alarm = &alarm["Properties"];
        if alarm["Namespace"].as_str() == Some(namespace.as_str()) {
            assert!(known.contains(alarm["MetricName"].as_str().unwrap()), "{name}");
            looked_at += 1;
        }
    }
    let body = template.at("Resources Dashboard Properties DashboardBody Fn::Sub").as_str().expect("a text");
    // The one that stands for a number.
    let body = body.replace("${OldestWaitingAlarmSeconds}", "1");
    assert_eq!(body.matches(NAMESPACE).count(), body.matches(namespace.as_str()).count());
    let body: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
    let rows =
        body["widgets"].as_array().unwrap().iter().filter_map(|widget| widget["properties"]["metrics"].as_array());
    for rows in rows {
        // A dot is what stands in the row above.
        let mut above = (String::new(), String::new());
        for row in rows {
            if let Some(search) = row[0]["expression"].as_str() {
                let Some((_, rest)) = search.split_once(&format!("\"{namespace}\",source,outcome}} MetricName=\""))
                else {
                    assert!(search.contains("{AWS/"), "{search}");
                    continue;
                };
                above = (namespace.clone(), rest.split('"').next().unwrap().to_owned());
            } else {
                let text = |place: usize, above: &str| match row[place].as_str().unwrap() {
                    "." | "..." => above.to_owned(),
                    text => text.to_owned(),
                };
                above = (text(0, &above.0), text(1, &above.1));
            }
            if above.0 == namespace {
                assert!(known.contains(above.1.as_str()), "the dashboard's {}", above.1);
                looked_at += 1;
            }
        }
    }
    assert_eq!(looked_at, 7 + 14, "alarms and lines");
}

/// What the stack was made with; what a user's own handlers and jobs may touch
/// besides is theirs to grant.
const OURS: [&str; 5] = ["EntitiesTable", "InboxTable", "OrdersTable", "WakeUps", "DeadLetters"];

/// What a role grants on the stack's own tables and queue.
fn granted(template: &Template, role: &str) -> Grants {
    let policies = template.at(&format!("Resources {role} Properties Policies"));
    let statements = policies[0]["PolicyDocument"]["Statement"].as_vec().expect("statements");
    let mut granted = Grants::new();
    for statement in statements.iter().filter(|statement| statement.as_hash().is_some()) {
        let Some(resource) = statement["Resource"].as_str().and_then(|text| text.strip_suffix(".Arn")) else {
            continue;
        };
        if !OURS.contains(&resource) {
            continue;
        }
        let ours = texts(&statement["Action"]).filter(|action| !action.starts_with("logs:"));
        granted.extend(ours.map(|action| (action, resource.to_owned())));
    }
    granted
}

/// A body that does not shrink, longer than one row.
fn in_parts(world: &World) -> Vec<u8> {
    let noise = || world.surroundings.fraction().to_bits().to_le_bytes();
    std::iter::repeat_with(noise).flatten().take(1_000_000).collect()
}

/// Every path that a function can take is taken here: should one ask for more
/// than its role grants, or a role grant more than is ever asked, this fails.
#[tokio::test(start_paused = true)]
async fn a_function_is_granted_what_it_asks_and_nothing_else() {
    let template = Template::read();
    let mut world = World::new();
    let (memory, messages) = (world.table.clone(), world.queue.clone());
    let acting_as = |world: &mut World, asked: &Asked| {
        world.table = asked.of_table(memory.clone());
        world.queue = asked.of_queue(messages.clone());
    };
    let entity = EntityKey::parse("test/order/1").unwrap();
    let [ingest, worker, scheduler] = [(); 3].map(|()| Asked::default());

    acting_as(&mut world, &ingest);
    let mut order = world.incoming("test/order/1", "1");
    order.topic = "orders/paid".into();
    order.body = r#"{"id":1,"currency":"USD","total_price":"48.20","financial_status":"paid"}"#.into();
    world.inbox().append(&order).await.unwrap();
    // No order, so that the handler rejects it and the worker sets it aside, parts and all.
    let mut rejected = world.incoming("test/order/1", "2");
    rejected.topic = "orders/paid".into();
    rejected.body = in_parts(&world).into();
    world.inbox().append(&rejected).await.unwrap();
    // An ingest that dies behind its claim, for the worker to give the place up.
    let nonce = world.surroundings.nonce();
    let claim = Claim { entity: &entity, nonce: &nonce, now: world.surroundings.now() };
    world.store().run(&claim, PATIENCE).await.unwrap();
    assert_eq!(ingest.so_far(), granted(&template, "IngestRole"), "ingest");

    // Somebody else holds the order at first, so that the worker looks, waits, and puts it off.
    let held = Acquire {
        entity: entity.clone(),
        kind: LeaseKind::Exclusive,
        holder: world.surroundings.nonce(),
        info: HolderInfo::new("a user's request"),
        now: world.surroundings.now(),
        length: Duration::from_secs(12),
    };
    world.store().run(&held, PATIENCE).await.unwrap();
    acting_as(&mut world, &worker);
    world.work(&[world.drainer(Orders::new(world.table.clone(), "orders"))]).await;
    let settled = world.state("test/order/1").await;
    assert!(settled.is_empty() && settled.held.is_none(), "{settled:?}");
    let mut asked = worker.so_far();
    // What the event source does in its name.
    for action in ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"] {
        asked.insert((action.into(), "WakeUps".into()));
    }
    assert_eq!(asked, granted(&template, "WorkerRole"), "worker");

    // What waits and has been forgotten for longer than half the retention.
    world.append("test/order/2", "3").await;
    world.messages.clear();
    world.surroundings.sleep(world.settings.retention * 2 / 3).await;
    acting_as(&mut world, &scheduler);
    let swept = world.sweeper().sweep_all().await.unwrap();
    assert_eq!((swept.woken, swept.kept), (1, 1));
    // And a job that crashed once, so that a later invocation takes over, commits and records it.
    let store = world.store();
    let invoked = async |minute: u64, jobs: Jobs| {
        let ticker = Ticker::new(store.clone(), &jobs, Duration::from_secs(300), &Switch::On, HolderInfo::new("test"));
        let ticker = ticker.unwrap().isolated(Isolation::Inline);
        let scheduled = Timestamp::from_secs(1_790_000_040 + minute * 60);
        ticker.tick(scheduled, world.surroundings.monotonic() + Duration::from_secs(50)).await.unwrap()
    };
    let hangs = Job::new("report", "every minute", |_: Context| std::future::pending::<Result<(), JobError>>());
    let crashed = world.surroundings.within(Duration::from_secs(5), invoked(0, Jobs::new().add(hangs))).await;
    assert!(crashed.is_none());
    world.surroundings.sleep(Duration::from_secs(300)).await;
    let job = Job::new("report", "every minute", async |_: Context| Ok::<_, JobError>(Outcome::Commit(Vec::new())));
    invoked(1, Jobs::new().add(job)).await;
    assert_eq!(scheduler.so_far(), granted(&template, "SchedulerRole"), "scheduler");
}
