//! From a run that fails to a short story: what can be left out is left out.

use std::{collections::BTreeSet, sync::Arc};

use super::{Plan, Report, chance::Twist, run};

/// How many runs a shrink may take.
const RUNS: usize = 600;

/// The same mistake with as little misfortune as can be found: halves, then
/// single twists are left out for as long as something still goes wrong.
pub fn shrink(plan: &Plan, report: Report) -> Report {
    let mut best = report;
    let mut runs = 0;
    let mut attempt = |kept: &BTreeSet<Twist>| {
        runs += 1;
        let report = run(Plan { allowed: Some(Arc::new(kept.clone())), ..plan.clone() });
        (runs < RUNS, (!report.mistakes.is_empty()).then_some(report))
    };
    let mut size = best.twists.len().div_ceil(2).max(1);
    loop {
        let twists: Vec<Twist> = best.twists.iter().copied().collect();
        let mut smaller = false;
        let mut from = 0;
        while from < twists.len() {
            let out = &twists[from..(from + size).min(twists.len())];
            let kept: BTreeSet<Twist> = best.twists.iter().filter(|twist| !out.contains(twist)).copied().collect();
            let (go_on, failed) = attempt(&kept);
            if let Some(failed) = failed
                && failed.twists.len() < best.twists.len()
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
