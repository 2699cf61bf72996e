//! The receivers and functions that `serializer init` writes, started by the lines of its Procfile.

use std::{fs, os::unix::fs::symlink, path::Path};

use serializer::starter::{Language, StarterChoices, StarterHandler, starter};
use tests::{not_run::not_run, testbed::TestBed};
use tokio::process::Command;
use webhook_serializer::handlers::forward::Forward;

use crate::{
    SECRETS, invoke,
    pages::{PageReceiver, deliver, free_port},
    receiver::{in_suite, node_on, python_with_package},
    sources,
};

pub const LANGUAGES: [Language; 2] = [Language::TypeScript, Language::Python];

/// Writes the files, and returns the shell line that starts the program beside the serializer.
pub fn written(folder: &Path, language: Language, handler: StarterHandler, providers: &[&str]) -> String {
    let choices = StarterChoices {
        providers: providers.iter().map(|&name| name.to_owned()).collect(),
        key: "shop".to_owned(),
        handler,
        language,
        secret: SECRETS.split(' ').nth(1).unwrap().to_owned(),
        command: "serializer".to_owned(),
    };
    let starter = starter(&choices).unwrap();
    fs::create_dir(folder.join("events")).unwrap();
    for file in &starter.files {
        fs::write(folder.join(&file.path), &file.text).unwrap();
    }
    let procfile = fs::read_to_string(folder.join("Procfile")).unwrap();
    let (name, line) = procfile.lines().last().unwrap().split_once(": ").unwrap();
    assert_ne!(name, "serializer");
    line.to_owned()
}

/// Returns a shell command with the language's program on its PATH and its package installed, or why it cannot be run.
pub async fn shell(folder: &Path, language: Language, line: &str) -> Result<Command, String> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec env {line}")]).current_dir(folder);
    let installed = match language {
        Language::TypeScript => {
            in_suite("receiver").await?;
            let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/clients/suite/node_modules");
            symlink(modules, folder.join("node_modules")).unwrap();
            node_on("receiver.mts").await?
        }
        Language::Python => python_with_package([])?,
    };
    for (name, value) in installed.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let program = Path::new(installed.as_std().get_program());
    if let Some(programs) = program.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        command.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default()));
    }
    Ok(command)
}

/// Promise: the receivers and functions that `serializer init` writes get deliveries and answer 2xx, in TypeScript and
/// Python, started by the Procfile's lines.
#[tokio::test(flavor = "multi_thread")]
async fn receivers_of_init_apply_deliveries() {
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/webhooks");
        let line = written(folder.path(), language, StarterHandler::Forward { url }, &["standard-webhooks"]);
        let receiver = match shell(folder.path(), language, &line).await {
            Ok(command) => PageReceiver::start(command, port).await,
            Err(reason) => {
                not_run(&reason);
                continue;
            }
        };
        let mut testbed = TestBed::start_for(&sources(&receiver.url)).await;
        let forward = Forward::new(testbed.sources());
        deliver(&mut testbed, forward).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_init_apply_deliveries() {
    for language in LANGUAGES {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let handler = StarterHandler::Invoke { function: "orders".to_owned(), qualifier: None };
        let line = written(folder.path(), language, handler, &["standard-webhooks"])
            .replace("PORT=3001", &format!("PORT={port}"));
        let function = match shell(folder.path(), language, &line).await {
            Ok(command) => PageReceiver::start(command, port).await,
            Err(reason) => {
                not_run(&reason);
                continue;
            }
        };
        let mut testbed = TestBed::start_for(invoke::SOURCES).await;
        let invoke = invoke::handler(function.url.trim_end_matches("/webhooks"), testbed.sources());
        deliver(&mut testbed, invoke).await;
    }
}
