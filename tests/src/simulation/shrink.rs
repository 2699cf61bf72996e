//! Shrinks a failing run: leaves out every decision that the failure does not need.

use std::{collections::BTreeSet, sync::Arc};

use super::{SimulationPlan, SimulationReport, random::DecisionId, run};

/// The most runs of one shrink.
const RUNS: usize = 600;

pub fn shrink(plan: &SimulationPlan, report: SimulationReport) -> SimulationReport {
    let mut best = report;
    let mut runs = 0;
    let mut attempt = |kept: &BTreeSet<DecisionId>| {
        runs += 1;
        let report = run(SimulationPlan { allowed: Some(Arc::new(kept.clone())), ..plan.clone() });
        (runs < RUNS, (!report.mistakes.is_empty()).then_some(report))
    };
    let mut size = best.decisions.len().div_ceil(2).max(1);
    loop {
        let decisions: Vec<DecisionId> = best.decisions.iter().copied().collect();
        let mut smaller = false;
        let mut from = 0;
        while from < decisions.len() {
            let out = &decisions[from..(from + size).min(decisions.len())];
            let kept: BTreeSet<DecisionId> =
                best.decisions.iter().filter(|decision| !out.contains(decision)).copied().collect();
            let (go_on, failed) = attempt(&kept);
            if let Some(failed) = failed
                && failed.decisions.len() < best.decisions.len()
            {
                best = failed;
                smaller = true;
            }
            if !go_on {
                return best;
            }
            from += size;
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if !smaller {
            return best;
        }
    }
}
