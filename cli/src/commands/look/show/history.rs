//! Lists the operations log of an order.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::json;
use serializer::{
    output::{self, Table, duration},
    say,
    view::position::marked,
};

use super::ShownOrder;
use crate::commands::{print_json, similar, target::Deployment};

impl ShownOrder {
    pub(super) async fn history(&self, deployment: &Deployment) -> Result<ExitCode> {
        let acts = deployment.operator().acts(&self.order).await?;
        let now = deployment.env.now();
        let mut table = Table::new(&[">ago", "what", ">delivery", "by", "why", "how it ended"]);
        for act in &acts {
            let by = &act.reason.by;
            let why = &act.reason.why;
            if self.json {
                print_json(&json!({
                    "entity": act.entity, "at": act.at(), "what": act.verb, "sequence": act.sequence,
                    "by": by, "why": why, "ended": act.ended,
                }));
                continue;
            }
            table.row([
                act.at().map(|at| duration(now.since(at))).unwrap_or_default(),
                act.verb.clone(),
                act.sequence.map(marked).unwrap_or_default(),
                by.clone(),
                why.clone(),
                act.ended.clone().unwrap_or_else(|| "unknown: interrupted".into()),
            ]);
        }
        if table.is_empty() && !deployment.operator().is_known(&self.order).await? {
            bail!("{}", similar::unknown(&self.order, deployment).await);
        }
        if self.json {
            return Ok(ExitCode::SUCCESS);
        }
        if table.is_empty() {
            say!("the log of {} has no operation: none was carried out, or an erase has removed it", self.order);
        } else {
            output::print(table);
        }
        Ok(ExitCode::SUCCESS)
    }
}
