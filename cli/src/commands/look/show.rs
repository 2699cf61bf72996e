//! `serializer show`: one delivery, with its body.

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use console::style;
use serde_json::{json, value::RawValue};
use serializer::{
    output, say,
    view::{
        body::{self, Changed, Node, Redacted},
        delivery::Account,
    },
};
use webhook_serializer::{
    operator::{Content, Single},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
    },
};

use crate::commands::{
    look::inspect::delivery_json,
    print_json,
    target::{Deployment, Target},
};

/// Options of `serializer show`.
#[derive(Debug, Args)]
#[command(
    after_help = "Hidden by default: names, addresses, e-mail, phone numbers, what looks like a card's number, the query \
                  of links, and whatever stands under keys such as customer, billing_address or token. A body that is \
                  no JSON is hidden as a whole.\n\n\
                  Of the sender's headers only those are stored that are shown here: topic, delivery id, content type."
)]
pub struct Show {
    /// Its order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// Its number, as `inspect`, `parked` and `entities` show it
    sequence: u64,
    /// The body as it was sent, with what is hidden otherwise; a terminal gets control characters escaped
    #[arg(long)]
    raw: bool,
    /// What differs from the delivery before it in the same order, a line for each place, instead of the body
    #[arg(long)]
    diff: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// What differs from the one before.
struct Difference {
    from: Delivery,
    /// `None`: one of the two bodies is no JSON.
    changes: Option<Vec<Changed>>,
}

impl Show {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let operator = deployment.operator();
        let sequence = Sequence(self.sequence);
        let single = operator.single(&self.order, sequence).await?;
        self.check(&single, &deployment)?;
        let difference = match (self.diff, &single.content) {
            (true, Content::Delivery(delivery)) => match operator.before(&self.order, sequence).await? {
                None => bail!("no delivery of {} before {sequence} is kept; nothing to compare with", self.order),
                Some(from) => Some(self.difference(from, delivery)),
            },
            (true, _) => bail!("the body of {} {sequence} is not kept any more; nothing to compare", self.order),
            _ => None,
        };
        let line = |command: &str, arguments: &[&str]| deployment.line(command, arguments);
        let account = Account::of(&self.order, sequence, &single, deployment.env.now(), line);
        match self.json {
            true => self.print_json(&single, &account, difference.as_ref())?,
            false => {
                account.print(&self.order, sequence, deployment.env.now());
                match &difference {
                    Some(difference) => self.print_difference(difference),
                    None => self.print_body(&single.content),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// That there is such a delivery.
    fn check(&self, single: &Single, deployment: &Deployment) -> Result<()> {
        let (order, sequence) = (&self.order, Sequence(self.sequence));
        if !matches!(single.content, Content::Nothing) {
            return Ok(());
        }
        let inspect = deployment.command("inspect", order.as_str());
        let Some(state) = &single.state else {
            bail!(
                "nothing is known of {order}: nothing has arrived for this key within the retention time, or it was \
                 erased. Is that its key? `{}` lists the keys that do not move",
                deployment.line("entities", &[])
            );
        };
        ensure!(
            sequence <= state.tail,
            "there is no delivery {sequence} of {order}: the last that arrived is {}. `{inspect}` lists them",
            state.tail
        );
        ensure!(
            sequence <= state.head,
            "{order} {sequence} is claimed and not written yet, or never will be; ask again in a few seconds"
        );
        let how = single.receipt.as_ref().map_or_else(String::new, |receipt| format!(" as {}", receipt.settlement));
        bail!(
            "{order} {sequence} was settled{how} or never used, and its delivery is gone: deliveries are kept for {} \
             days. `{inspect}` shows what is left",
            deployment.retention.as_secs() / 86_400
        );
    }

    fn difference(&self, from: Delivery, delivery: &Delivery) -> Difference {
        let nodes = Node::parse(from.body()).zip(Node::parse(delivery.body()));
        Difference { changes: nodes.map(|(before, after)| body::diff(&before, &after, self.raw)), from }
    }

    fn print_body(&self, content: &Content) {
        let Content::Delivery(delivery) = content else {
            if matches!(content, Content::Bodiless(_)) {
                say!("\nIts body is gone: it was put back or discarded since it was parked.");
            }
            return;
        };
        if self.raw {
            say!();
            output::print_raw(&[&delivery.body()[..], b"\n"].concat());
            return;
        }
        match Node::parse(delivery.body()) {
            None => say!("\nIts body is no JSON, and so hidden as a whole; --raw shows it."),
            Some(node) => {
                let Redacted { node, pointers } = body::redacted(&node);
                say!("\n{node}");
                if !pointers.is_empty() {
                    say!("\n{}", style(format_args!("{}; --raw shows it", hidden(&pointers))).dim());
                }
            }
        }
    }

    fn print_difference(&self, difference: &Difference) {
        let Difference { from, changes } = difference;
        say!("\nAgainst {}, {}:", from.sequence(), from.topic());
        let Some(changes) = changes else {
            say!("One of the two bodies is no JSON; --raw without --diff shows each.");
            return;
        };
        for Changed { pointer, before, after } in changes {
            match (before.as_deref().map(cut), after.as_deref().map(cut)) {
                (Some(before), Some(after)) => say!("{} {pointer}  {before} → {after}", style("~").yellow()),
                (None, Some(after)) => say!("{} {pointer}  {after}", style("+").green()),
                (Some(before), None) => say!("{} {pointer}  {before}", style("-").red()),
                (None, None) => {}
            }
        }
        if changes.is_empty() {
            say!("the same body");
        }
    }

    fn print_json(&self, single: &Single, account: &Account, difference: Option<&Difference>) -> Result<()> {
        let mut value = match single.content.delivery() {
            Some(delivery) => delivery_json(delivery),
            None => json!({ "entity": self.order, "sequence": self.sequence }),
        };
        account.add_to(&mut value);
        if let Some(Difference { from, changes }) = difference {
            value["against"] = json!(from.sequence());
            value["changes"] = json!(changes.as_ref().map(|changes| {
                let change =
                    |one: &Changed| json!({ "pointer": one.pointer, "before": one.before, "after": one.after });
                changes.iter().map(change).collect::<Vec<_>>()
            }));
        } else if let Content::Delivery(delivery) = &single.content {
            let node = Node::parse(delivery.body());
            let shown = node.map(|node| if self.raw { (node, Vec::new()) } else { parts(body::redacted(&node)) });
            match shown {
                Some((node, pointers)) => {
                    value["redacted"] = json!(pointers);
                    // Numbers as they were sent: no value of ours holds them.
                    let body = RawValue::from_string(node.compact())?;
                    let text = value.to_string();
                    say!("{},\"body\":{body}}}", text.strip_suffix('}').unwrap_or_default());
                    return Ok(());
                }
                None if self.raw => value["body_base64"] = STANDARD.encode(delivery.body()).into(),
                None => value["redacted"] = json!([""]),
            }
        }
        print_json(&value);
        Ok(())
    }
}

fn parts(redacted: Redacted) -> (Node, Vec<String>) {
    (redacted.node, redacted.pointers)
}

/// So many places are named.
const NAMED: usize = 8;

/// So much of a value is shown on one line.
const LONGEST: usize = 200;

fn hidden(pointers: &[String]) -> String {
    let named = pointers.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if pointers.len() > NAMED { format!(" and {} more", pointers.len() - NAMED) } else { String::new() };
    format!("hidden: {named}{more}")
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}
