//! Runs the functions of `.ci/on-aws` with stand-ins for `aws`, `sam` and the command.

use std::{fs, process::Command};

use tests::tree::root;

/// Runs lines of shell with the functions of `.ci/on-aws`. Returns the calls of `aws` and `sam`, one a line.
/// The stand-ins print what `answers`, a shell `case`, says.
fn calls(answers: &str, lines: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let script = crate::file(".ci/on-aws");
    let (functions, _) = script.split_once("\nold=$(secret)").expect("functions, and what begins with a secret");
    let functions = functions.replace("cd \"$(dirname \"$0\")/..\"", "");
    let log = folder.path().join("calls");
    let program = format!(
        "set -- smoke\n{functions}\n\
         called() {{ printf '%s\\n' \"$*\" >>'{log}'; case \"$*\" in {answers} *) ;; esac; }}\n\
         aws() {{ called aws \"$@\"; }}\nsam() {{ called sam \"$@\"; }}\n\
         AWS_REGION=eu-central-1 stack=try parameter=/try/sources deployed=() others=() keys=()\n{lines}\n",
        log = log.display(),
    );
    let path = folder.path().join("program");
    fs::write(&path, program).expect("it is written");
    let mut bash = Command::new("bash");
    let done = bash.arg(&path).current_dir(root()).env("TMPDIR", folder.path()).output().expect("bash runs");
    assert!(done.status.success(), "{done:?}");
    fs::read_to_string(log).expect("something was called").lines().map(str::to_owned).collect()
}

/// Promise: the parts of `.ci/on-aws` that need no account work.
#[test]
fn removal_leaves_no_table_of_any_stack() {
    let tables = ["try-entities", "try-inbox", "try-r-entities", "try-r-inbox", "try-2-entities", "try-2-inbox"];
    let answers = format!("*list-tables*) echo '{}' ;;", tables.join(" "));
    // The tables that `tables_restored` leaves are in no stack, and they are protected as the page says.
    let calls = calls(&answers, "deployed=(try try try-2) others=(try-observability)\nremove");
    let place = |call: &str| calls.iter().position(|held| held == call).unwrap_or_else(|| panic!("{call}: {calls:#?}"));
    for table in tables {
        let unprotected = format!("aws dynamodb update-table --table-name {table} --no-deletion-protection-enabled");
        assert!(place(&unprotected) < place(&format!("aws dynamodb delete-table --table-name {table}")));
    }
    let stack = |name: &str| place(&format!("sam delete --stack-name {name} --region eu-central-1 --no-prompts"));
    assert!(stack("try-observability") < stack("try"), "it reads the core's outputs");
    assert!(stack("try-2") < place("aws ssm delete-parameter --name /try/sources"));
}

/// SAM reads the samconfig.toml beside a template that it is given, so it is given none.
#[test]
fn stacks_are_deployed_by_the_repositorys_configuration() {
    let lines = "report=/dev/null ZONE=Z1 DOMAIN=hooks.example.com\n\
                 deploy try WorkerConcurrency=2\nother_stacks";
    let calls = calls("*Outputs*) echo 1170 ;; *Threshold*) echo 1170.0 ;;", lines);
    let deploys: Vec<&String> = calls.iter().filter(|call| call.contains(" deploy ")).collect();
    let deployed = |environment: &str, stack: &str, parameters: &str| {
        let begins = format!("sam deploy --config-env {environment} --stack-name {stack} ");
        deploys.iter().any(|call| call.starts_with(&begins) && call.contains(parameters))
    };
    assert!(deployed("default", "try", "--parameter-overrides WorkerConcurrency=2"), "{deploys:#?}");
    assert!(deployed("observability", "try-observability", "--parameter-overrides Core=try"), "{deploys:#?}");
    let domain = "--parameter-overrides Core=try-2 DomainName=hooks.example.com HostedZoneId=Z1";
    assert!(deployed("domain", "try-domain", domain), "{deploys:#?}");
    for call in deploys {
        assert!(call.starts_with("sam deploy --config-env ") && call.contains("--no-confirm-changeset"), "{call}");
        for option in ["--template", "-t ", "--capabilities", "--resolve-s3", "--on-failure", "--guided"] {
            assert!(!call.contains(&format!(" {option}")), "{call}: samconfig.toml has it");
        }
    }
}
