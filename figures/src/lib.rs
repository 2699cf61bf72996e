//! Computes figures for `docs/figures.md`, `docs/scaling.md` and `docs/deploying.md`. The benchmarks are in the
//! binary.

pub mod bill;
pub mod flood;
mod peak;
pub mod scaling;
pub mod sheet;
