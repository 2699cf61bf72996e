//! `serializer console`: serves the console for a deployment until Ctrl-C.

use std::{net::IpAddr, process::ExitCode, sync::Arc};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use serializer::{
    console::{Console as Served, SourcesReader, Watched},
    local::LOOPBACK,
    say,
};

use crate::commands::{
    print_json,
    setup::source::whereabouts,
    target::{Deployment, Target},
};

#[derive(Debug, Args)]
#[command(
    after_help = "The console serves on 127.0.0.1 with your credentials. Anybody with the printed address can use it: \
                  the address contains a token. It deploys nothing, and its pages load nothing from other hosts. Each \
                  action asks for a reason and is logged here. Ctrl-C ends it.\n\n\
                  `serializer local` serves the console too, with live lanes."
)]
pub struct ConsoleArguments {
    /// Listen on this address; in a container, 0.0.0.0
    #[arg(long, default_value_t = LOOPBACK, value_name = "IP")]
    listen: IpAddr,
    /// The port; by default 9001, or a free port if 9001 is taken
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Your name
    #[arg(long, env = "USER", default_value = "operator", value_name = "NAME")]
    by: String,
    /// Print the address as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl ConsoleArguments {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let watched = watched(&Arc::new(deployment), self.target.name(), self.by);
        let console = Served::start(watched, self.listen, self.port, "--port").await?;
        match self.json {
            true => print_json(&json!({ "what": "serving", "console": console.url })),
            false => {
                say!("console    {}", console.url);
                say!("Ctrl-C stops.");
            }
        }
        tokio::signal::ctrl_c().await?;
        Ok(ExitCode::SUCCESS)
    }
}

fn watched(deployment: &Arc<Deployment>, name: String, by: String) -> Watched {
    let document = deployment.clone();
    let sources = SourcesReader::new(move || {
        let deployment = document.clone();
        Box::pin(async move { whereabouts::known(&deployment).await })
    });
    Watched {
        operator: deployment.operator(),
        store: deployment.parts.store.clone(),
        env: deployment.env.clone(),
        option: deployment.option.clone(),
        is_local: deployment.is_local(),
        refreshes: (!deployment.is_local()).then(|| deployment.metered()),
        name,
        sources,
        story: None,
        by,
    }
}
