//! `serializer alerts --test`: sends a test message to the receiver of alerts.

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use serializer::say;
use webhook_serializer::{
    alerts::{AlertMessage, AlertSender},
    time::Env,
};

use super::source::whereabouts::{DocumentLocation, sources};

#[derive(Debug, Args)]
#[command(
    after_help = "The sources document's table `alerts` says where alerts are sent: docs/operating.md. This command sends \
                  from this machine, as the scheduler does from AWS. The job `alerts`, which sends alerts each minute, \
                  fails if its receiver does not answer 2xx: `serializer jobs`."
)]
pub struct AlertsArguments {
    /// Send one test message, and print what the receiver answers
    #[arg(long, required = true)]
    test: bool,
    #[command(flatten)]
    whereabouts: DocumentLocation,
}

impl AlertsArguments {
    pub async fn run(self) -> Result<ExitCode> {
        let place = self.whereabouts.place().await?;
        let (_, sources) = sources(&place).await?;
        let alerts = sources.alerts().with_context(|| {
            format!("{place} has no table `alerts`: add [alerts] with `to`, the URL of a webhook (docs/operating.md)")
        })?;
        let env = Env::system();
        let message = AlertMessage::test(place.to_string().trim());
        let sent = AlertSender::default().send(alerts, &message, format!("alert_test_{}", env.nonce()), &env).await;
        say!("{}", sent.map_err(|refused| anyhow!("the test was not delivered: {refused}"))?);
        Ok(ExitCode::SUCCESS)
    }
}
