//! The template against the code that it deploys: times that start, roles that
//! grant what is asked and nothing else, an alarm for every page; and that no
//! property of it can be lost or changed without an objection.

mod asked;
mod checks;
mod document;
mod door;
mod grants;
mod mutations;
mod project;

use checks::objections;
use document::Template;
use mutations::{RESTS_ON_NOTHING, mutations};
use serializer::stack::Stack;
use tests::not_run::{is_thorough, not_run};

#[tokio::test(start_paused = true)]
async fn the_template_is_what_its_code_and_its_guarantees_need() {
    let (template, asked) = (Template::read(), asked::asked().await);
    let found: Vec<_> = objections(&template, &asked).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_outputs_and_parameters_are_those_that_the_command_asks_a_stack_for() {
    let template = Template::read();
    let outputs = &template.0["Outputs"];
    let line = outputs["CommandLine"]["Value"]["Fn::Sub"][0].as_str().expect("a text with names in it");
    let stack = Stack { outputs: [("CommandLine".to_owned(), line.to_owned())].into(), ..Stack::default() };
    let said = stack.variables().expect("it is one of ours");
    for (variable, value) in [
        ("ENTITIES_TABLE", "${EntitiesTable}"),
        ("INBOX_TABLE", "${InboxTable}"),
        ("QUEUE_URL", "${WakeUps}"),
        ("RETENTION_DAYS", "${RetentionDays}"),
        ("PARKED_RETENTION_DAYS", "${ParkedRetentionDays}"),
        ("WEBHOOK_URL", "${Url}"),
    ] {
        assert_eq!(said.get(variable).map(String::as_str), Some(value), "{variable}");
    }
    assert!(line.contains(" ${Sources} "), "which document: {line}");
    for (output, of) in [
        ("IngestFunction", "Ingest"),
        ("WorkerFunction", "Worker"),
        ("SchedulerFunction", "Scheduler"),
        ("DeadLetterQueueUrl", "DeadLetters"),
    ] {
        assert_eq!(outputs[output]["Value"]["Ref"], of, "{output}");
    }
    for parameter in ["WorkerConcurrency", "IngestConcurrency", "WorkerTimeout", "AlarmTopicArn", "SourcesSecretArn"] {
        assert!(template.defaults().contains_key(parameter), "{parameter}");
    }
}

/// Each property that something rests on is taken out and changed, one at a
/// time. A new one is either missed by a check, or said to carry nothing.
#[tokio::test(start_paused = true)]
async fn no_property_can_be_lost_or_changed_without_an_objection() {
    if !is_thorough() {
        return not_run("tries 2,500 changes, for half a minute; PROVE=1 asks for it");
    }
    let template = Template::read();
    let asked = asked::asked().await;
    let mut passed = Vec::new();
    let mut idle: Vec<_> = RESTS_ON_NOTHING.iter().map(|(pattern, _)| *pattern).collect();
    let mut objected = 0;
    for mutation in mutations(&template) {
        let excuse = RESTS_ON_NOTHING.iter().map(|(pattern, _)| *pattern).find(|pattern| mutation.is_at(pattern));
        match (objections(&mutation.template, &asked).next(), excuse) {
            (Some(_), None) => objected += 1,
            (None, Some(excuse)) => idle.retain(|idle| *idle != excuse),
            (None, None) => passed.push(format!("nobody objects: {}", mutation.what)),
            (Some(objection), Some(_)) => {
                passed.push(format!("said to carry nothing: {}, and yet: {objection}", mutation.what));
            }
        }
    }
    passed.extend(idle.iter().map(|pattern| format!("nothing is there that it says carries nothing: {pattern}")));
    assert!(passed.is_empty(), "{}", passed.join("\n"));
    println!("{objected} changes, each objected to");
    assert!(objected > 2500, "docs/proof.md says so: {objected}");
}
