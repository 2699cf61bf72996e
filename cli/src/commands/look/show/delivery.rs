//! Shows one delivery with its status, and its body or the changes since an earlier delivery.

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use console::style;
use serde_json::{json, value::RawValue};
use serializer::{
    output::{self, duration},
    say,
    view::{
        body::{self, BodyNode, ChangedValue, Redacted},
        delivery::{DeliveryStatus, Fact, delivery_json, is_blocked_at},
        position::marked,
    },
};
use webhook_serializer::{
    operator::{Content, LOOKS_BACK, Single},
    protocol::{delivery::Delivery, entity::Sequence},
};

use super::ShownOrder;
use crate::commands::{print_json, setup::source::whereabouts, similar, target::Deployment};

struct Difference {
    from: Delivery,
    changes: Option<Vec<ChangedValue>>,
}

impl ShownOrder {
    pub(super) async fn delivery(&self, sequence: Sequence, deployment: &Deployment) -> Result<ExitCode> {
        let operator = deployment.operator();
        let single = operator.single(&self.order, sequence).await?;
        self.check(sequence, &single, deployment).await?;
        let difference = match (self.diff, &single.content) {
            (true, Content::Delivery(delivery)) => match operator.before(delivery).await? {
                None => bail!(
                    "--diff has nothing to compare: among the {LOOKS_BACK} deliveries of {} before {}, no stored \
                     delivery has the topic {}",
                    self.order,
                    marked(sequence),
                    delivery.topic()
                ),
                Some(from) => Some(self.difference(from, delivery)),
            },
            (true, _) => {
                bail!(
                    "--diff has nothing to compare: the body of {} {} is no longer stored",
                    self.order,
                    marked(sequence)
                )
            }
            _ => None,
        };
        let state = single.state.as_ref().filter(|state| state.next() == sequence);
        let delay = match state.zip(single.content.delivery()) {
            Some((state, delivery)) => whereabouts::delay(deployment, delivery.source(), state).await,
            None => None,
        };
        let status = DeliveryStatus::of(sequence, &single, delay.as_ref(), deployment.env.now());
        match self.json {
            true => self.print_json(sequence, &single, &status, difference.as_ref(), deployment)?,
            false => {
                self.print_status(sequence, &status, deployment);
                match &difference {
                    Some(difference) => self.print_difference(difference),
                    None => self.print_body(&single.content),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn check(&self, sequence: Sequence, single: &Single, deployment: &Deployment) -> Result<()> {
        let order = &self.order;
        if !matches!(single.content, Content::Nothing) || is_blocked_at(sequence, single) {
            return Ok(());
        }
        let show = deployment.command("show", order.as_str());
        let Some(state) = &single.state else {
            bail!("{}", similar::unknown(order, deployment).await);
        };
        ensure!(
            sequence <= state.tail,
            "there is no delivery {} of {order}: the last accepted one is {}. `{show}` lists the deliveries",
            marked(sequence),
            marked(state.tail)
        );
        ensure!(
            sequence <= state.head,
            "{order} {} is claimed, but its delivery is not stored yet: run this again in a few seconds. If it never \
             arrives, a worker fills the sequence with a tombstone",
            marked(sequence)
        );
        let how = single.receipt.as_ref().map_or_else(String::new, |receipt| format!(" as {}", receipt.settlement));
        bail!(
            "there is no delivery {} of {order}: it was settled{how} and then deleted, or the sequence was never used. \
             Deliveries are kept for {} days; `{show}` lists the others",
            marked(sequence),
            deployment.retention.as_secs() / 86_400
        );
    }

    fn difference(&self, from: Delivery, delivery: &Delivery) -> Difference {
        let nodes = BodyNode::parse(from.body()).zip(BodyNode::parse(delivery.body()));
        Difference { changes: nodes.map(|(before, after)| body::diff(&before, &after, self.raw)), from }
    }

    fn print_status(&self, sequence: Sequence, status: &DeliveryStatus, deployment: &Deployment) {
        let now = deployment.env.now();
        say!("{} {}  {}", style(self.order.as_str()).bold(), marked(sequence), status.word.styled());
        status.sentences.iter().for_each(|sentence| say!("{sentence}"));
        deployment.print_next(&self.order, &status.next);
        say!();
        for (name, fact) in &status.facts {
            match fact {
                Fact::Text(text) => say!("{name:14}{}", output::one_line(text)),
                Fact::Number(number) => say!("{name:14}{number}"),
                Fact::At(at) if *at <= now => say!("{name:14}{at}, {} ago", duration(now.since(*at))),
                Fact::At(at) => say!("{name:14}{at}"),
            }
        }
    }

    fn print_body(&self, content: &Content) {
        let Content::Delivery(delivery) = content else {
            if matches!(content, Content::Bodiless(_)) {
                say!("\nThe body was deleted, because an operator redrove or discarded the delivery.");
            }
            return;
        };
        if self.raw {
            say!();
            output::print_raw(&[&delivery.body()[..], b"\n"].concat());
            return;
        }
        match BodyNode::parse(delivery.body()) {
            None => say!("\nThe body is not JSON, so all of it is hidden; --raw shows it."),
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
        say!("\nAgainst {}, {}:", marked(from.sequence()), from.topic());
        let Some(changes) = changes else {
            say!("One of the two bodies is not JSON. Show each with --raw, without --diff.");
            return;
        };
        for ChangedValue { pointer, before, after } in changes {
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

    fn print_json(
        &self,
        sequence: Sequence,
        single: &Single,
        status: &DeliveryStatus,
        difference: Option<&Difference>,
        deployment: &Deployment,
    ) -> Result<()> {
        let mut value = match single.content.delivery() {
            Some(delivery) => delivery_json(delivery),
            None => json!({ "entity": self.order, "sequence": sequence }),
        };
        status.add_to(&mut value, &deployment.option, &self.order);
        if let Some(Difference { from, changes }) = difference {
            value["against"] = json!(from.sequence());
            value["changes"] = json!(changes.as_ref().map(|changes| {
                let change =
                    |one: &ChangedValue| json!({ "pointer": one.pointer, "before": one.before, "after": one.after });
                changes.iter().map(change).collect::<Vec<_>>()
            }));
        } else if let Content::Delivery(delivery) = &single.content {
            let node = BodyNode::parse(delivery.body());
            let shown = node.map(|node| if self.raw { (node, Vec::new()) } else { parts(body::redacted(&node)) });
            match shown {
                Some((node, pointers)) => {
                    value["redacted"] = json!(pointers);
                    // Numbers stay as they were sent; a JSON value would round them.
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

fn parts(redacted: Redacted) -> (BodyNode, Vec<String>) {
    (redacted.node, redacted.pointers)
}

const NAMED: usize = 8;

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
