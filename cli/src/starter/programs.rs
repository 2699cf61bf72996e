//! Writes the receiver or function, and the lines that start it beside `serializer local`.

use super::{Language, StarterChoices, StarterFile, StarterHandler, publishes_its_key, relay};

/// The port at which `serializer local` calls functions.
const LAMBDA_PORT: u16 = 3001;

macro_rules! template {
    ($name:literal) => {
        ($name, include_str!(concat!("templates/", $name)))
    };
}
pub(super) use template;

const RECEIVER: [(&str, &str); 2] = [template!("receiver.mts"), template!("receiver.py")];
const FUNCTION: [(&str, &str); 2] = [template!("function.mts"), template!("function.py")];
const LOCAL_LAMBDA: [(&str, &str); 2] = [template!("local_lambda.mts"), template!("local_lambda.py")];

impl Language {
    pub(super) fn of(self, [typescript, python]: [(&'static str, &'static str); 2]) -> (&'static str, &'static str) {
        match self {
            Self::TypeScript => typescript,
            Self::Python => python,
        }
    }
}

pub(super) fn files(choices: &StarterChoices) -> Vec<StarterFile> {
    let file = |templates| {
        let (name, text) = choices.language.of(templates);
        StarterFile::new(name, relay::program(text, choices))
    };
    match &choices.handler {
        StarterHandler::Log => Vec::new(),
        StarterHandler::Forward { url } => {
            let receiver = file(RECEIVER);
            let text = receiver.text.replace("\"/webhooks\"", &format!("{:?}", path(url)));
            vec![StarterFile { text, ..receiver }]
        }
        StarterHandler::Invoke { .. } => vec![file(FUNCTION), file(LOCAL_LAMBDA)],
    }
}

/// Returns each process's name and its shell line.
pub(super) fn processes(choices: &StarterChoices) -> Vec<(&'static str, String)> {
    let keys = if choices.providers.iter().any(|name| publishes_its_key(name)) { " --development-keys" } else { "" };
    let mut processes = vec![("serializer", format!("{} local --sources sources.toml{keys}", choices.command))];
    let node = "node --experimental-strip-types";
    let relayed = if relay::is_used(choices) { relay::variables() } else { String::new() };
    match (&choices.handler, choices.language) {
        (StarterHandler::Log, _) => {}
        (StarterHandler::Forward { url }, language) => {
            if let Some(port) = local_port(url) {
                let program = match language {
                    Language::TypeScript => format!("PORT={port} {node} receiver.mts"),
                    Language::Python => format!("python3 -m uvicorn receiver:app --port {port}"),
                };
                processes.push(("receiver", format!("{relayed}SECRET={} {program}", choices.secret)));
            }
        }
        (StarterHandler::Invoke { .. }, language) => {
            let program = match language {
                Language::TypeScript => format!("{node} local_lambda.mts"),
                Language::Python => "python3 local_lambda.py".to_owned(),
            };
            processes.push(("function", format!("{relayed}PORT={LAMBDA_PORT} {program}")));
        }
    }
    processes
}

pub(super) fn install(choices: &StarterChoices) -> Option<&'static str> {
    let is_receiver = matches!(choices.handler, StarterHandler::Forward { .. });
    is_receiver.then_some(match choices.language {
        Language::TypeScript => concat!(
            "npm install webhook-serializer express  # while the registry lacks it, the path of webhook-serializer-",
            env!("CARGO_PKG_VERSION"),
            ".tgz in place of its name (docs/without-rust.md)"
        ),
        Language::Python => concat!(
            "pip install webhook-serializer fastapi uvicorn  # while the registry lacks it, the path of webhook_serializer-",
            env!("CARGO_PKG_VERSION"),
            "-*.whl in place of its name (docs/without-rust.md)"
        ),
    })
}

/// Returns the port of a URL of this machine.
pub(super) fn local_port(url: &str) -> Option<u16> {
    let address = url.strip_prefix("http://")?.split(['/', '?']).next()?;
    let (host, port) = address.split_once(':').unwrap_or((address, "80"));
    ["127.0.0.1", "localhost"].contains(&host).then(|| port.parse().ok())?
}

fn path(url: &str) -> &str {
    let address = url.split_once("://").map_or(url, |(_, address)| address);
    let path = address.find('/').map_or("/", |at| &address[at..]);
    path.split('?').next().unwrap_or("/")
}
