//! `serializer hold`, `serializer resume` and `serializer retry`: an order that a
//! person stops, and lets go on.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use serializer::{output::duration, say};
use webhook_serializer::{
    operator::Turned,
    protocol::{
        entity::EntityKey,
        state::{EntityState, LeaseKind},
    },
};

use crate::commands::{
    print_json,
    reason::{Because, MaybeBecause},
    target::{Deployment, Target},
};

/// Options of `serializer hold`.
#[derive(Debug, Args)]
#[command(
    after_help = "What is at work ends and is settled; nothing else starts. Webhooks are accepted and wait, in order. \
                  It lasts until `resume`, however long; what waits is kept as long. Leases are granted to others as \
                  ever: a script may work on the order meanwhile."
)]
pub struct Hold {
    #[command(flatten)]
    because: Because,
    #[command(flatten)]
    of: Of,
}

/// Options of `serializer resume`.
#[derive(Debug, Args)]
pub struct Resume {
    #[command(flatten)]
    because: MaybeBecause,
    #[command(flatten)]
    of: Of,
}

/// Options of `serializer retry`.
#[derive(Debug, Args)]
#[command(
    after_help = "Its attempts stay counted: where this was the last one, it is parked, or its order blocked. An order \
                  that is blocked already goes on with `unblock`, with all its attempts anew."
)]
pub struct Retry {
    #[command(flatten)]
    because: MaybeBecause,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, Args)]
struct Of {
    /// Its key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// One JSON object that says what was done
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Of {
    /// Tells what became of it.
    fn tell(&self, deployment: &Deployment, turned: &Turned, done: &str, say: impl FnOnce(&EntityState)) -> ExitCode {
        let (changed, state) = match turned {
            Turned::Done(state) => (true, Some(state)),
            Turned::Unchanged(state) => (false, state.as_ref()),
        };
        if self.json {
            print_json(&json!({
                "entity": self.order, "done": changed.then_some(done), "on_hold": state.and_then(|state| state.hold.since()),
                "waiting": state.map_or(0, EntityState::waiting), "known": state.is_some(),
            }));
        } else if let Some(state) = state {
            say(state);
        } else {
            let list = deployment.line("entities", &[]);
            say!("nothing is known of {}; is that its key? `{list}` lists those that do not move", self.order);
        }
        if state.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn waiting(state: &EntityState) -> String {
    match state.waiting() {
        0 => "nothing waits".into(),
        1 => "1 delivery waits".into(),
        many => format!("{many} deliveries wait"),
    }
}

impl Hold {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.of.target.connect().await?;
        let order = &self.of.order;
        let was_known = deployment.operator().inspect(order).await?.state.is_some();
        let turned = deployment.operator().because(self.because.reason()).hold(order).await?;
        let resume = deployment.command("resume", order.as_str());
        let now = deployment.env.now();
        Ok(self.of.tell(&deployment, &turned, "hold", |state| {
            let since = state.hold.since().map(|at| duration(now.since(at))).unwrap_or_default();
            match &turned {
                Turned::Done(_) => say!("{order} is on hold: {}, and nothing starts until `{resume}`", waiting(state)),
                Turned::Unchanged(_) => say!("{order} was on hold already, for {since}: {}", waiting(state)),
            }
            if !was_known {
                say!("nothing has arrived for it yet; is that its key?");
            }
            let at_work = state.held.as_ref().filter(|held| held.kind == LeaseKind::Drain && held.runs(now));
            if at_work.is_some() {
                let by = state.holder_info.as_ref().map_or("a worker", |info| info.as_str());
                say!("{by} ends what it is at; that is settled as ever");
            }
        }))
    }
}

impl Resume {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.of.target.connect().await?;
        let order = &self.of.order;
        let turned = deployment.operator().because(self.because.reason()).resume(order).await?;
        Ok(self.of.tell(&deployment, &turned, "resume", |state| {
            match &turned {
                Turned::Done(_) => say!("{order} goes on, from {}: {}", state.next(), waiting(state)),
                Turned::Unchanged(_) => say!("{order} was not on hold: {}", waiting(state)),
            }
            if state.blocked.is_some() {
                say!("it is blocked, too: `{}` says why", deployment.command("inspect", order.as_str()));
            }
        }))
    }
}

impl Retry {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.of.target.connect().await?;
        let order = &self.of.order;
        let turned = deployment.operator().because(self.because.reason()).retry(order).await?;
        Ok(self.of.tell(&deployment, &turned, "retry", |state| match &turned {
            Turned::Done(_) => say!("{order} is tried now, at {}: attempt {}", state.next(), state.attempts + 1),
            Turned::Unchanged(_) => {
                let command = |command| deployment.command(command, order.as_str());
                match (&state.blocked, state.hold.since()) {
                    (Some(_), _) => say!("{order} is blocked: `{}` lets it go on", command("unblock")),
                    (None, Some(_)) => say!("{order} is on hold until `{}`", command("resume")),
                    _ => say!("{order} does not wait for another attempt; `{}` says how it stands", command("inspect")),
                }
            }
        }))
    }
}
