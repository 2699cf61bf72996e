//! The wheel's launcher: the command's output names the command as its caller typed it.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::running::{folder, printed};

const LAUNCHER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/python/webhook_serializer_cli.data/scripts/webhook-serializer-cli");

/// Returns the name that the launcher gives the command, if the wheel is installed in this environment.
fn name_in(environment: &Path) -> String {
    let launcher = environment.join("bin/webhook-serializer-cli");
    let mut command = Command::new("sh");
    let done = command
        .arg(launcher)
        .arg("SERIALIZER_COMMAND")
        .env_remove("SERIALIZER_COMMAND")
        .output()
        .expect("there is a shell");
    printed(&done).trim_end().to_owned()
}

#[test]
fn launcher_names_the_command_as_it_was_called() {
    let folder = folder();
    for (environment, by_name, by_file) in [
        ("venv", "webhook-serializer-cli", "webhook-serializer-cli"),
        ("uv/archive", "uvx webhook-serializer-cli", "uvx --from /tmp/cli-0.1.0.whl webhook-serializer-cli"),
        ("pipx/0123", "pipx run webhook-serializer-cli", "pipx run --spec /tmp/cli-0.1.0.whl webhook-serializer-cli"),
    ] {
        let environment = folder.path().join(environment);
        let package = environment.join("lib/python3.11/site-packages/webhook_serializer_cli-0.1.0.dist-info");
        fs::create_dir_all(environment.join("bin")).unwrap();
        fs::create_dir_all(&package).unwrap();
        fs::copy(LAUNCHER, environment.join("bin/webhook-serializer-cli")).unwrap();
        symlink("/usr/bin/printenv", environment.join("bin/serializer")).unwrap();
        assert_eq!(name_in(&environment), by_name);

        // A wheel from a registry has no such file.
        fs::write(package.join("direct_url.json"), r#"{"url": "file:///tmp/cli-0.1.0.whl", "archive_info": {}}"#)
            .unwrap();
        assert_eq!(name_in(&environment), by_file);
    }
}
