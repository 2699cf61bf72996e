//! Prints the addresses of `serializer local`, and the commands to type next.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde_json::json;
use serializer::{
    console::Console,
    local::{LocalRun, samples},
    output::{command_line, local_address, local_option, quoted, this_command},
    say,
};
use webhook_serializer::{
    sources::{Source, Sources},
    time::Env,
};

use super::{Local, tell::print_queue};
use crate::commands::print_json;

impl Local {
    pub(super) fn announce(&self, deployment: &LocalRun, console: Option<&Console>, sources: &Sources) {
        if self.json {
            print_json(&json!({
                "what": "serving", "webhooks": format!("http://{}", deployment.webhooks), "console": console.map(|console| &console.url),
                "dynamodb": deployment.engines.dynamodb_url(), "queue": deployment.engines.queue_endpoint(),
                "queues": deployment.source_queues().into_iter().collect::<BTreeMap<_, _>>(), "data": self.data,
            }));
        } else if let Some(console) = console {
            self.greet(deployment, console, sources);
        }
    }

    pub(super) fn greet_elsewhere(&self, deployment: &LocalRun, exports: &str) {
        self.greet_engines(deployment);
        let invoke = self.invoke.trim_end_matches('/');
        say!("functions  invoked at {invoke}\n");
        say!("Their environment:\n\n{exports}");
        let port = invoke.rsplit(':').next().unwrap_or_default();
        say!(
            "With this environment, in another terminal:\n\ncargo lambda watch -A 127.0.0.1 -P {port} --ignore-changes\n"
        );
        if self.sources.is_none() {
            say!("and in a third:\n\n{}\n", samples::curl(&format!("{invoke}/lambda-url/ingest")));
            say!("then: {}\n", show_line(&format!("http://{}", deployment.webhooks)));
        }
        say!("Ctrl-C stops.\n");
    }

    fn greet_engines(&self, deployment: &LocalRun) {
        say!("DynamoDB   {}", deployment.engines.dynamodb_url());
        say!("queue      {}", deployment.engines.queue_endpoint());
        for (source, url) in deployment.source_queues() {
            print_queue(&source, &url);
        }
        match &self.data {
            Some(directory) => say!("data       {}", directory.display()),
            None => say!("data       in memory; --data DIR keeps it"),
        }
    }

    fn greet(&self, deployment: &LocalRun, console: &Console, sources: &Sources) {
        let url = format!("http://{}", deployment.webhooks);
        say!("webhooks   {url}/webhooks/{{source}}");
        say!("console    {}", console.url);
        self.greet_engines(deployment);
        if self.scheduler.is_some() {
            let option = local_option(&url);
            let jobs = self.jobs.as_deref().unwrap_or("off");
            let command = this_command();
            say!("jobs       {jobs}; `{command} jobs{option}` lists them");
        }
        match &self.sources {
            None => {
                say!("\nTry it, in another terminal:\n\n{}\n", samples::curl(&url));
                say!("then: {}\n", show_line(&url));
            }
            Some(file) => {
                match trial(sources, self.development_keys) {
                    Ok(provider) => say!("\nTry it, in another terminal:\n\n{}\n", send_line(&url, file, provider)),
                    Err(reason) => say!("\nNo sample can be sent: {reason}\n"),
                }
                if self.development_keys {
                    say!("Everybody can sign with the development keys: do not open this endpoint to a network.\n");
                }
            }
        }
        say!("Ctrl-C stops.\n");
    }
}

fn show_line(url: &str) -> String {
    command_line("show", &local_option(url), &[samples::CURL_ENTITY])
}

fn send_line(url: &str, file: &Path, provider: &str) -> String {
    let to = if url == local_address() { String::new() } else { format!(" --to {url}") };
    format!("{} send --sources {}{to} --provider {provider}", this_command(), quoted(&file.to_string_lossy()))
}

/// Returns a provider whose samples this run accepts, or what is missing. It is one whose samples all have an order, if
/// there is any.
fn trial(sources: &Sources, development_keys: bool) -> Result<&str, String> {
    let can_be_tried = |provider: &&str| match samples::source_of(provider, sources) {
        Some(source) => samples::is_signable(source, development_keys),
        None => samples::queued::has_samples(provider),
    };
    let providers = || sources.iter().map(|source| source.provider_name.as_str()).filter(can_be_tried);
    providers().find(|provider| have_orders(provider, sources)).or_else(|| providers().next()).ok_or_else(|| {
        let is_published = |source: &&Arc<Source>| source.has_secret() && source.has_published_key();
        match sources.doors().find(is_published) {
            Some(source) => format!(
                "{} signs with a private key. To try its samples, start again with --development-keys",
                source.provider_name
            ),
            None if sources.doors().next().is_none() => "events/ has none for these queues".to_owned(),
            None => format!("no source has a secret to sign with; `{} check` says what is missing", this_command()),
        }
    })
}

/// Returns whether the document finds an order in each sample of `provider`.
fn have_orders(provider: &str, sources: &Sources) -> bool {
    let Some(source) = samples::source_of(provider, sources) else { return false };
    samples::of_provider(provider).iter().all(|(_, event)| {
        let event = samples::readdressed(event, source.name.as_str());
        let webhook = event.and_then(|event| samples::webhook(&event, sources, Env::system().now()));
        webhook.is_ok_and(|webhook| !webhook.incoming.entity.is_unrouted())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use webhook_serializer::sources::Sources;

    #[test]
    fn suggested_samples_have_orders() {
        let source = |name: &str, provider: &str, more: &str| {
            format!(
                "[sources.{name}]\nprovider = '{provider}'\nsecrets = ['whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==']\nhandler = 'log'\n{more}\n"
            )
        };
        let elsewhere = source("parcels", "standard-webhooks", "entity = 'shop/order/{/nowhere}'");
        let shop = source("shop", "shopify", "");
        let trial = |document: &str| {
            let sources = Sources::parse(document).unwrap();
            super::trial(&sources, false).map(str::to_owned)
        };
        assert_eq!(trial(&(elsewhere.clone() + &shop)).as_deref(), Ok("shopify"));
        assert_eq!(trial(&elsewhere).as_deref(), Ok("standard-webhooks"));
    }

    /// Promise: `local` prints a `show` line that works.
    #[test]
    fn printed_command_lines_can_be_parsed() {
        for url in ["http://127.0.0.1:9000", "http://127.0.0.1:9001"] {
            for line in [super::show_line(url), super::send_line(url, "my.toml".as_ref(), "shopify")] {
                crate::command::Arguments::try_parse_from(line.split(' ')).unwrap();
            }
        }
    }
}
